"""`python -m multimdm.evaluation.harness ...`: the harness's own command line, with our model and tasks in it."""

import sys

from lm_eval.__main__ import cli_evaluate

from multimdm.evaluation.harness import lm
from multimdm.evaluation.harness.benchmarks import TASKS_DIRECTORY
from multimdm.pipeline.ranks import launched


def main() -> None:
    """Add where our tasks are, unless others are named; then the harness's own program."""
    assert lm.NAME  # importing the model registers it
    if launched() > 1:
        sys.exit("the harness's own program is for one process; several ranks: multimdm evaluate --harness")
    tasks = any(word in ("-t", "--tasks") or word.startswith("--tasks=") for word in sys.argv)
    if tasks and not any(word.startswith("--include_path") for word in sys.argv):
        sys.argv += ["--include_path", str(TASKS_DIRECTORY)]
    cli_evaluate()


if __name__ == "__main__":
    main()
