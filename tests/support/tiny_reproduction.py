"""A scale and specifications that take seconds."""

from pathlib import Path
from typing import Any

import yaml

SMALL = {
    "network.hidden_dim": 16,
    "network.num_blocks": 1,
    "network.num_heads": 2,
    "network.cond_dim": 8,
}
SHORT = {
    "train.batch_size": 2,
    "train.warmup": 1,
    "log.every": 1,
    "log.validate_every": 0,
    "log.validation_sequences": 2,
    "log.validation_draws": 1,
    "log.sample_every": 0,
    "log.checkpoint_every": 2,
    "log.keep": 1,
    "log.tensorboard": False,
}
SCALE: dict[str, Any] = {
    "about": "Nothing is learnt.",
    "data": "tales",
    "judges": ["tales"],
    "steps": [1, 2],
    "temperatures": [1.0, 0.7],
    "samples": 4,
    "recall_strings": 40,
    "runs": {
        "start": {
            "command": "pretrain",
            "recipe": "tales-mdlm",
            "set": {**SMALL, **SHORT, "network.copying_start": False, "train.steps": 3},
        },
        "many": {
            "command": "adapt",
            "recipe": "tales-multimdm-cont",
            "start": "start",
            "set": {**SHORT, "train.steps": 2, "process.num_masks": 3},
        },
        "one": {"like": "many", "set": {"process.num_masks": 1, "conditioning": "none"}},
        "straight": {"like": "start", "set": {"train.steps": 5}},
        "many-again": {"like": "many"},
        "many-distilled": {
            "command": "distill",
            "recipe": "tales-distill-gumbel",
            "start": "many",
            "set": {**SHORT, "train.steps": 5},
        },
    },
}
SPEC: dict[str, Any] = {
    "title": "One mask or many",
    "shows": "nothing of the paper",
    "models": {"MDLM": "one", "MultiMDM": "many-again", "straight on": "straight", "distilled": "many-distilled"},
    "published": {
        "tiny": {"entropy-aligned": {"MDLM": [12.5, 3.25]}},
        "huge": {"temperature-aligned": {"MDLM": [7.0]}},
    },
}


def write_yaml(path: Path, data: dict[str, Any]) -> str:
    """As a file; its path."""
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return str(path)


def tiny_files(folder: Path, *labels: str) -> tuple[str, str]:
    """Specification and scale; of all models, or of those with these labels."""
    models = {label: SPEC["models"][label] for label in labels or SPEC["models"]}
    spec = {**SPEC, "models": models}
    return write_yaml(folder / "masks.yaml", spec), write_yaml(folder / "tiny.yaml", SCALE)
