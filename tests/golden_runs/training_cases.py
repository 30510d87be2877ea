"""Twenty steps of every system and objective: what is kept are losses and norms of gradients, step by step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multimdm.training.building import adapt_job, distill_job, pretrain_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe
from support.runs import TINY, metrics, tiny, tiny_distillation

STEPS = 20
_TRAIN = {"steps": STEPS, "batch_size": 4}
_LOG = {"checkpoint_every": STEPS, "validate_every": 0, "validation_sequences": 2}

PRETRAIN: Mapping[str, Mapping[str, Any]] = {
    "mdlm": {"system": "mdlm"},
    "mdlm, cosine, time": {"system": "mdlm", "process": {"alpha": "cosine"}, "network": {"conditioning": "time"}},
    "multimdm": {"system": "multimdm"},
    "multimdm, context readout": {"system": "multimdm", "process": {"num_masks": 5, "readout": "context", "rho": 0.5}},
    "multimdm, random masks": {"system": "multimdm", "process": {"num_masks": 5, "assignment": "random"}},
    "mdlm, marginal mistakes, late": {
        "system": "mdlm",
        "context": {"by": "marginal"},
        "train": {"times": {"density": "late"}},
    },
    "multimdm, own mistakes, bell": {
        "system": "multimdm",
        "context": {"by": "own", "share": 0.5},
        "train": {"times": {"density": "bell", "weight": "density"}},
    },
    "duo": {"system": "duo"},
    "duo, curriculum": {"system": "duo", "relaxation": {"share": 0.5}},
    "candi": {"system": "candi"},
    "ar": {"system": "ar"},
    "mdlm, micro-batches": {"system": "mdlm", "train": {"micro_batch": 2}},
}

ADAPT: Mapping[str, Mapping[str, Any]] = {
    "copies": {},
    "token rows, context readout": {"mask_rows": "tokens", "process": {"num_masks": 5, "readout": "context"}},
    "clustered, uniform mistakes": {
        "mask_rows": "noise",
        "process": {"num_masks": 5, "assignment": "clustered"},
        "context": {"by": "uniform"},
    },
}

_ROUNDS = {"delta": 0.25, "rounds": 2, "mu": 0.5}
DISTILL: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gumbel, one mask": ("mdlm", {"consistency": {**_ROUNDS}}),
    "gumbel": ("multimdm", {"consistency": {**_ROUNDS}}),
    "gumbel, forward, smoothed": (
        "multimdm",
        {"consistency": {**_ROUNDS, "divergence": "forward_kl", "visible_target": "smoothed"}},
    ),
    "markov, copies of the student": (
        "multimdm",
        {"consistency": {**_ROUNDS, "coupling": "markov", "teacher": "rounds", "visible_target": "cross_entropy"}},
    ),
    "independent": (
        "multimdm",
        {"consistency": {**_ROUNDS, "coupling": "independent", "visible_target": "cross_entropy"}},
    ),
    "gaussian": ("duo", {"consistency": {**_ROUNDS, "coupling": "gaussian"}}),
    "gumbel, uniform states": ("duo", {"consistency": {**_ROUNDS}}),
    "sdtt, one mask": ("mdlm", {"sdtt": {"delta": 0.125, "rounds": 2}}),
    "sdtt": ("multimdm", {"sdtt": {"delta": 0.125, "rounds": 2, "divergence": "tvd"}}),
    "sdtt, uniform states": ("duo", {"sdtt": {"delta": 0.125, "rounds": 2}}),
}

COUPLE: Mapping[str, Mapping[str, Any]] = {
    "own teacher, all states": {"at_one": 0.25, "surest": 0.25, "drafts": 0.25, "prompts": 0.5},
    "exact teacher": {"quantile": {"teacher": "tales", "order": "neighbours"}, "weight": "even"},
    # By id: the axes of untrained embeddings are a matter of rounding, and with them the line of similar tokens.
    "texts of the teacher": {"quantile": {"texts": "teacher", "order": "id", "size": 16, "reuse": 2}},
}


def names() -> list[str]:
    """Of all cases."""
    kinds = {"pretrain": PRETRAIN, "adapt": ADAPT, "distill": DISTILL, "couple": COUPLE}
    return [f"{kind}: {name}" for kind, cases in kinds.items() for name in cases]


def course(name: str, starts: Mapping[str, Path], out: Path) -> list[list[float]]:
    """Loss and norm of the gradient in every step of a case."""
    train(_job(name, starts), out, quiet=True)
    records = metrics(out)
    assert len(records) == STEPS
    return [[record["loss"], record["gradient_norm"]] for record in records]


def _job(name: str, starts: Mapping[str, Path]) -> Job:
    kind, case = name.split(": ")
    if kind == "pretrain":
        sections = _with(PRETRAIN[case], "train", _TRAIN)
        return pretrain_job(parse_recipe(tiny(**_with(sections, "log", _LOG)), PretrainRecipe, name), "golden")
    if kind == "adapt":
        data = _continued(starts["mdlm"], ADAPT[case])
        data.setdefault("process", {"num_masks": 5})
        return adapt_job(parse_recipe(data, AdaptRecipe, name), "golden")
    if kind == "couple":
        return couple_job(parse_recipe(_coupled(starts["ar"], COUPLE[case]), CoupleRecipe, name), "golden")
    system, sections = DISTILL[case]
    data = tiny_distillation(starts[system], **_with(_with(sections, "train", _TRAIN), "log", _LOG))
    if "sdtt" in sections:
        data.pop("consistency", None)
    return distill_job(parse_recipe(data, DistillRecipe, name), "golden")


def _coupled(init: Path, sections: Mapping[str, Any]) -> dict[str, Any]:
    data = _continued(init, sections)
    data.setdefault("process", {"num_masks": 8, "rho": 20.0})
    return data


def _continued(init: Path, sections: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of training and records of the tiny recipe, from a checkpoint."""
    train_settings = {**TINY["train"], **_TRAIN}
    return {"init": str(init), "train": train_settings, "log": {**TINY["log"], **_LOG}, **sections}


def _with(sections: Mapping[str, Any], name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of which one has some values more."""
    return {**sections, name: {**values, **sections.get(name, {})}}
