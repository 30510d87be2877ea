"""What head and loss cost on a GPU, counted without one.

    python benchmarks/gpu_costs.py

Every objective and sampler runs on the pretend GPU of the tests, in bfloat16, with a network that is nothing but its
head.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def main() -> None:
    """A table in Markdown."""
    from support.gpu_costs import cost_of_sampling, cost_of_training, objectives, samplers  # pyright: ignore[reportMissingImports]

    print("| | bytes per logit | launches per row | waits |")
    print("|---|---|---|---|")
    rows = {name: cost_of_training(objective) for name, objective in objectives().items()}
    rows |= {f"sampling: {name}": cost_of_sampling(*sampler) for name, sampler in samplers().items()}
    for name, cost in rows.items():
        print(f"| {name} | {cost.bytes_per_logit:.1f} | {cost.launches_per_row:.4f} | {cost.waits} |", flush=True)


if __name__ == "__main__":
    main()
