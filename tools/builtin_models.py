"""The models that come with the package: train them by their recipes, and pack them with weights in half precision.

    python tools/builtin_models.py train              all of them; the same command goes on where it was stopped
    python tools/builtin_models.py train tales-mdlm   one of them
    python tools/builtin_models.py pack               measure what was trained, write src/multimdm/builtin with cards

The recipes are in recipes/builtin. `make models` does both.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from multimdm import load
from multimdm._files import whole_directory
from multimdm.builtin import CARD, builtin_root
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.judges import Judges
from multimdm.evaluation.measurement import Measurement, measure
from multimdm.evaluation.settings import Drawing
from multimdm.pipeline.builtin_cards import BuiltinCard, CardFigures, CardStage, Figure
from multimdm.pipeline.files import read_safetensors, sha256_of, write_safetensors
from multimdm.pipeline.model import Model
from multimdm.training.building import JOBS
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe, read_yaml
from multimdm.training.schema import RECIPES
from multimdm.training.shipped import shipped

NAMES = {
    "tales-ar": "Tales, autoregressive: one call for each of 48 tokens; the teacher of tales.",
    "tales-mdlm": "Tales, masked diffusion (MDLM): to compare with.",
    "tales": "Tales, quantile noise: stories in one, two or four calls.",
}
"""Name -> what its card says, in the order of training."""
STEPS = (1, 2, 4)
MOST_BYTES = 10_000_000
"""Of all of them together."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train or pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "pack"))
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all unless given")
    parser.add_argument("--runs", type=Path, default=Path("runs/models"), help="where training keeps its runs")
    parser.add_argument("--longer", type=float, default=1.0, help="train: times the steps of the recipes")
    parser.add_argument("--num", type=int, default=256, help="pack: samples per measurement")
    parser.add_argument("--into", type=Path, default=builtin_root(), help="pack: where the models are put")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no built-in model {unknown[0]!r}; there are: {', '.join(NAMES)}")
    for name in [name for name in NAMES if name in (options.names or NAMES)]:
        if options.what == "train":
            train_model(name, options.runs, options.longer)
        else:
            card = pack(name, load(options.runs / name), options.into, options.num)
            print(f"{name}: " + ", ".join(f"K = {one.steps}: {one.gen_ppl.value:.3g}" for one in card.figures))


def train_model(name: str, runs: Path, longer: float = 1.0) -> Path:
    """Train by the recipe of this name, or go on with it; the directory of its model."""
    data = read_yaml(shipped("builtin")[name])
    if "init" in data:
        data["init"] = str(runs / data["init"] / "model")
    data["train"]["steps"] = max(1, round(longer * data["train"]["steps"]))
    command = data["command"]
    recipe = parse_recipe(data, RECIPES[command], name)
    return train(JOBS[command](recipe, name), runs / name).model


def pack(name: str, model: Model, into: Path, num: int = 256, seed: int = 0) -> BuiltinCard:
    """Write a model into the folder `into`, in half precision and with a card of what it can do then."""
    model = replace(model, lineage=_named_by_models(model.lineage))
    with tempfile.TemporaryDirectory() as place:
        packed = Path(place) / name
        model.save(packed)
        _halve(packed / "model.safetensors")
        card = _card(name, load(packed), num, seed, {path.name: sha256_of(path) for path in sorted(packed.iterdir())})
        (packed / CARD).write_text(json.dumps(asdict(card), indent=2) + "\n", encoding="utf-8")
        _check_size(packed, into)
        with whole_directory(into / name) as directory:
            shutil.copytree(packed, directory, dirs_exist_ok=True)
    return card


def _named_by_models(lineage: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The same, with the names of built-in models in place of the runs that made them: paths are only true here."""

    def name_of(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: name_of(inner) for key, inner in value.items()}
        parts = Path(value).parts if isinstance(value, str) else ()
        return parts[-2] if len(parts) > 1 and parts[-1] == "model" and parts[-2] in NAMES else value

    return tuple(name_of(step) for step in lineage)


def _halve(path: Path) -> None:
    """Weights in half precision; what it cannot hold is refused."""
    tensors = read_safetensors(path)
    for key, tensor in tensors.items():
        if tensor.is_floating_point():
            tensors[key] = tensor.half()
            if not bool(tensors[key].isfinite().all()):
                raise ValueError(f"{path}: {key} has numbers that half precision cannot hold")
    write_safetensors(tensors, path)
    path.chmod(0o644)  # the file is to be read by whoever installs the package


def _card(name: str, model: Model, num: int, seed: int, hashes: dict[str, str]) -> BuiltinCard:
    stages = [
        CardStage(
            command=step["command"],
            recipe=step["name"],
            steps=step["steps"],
            sequences=step["steps"] * step["recipe"]["train"]["batch_size"],
            seed=step["recipe"]["train"]["seed"],
        )
        for step in model.lineage
    ]
    return BuiltinCard(
        name=name,
        says=NAMES[name],
        parameters=sum(weights.numel() for weights in model.network.parameters()),
        stages=tuple(stages),
        commit=_commit(),
        samples=num,
        seed=seed,
        figures=figures_of(model, num, seed),
        sha256=hashes,
    )


def figures_of(model: Model, num: int, seed: int) -> tuple[CardFigures, ...]:
    """At 1, 2 and 4 steps, or token by token; as the model advises."""
    length = model.network.config.max_length
    drawing = Drawing(num=num, seed=seed).resolved(model.advice)
    judge = Judges().make("tales", model, length)
    tau = drawing.temperature(model.advice)
    steps = STEPS if model.process is not None else (length,)
    return tuple(_figures(measure(model, judge, K, tau, drawing)) for K in steps)


def _figures(found: Measurement) -> CardFigures:
    return CardFigures(
        steps=found.steps,
        calls=found.nfe,
        gen_ppl=_figure(found.gen_ppl),
        entropy=_figure(found.entropy),
        pooled_entropy=_figure(found.pooled_entropy),
        valid_sentences=_figure(found.valid_sentences),
        valid_stories=_figure(found.valid_stories),
    )


def _figure(estimate: Estimate | None) -> Figure:
    if estimate is None or estimate.low is None or estimate.high is None:
        raise ValueError("a card needs every figure with its interval: take more samples")
    return Figure(estimate.value, estimate.low, estimate.high)


def _commit() -> str:
    """Of the checkout, marked if its code is not what was committed."""
    root = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", ":!src/multimdm/builtin")
    return (git("rev-parse", "HEAD") or "unknown") + (" with changes" if changed else "")


def _check_size(packed: Path, into: Path) -> None:
    others = [path for path in into.glob("*/*") if path.parent.name != packed.name and path.parent.name in NAMES]
    size = sum(path.stat().st_size for path in (*packed.iterdir(), *others))
    if size > MOST_BYTES:
        raise ValueError(f"the built-in models have {size:,} bytes together; {MOST_BYTES:,} are allowed")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")
