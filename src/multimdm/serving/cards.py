"""What /v1/models tells of a model: its card, as `multimdm info` knows it, and what the playground begins with.

Clients elsewhere read it, so nothing in it tells where files lie on the machine that trained or serves the model: of
a path only the last part is named, and recipes are not sent whole.
"""

from collections.abc import Mapping
from typing import Any

from multimdm._inert import inert
from multimdm.builtin import builtin_names
from multimdm.data.tales_words import DEFAULT
from multimdm.evaluation.tales_models import speaks_tales
from multimdm.models import DiT
from multimdm.pipeline import Model
from multimdm.pipeline.about import kind_of
from multimdm.process import MultiMask

_LONGEST = 200
"""Characters of a name; checkpoints that others made may hold anything."""
_PROMPTS = (
    "Lily raced to the harbor",
    "One foggy morning Felix",
    "Nora and her aunt visited the museum. She found an ancient",
)
"""Beginnings of stories, of words that Tales has."""

_KINDS = {"names": "hero", "places": "place", "things": "object", "animals": "animal"}
"""What a reader calls it -> the variable of the grammar."""


def card_of(model: Model) -> dict[str, Any]:
    """Kind, network, process, tokenizer, lineage and what the checkpoint advises."""
    advice = {} if model.advice is None else vars(model.advice)
    return {
        "kind": kind_of(model.process),
        "network": _network(model),
        "process": _process(model),
        "tokenizer": _tokenizer(model),
        "lineage": [_step(step) for step in model.lineage],
        "advice": {name: value for name, value in advice.items() if value is not None},
    }


def start_page(name: str, model: Model) -> dict[str, Any]:
    """Fields of /v1/models: what it knows, what may be asked, and whether it begins by itself.

    Only models that come with the package begin by themselves: they answer at once on any machine.
    """
    if not speaks_tales(model):
        return {"knows": None, "examples": [], "at_once": False}
    assert model.tokenizer is not None
    sizes = {what: len(DEFAULT.variables[variable].phrases) for what, variable in _KINDS.items()}
    kinds = ", ".join(f"{size} {what}" for what, size in sizes.items())
    knows = (
        f"This model has read short stories of {model.tokenizer.vocab_size} words, and knows no others: {kinds}, and "
        "what happens between them."
    )
    return {"knows": knows, "examples": list(_PROMPTS), "at_once": name in builtin_names()}


def _network(model: Model) -> dict[str, Any]:
    network = model.network
    weights = list(network.parameters())
    return {
        "type": "dit" if isinstance(network, DiT) else "llada",
        "blocks": network.config.num_blocks,
        "width": network.config.hidden_dim,
        "heads": network.config.num_heads,
        "parameters": sum(one.numel() for one in weights),
        "dtypes": sorted({str(one.dtype).removeprefix("torch.") for one in weights}),
    }


def _process(model: Model) -> dict[str, Any] | None:
    process = model.process
    if process is None:
        return None
    facts = {"type": type(process).__name__, "alpha": process.schedule.kind}
    if isinstance(process, MultiMask):
        facts |= {"rho": process.schedule.rho, "tied_noise": process.tied_noise, "noise_shown": process.noise_shown}
    return facts


def _tokenizer(model: Model) -> dict[str, Any] | None:
    tokenizer = model.tokenizer
    if tokenizer is None:
        return None
    return {"name": _name(tokenizer.name), "tokens": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    """A run by a recipe, or an import; what a checkpoint does not say, or says oddly, is left out."""
    recipe = _section(step, "recipe")
    data, train = _section(recipe, "data"), _section(recipe, "train")
    facts = {
        "command": "import" if "imported" in step else step.get("command"),
        "recipe": step.get("name"),
        "imported": step.get("imported"),
        "data": data.get("kind") if data.get("path") is None else data.get("path"),
        "teacher": _section(recipe, "quantile").get("teacher"),
        "steps": step.get("steps"),
        "batch_size": train.get("batch_size"),
        "seed": train.get("seed"),
    }
    kept = {name: _name(value) if isinstance(value, str) else value for name, value in facts.items()}
    return {name: value for name, value in kept.items() if isinstance(value, str | int)}


def _section(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}


def _name(name: str) -> str:
    """A name on the Hub, or any other, as it is; of a path, the last part that tells something."""
    text = name.replace("\\", "/")
    if text.startswith((".", "/", "~")) or text.count("/") > 1 or text[1:3] == ":/":
        parts = [part for part in text.split("/") if part not in ("", ".", "..", "~")]
        name = "/".join(parts[-2:-1] if parts[-1:] == ["model"] and len(parts) > 1 else parts[-1:])
    return inert(name)[:_LONGEST]
