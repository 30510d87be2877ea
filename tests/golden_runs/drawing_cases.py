"""Fixed-seed texts of every process, order, setting, prompt and gap; a small evaluation; answers of the server."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from multimdm.cli.main import main
from multimdm.pipeline import Model, Samples
from multimdm.process import MultiMask
from multimdm.serving.catalog import ServedModel
from support.live_server import serving
from support.runs import tiny_job
from support.tiny_models import TALES, causal_tales_model, shown_tales_model, tales_model

_PROMPT = "Lily went to the"
_GAP = "Lily went to the [MASK] [MASK] [MASK] . she found a [MASK] ball ."
_MASKED: Mapping[str, Mapping[str, Any]] = {
    "as usual": {},
    "greedy last, cosine": {"greedy_last": True, "grid": "cosine"},
    "top-p, top-k": {"top_p": 0.9, "top_k": 20, "temperature": 0.8},
    "corrector": {"corrector": 0.3},
    "confidence": {"order": "confidence"},
    "confidence, temperature 0": {"order": "confidence", "temperature": 0},
    "blocks, threshold": {"order": "confidence", "block_length": 16, "threshold": 0.05},
    "threshold by steps": {"order": "confidence", "threshold": "by_steps"},
    "certainty": {"order": "confidence", "remasking": "low_certainty"},
    "random": {"order": "confidence", "remasking": "random"},
    "left to right": {"order": "left_to_right", "threshold": 0.05},
}
_KEPT: Mapping[str, Mapping[str, Any]] = {
    "as usual": {},
    "confidence": {"order": "confidence", "temperature": 0},
    "left to right": {"order": "left_to_right", "temperature": 0},
    "rewrite": {"order": "rewrite", "temperature": 0},
    "rewrite, temperature 1": {"order": "rewrite"},
}
_ALL: Mapping[str, Mapping[str, Any]] = {"as usual": {}, "temperature 0": {"temperature": 0}}
_GUIDED = {"order": "confidence", "guidance": 1.5}


def _of_system(system: str, **network: Any) -> Model:
    model = tiny_job(system=system, network={"dropout": 0.0, **network}).model
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weights in model.network.parameters():
            weights.normal_(0.0, 0.2, generator=generator)
    model.network.eval()
    return model


def _reading_by_rule() -> Model:
    model = tales_model(3, seed=4)
    return Model(model.network, MultiMask(TALES.vocab_size, 3, readout="context"), model.tokenizer)


def _tied_unseen() -> Model:
    model = tales_model(3, seed=6)
    assert isinstance(model.process, MultiMask)
    return Model(model.network, model.process.tied(noise_shown=False), model.tokenizer)


_MODELS: Mapping[str, tuple[Callable[[], Model], Mapping[str, Mapping[str, Any]]]] = {
    # Where all is hidden behind one mask, places are alike but for their number, and rounding would choose the surest.
    "one mask": (lambda: _of_system("mdlm", absolute_positions=True), _MASKED),
    "three masks": (lambda: tales_model(3, seed=1), _MASKED),
    "three masks by Bayes' rule": (_reading_by_rule, {**_ALL, "confidence": {"order": "confidence"}}),
    "uniform states": (lambda: _of_system("duo"), {**_ALL, "on posterior": {"temperature_on": "posterior"}}),
    "candi": (lambda: _of_system("candi"), _ALL),
    "autoregressive": (causal_tales_model, _ALL),
    "tied noise, shown": (shown_tales_model, _KEPT),
    "tied noise, not shown": (_tied_unseen, {**_ALL, "confidence": {"order": "confidence", "temperature": 0}}),
}


def names() -> list[str]:
    """Of the models."""
    return list(_MODELS)


def texts(name: str) -> dict[str, str]:
    """Ids that a model draws in every way that it can, as text."""
    make, settings = _MODELS[name]
    model, found = make(), {}
    for way, options in settings.items():
        found[f"{way}: sample"] = _ids(model.sample(num=2, steps=4, seed=3, **options))
        found[f"{way}: complete"] = _ids(model.complete(_PROMPT, num=2, steps=3, length=24, seed=4, **options))
        if name != "autoregressive":
            found[f"{way}: infill"] = _ids(model.infill(_GAP, num=2, steps=2, seed=5, **options))
    if settings is _MASKED:
        found["guidance: complete"] = _ids(model.complete(_PROMPT, num=2, steps=3, length=24, seed=4, **_GUIDED))
    return found


def evaluation(out: Path) -> dict[str, float]:
    """The figures of a small evaluation of three masks, by their places in results.json."""
    tales_model(3, seed=1).save(out / "model")
    words = ["--steps", "1", "3", "--num", "6", "--temperatures", "1", "--sequences", "4", "--strings", "8"]
    words += ["--nelbo", "--recall", "--against-perfect", "--align-entropy", "3.6", "--device", "cpu"]
    arguments = ["evaluate", str(out / "model"), *words, "--judge", "tales", "--out", str(out / "measured")]
    assert main(arguments) == 0
    data = json.loads((out / "measured" / "results.json").read_text(encoding="utf-8"))
    return dict(_numbers(data, ""))


def answers() -> dict[str, Any]:
    """What the server says to fixed requests, without what changes from one to the next."""
    made = {"many": tales_model(3), "shown": shown_tales_model()}
    served_models = {name: ServedModel.of(name, model) for name, model in made.items()}
    asked = {
        "completion": (
            "/v1/completions",
            {"model": "many", "prompt": _PROMPT, "steps": 3, "seed": 7, "max_tokens": 20},
        ),
        "confidence": (
            "/v1/completions",
            {
                "model": "many",
                "prompt": _PROMPT,
                "steps": 3,
                "seed": 7,
                "n": 2,
                "sampler": "confidence",
                "max_tokens": 9,
            },
        ),
        "rewriting": (
            "/v1/completions",
            {"model": "shown", "prompt": _PROMPT, "steps": 3, "seed": 7, "sampler": "rewrite", "max_tokens": 9},
        ),
    }
    with serving(served_models) as live:
        replies = {name: live.post(path, body) for name, (path, body) in asked.items()}
    assert {reply.status for reply in replies.values()} == {200}
    return {name: [one["text"] for one in reply.data["choices"]] for name, reply in replies.items()}


def _ids(samples: Samples) -> str:
    rows = [" ".join(map(str, row)) for row in samples.ids.tolist()]
    return f"{samples.nfe} calls: {' / '.join(rows)}"


def _numbers(data: Any, place: str) -> Iterator[tuple[str, float]]:
    """All numbers in JSON, each with its place."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _numbers(value, f"{place}.{name}" if place else name)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _numbers(value, f"{place}[{number}]")
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield place, float(data)
