"""Write down what golden runs give: `make golden`, or `PYTHONPATH=tests python -m golden_runs.record FILE`.

A change that is to leave behaviour alone leaves this file equal bit for bit, on one machine: record before and after
it, and compare. `tests/golden_runs/expected.json` is what the tests hold runs against, on any machine, with room for
rounding; it is written anew only by a change that means to change what it says, which then tells so.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from golden_runs import drawing_cases, training_cases
from support.runs import tiny_starts


def record(folder: Path) -> dict[str, Any]:
    """Everything, with one thread: sums over several come out in another order."""
    torch.set_num_threads(1)
    starts = tiny_starts(folder / "starts")
    return {
        "training": {
            name: training_cases.course(name, starts, folder / str(number))
            for number, name in enumerate(training_cases.names())
        },
        "texts": {name: drawing_cases.texts(name) for name in drawing_cases.names()},
        "evaluation": drawing_cases.evaluation(folder / "evaluation"),
        "answers": drawing_cases.answers(),
    }


def main(arguments: list[str]) -> None:
    """Record, and say where it is."""
    if len(arguments) != 1:
        raise SystemExit("give the file to write: PYTHONPATH=tests python -m golden_runs.record FILE")
    with tempfile.TemporaryDirectory() as folder:
        found = record(Path(folder))
    path = Path(arguments[0])
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
