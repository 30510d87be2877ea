"""How the default recipes learn.

    multimdm pretrain tales-mdlm && multimdm pretrain tales-multimdm-rand && multimdm pretrain tales-duo
    multimdm adapt tales-multimdm-cont
    python benchmarks/curves.py runs/tales-* --out docs/images/training.png

Draws the curves of finished runs and prints a table of their last validation.
"""

import argparse
from pathlib import Path

from multimdm.report.style import save
from multimdm.report.training_figure import training_figure
from multimdm.training.records import read_records


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    save(training_figure(options.runs), options.out)
    print("| run | steps | minutes | reconstruction | identification | NELBO | above the entropy |")
    print("|---|---|---|---|---|---|---|")
    for run in options.runs:
        last, course = read_records(run, "valid")[-1], read_records(run, "train")
        above = f"{last['nelbo'] / last['entropy'] - 1:.1%}" if "entropy" in last else "-"
        print(
            f"| {run.name} | {last['step']:,} | {course[-1]['seconds'] / 60:.1f} | {last['reconstruction']:.4f} | "
            f"{last['identification']:.4f} | {last['nelbo']:.4f} ± {last['standard_error']:.4f} | {above} |"
        )


if __name__ == "__main__":
    main()
