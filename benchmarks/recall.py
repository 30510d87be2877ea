"""What the models of a comparison have forgotten: how probable held-out texts are when they are written in one step.

    python benchmarks/recall.py runs/reproduce/tales/results/coupling/seeds.json

For every model and seed of the comparison, at temperature 1 and at the one at which samples of one step have the
entropy of real text. Means over seeds; see multimdm/evaluation/recall.py for what is computed.
"""

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path

from multimdm import load
from multimdm.evaluation.real_text import real_text
from multimdm.evaluation.recall import one_step_log_probs, one_step_recall


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=Path, help="seeds.json of the results of multimdm reproduce")
    parser.add_argument("--data", default="tales", help="tales, or a directory that multimdm prepare wrote")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--strings", type=int, default=4096, help="noise strings that are averaged over")
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for one in json.loads(options.seeds.read_text(encoding="utf-8")):
        aligned = next(x["measurement"] for x in one["aligned"] if x["measurement"]["steps"] == 1)
        model, length = load(one["path"]), one["drawing"]["length"]
        texts = real_text(options.data, model, length).take(options.texts).ids
        at_one, matched = (
            one_step_recall(one_step_log_probs(model, texts, options.strings, temperature=tau), length).value
            for tau in (1.0, aligned["temperature"])
        )
        found[one["label"]].append((at_one, matched, aligned["temperature"]))
    print(f"{options.texts} texts, {options.strings:,} noise strings; nats per token, mean over seeds\n")
    print("| model | seeds | τ = 1 | at the matched entropy | τ there |\n|---|---|---|---|---|")
    for label, rows in found.items():
        at_one, matched, tau = (statistics.fmean(column) for column in zip(*rows, strict=True))
        print(f"| {label} | {len(rows)} | {at_one:.3f} | {matched:.3f} | {tau:.3f} |")


if __name__ == "__main__":
    main()
