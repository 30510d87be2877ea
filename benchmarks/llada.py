"""MultiLLaDA in small: a tiny LLaDA learns addition, is adapted to several masks by LoRA, and all are measured.

The control is adapted alike with one mask: what many masks do is then told from what more training does.

    python benchmarks/llada.py --digits 1 --base-steps 1500 --adapt-steps 600 --out runs/llada-addition

Prints the table of Tab. (llada) for the one task: per cent of sums at 1, 2 and 4 tokens per step, with intervals.
"""

import argparse
import sys
import time
from pathlib import Path

from multimdm.cli.main import main as multimdm
from multimdm.evaluation.harness.running import HarnessPlan, run_plan
from multimdm.evaluation.store import Store, write_json
from multimdm.report.harness_table import as_data, markdown

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.addition import (  # pyright: ignore[reportMissingImports]  # the task of the tests
    sums,
    write_recipes,
    write_task,
)


def main() -> None:
    """Prepare, train, adapt, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", type=int, default=1)
    parser.add_argument("--base-steps", type=int, default=1500)
    parser.add_argument("--adapt-steps", type=int, default=600)
    parser.add_argument("--masks", type=int, default=8)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="of training")
    parser.add_argument("--out", type=Path, default=Path("runs/llada-addition"))
    options = parser.parse_args()
    out, start = options.out, time.monotonic()
    recipes = write_recipes(out, options.digits, options.base_steps, options.adapt_steps, options.masks)
    seed, control = ["--train.seed", str(options.seed)], ["--process.num-masks", "1", "--out", str(out / "control")]
    for arguments in (
        recipes.prepare,
        [*recipes.pretrain, *seed],
        [*recipes.adapt, *seed],
        [*recipes.adapt, *seed, *control],
    ):
        if multimdm(arguments):
            raise SystemExit(1)
    held_out = sums(options.items, 7, held_out=options.digits > 1, digits=options.digits)
    include = write_task(out / "tasks", held_out, recipes.answer_length)
    plan = HarnessPlan(("addition",), include=str(include), batch_size=64)
    models = [str(out / name / "model") for name in ("base", "control", "adapted")]
    scores = run_plan(plan, models, Store(out / "results"))
    write_json(out / "results.json", as_data(scores))
    print(markdown(scores))
    print(f"{time.monotonic() - start:.0f} s in all")


if __name__ == "__main__":
    main()
