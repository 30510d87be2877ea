"""The quickstart in seconds: the shipped scale with fewer steps, stories and samples."""

from pathlib import Path

from multimdm.reproduce.quickstart import Quickstart
from multimdm.reproduce.running import Request, open_experiment
from support.tiny_reproduction import write_yaml

TINY = {
    "like": "quickstart",
    "steps": [1, 4],
    "temperatures": [1.0, 0.8],
    "samples": 3,
    "set": {"train.batch_size": 4, "log.validation_sequences": 8, "log.checkpoint_every": 2},
    "runs": {
        "mdlm-start": {"set": {"train.steps": 10, "train.warmup": 1, "log.validate_every": 100}},
        "multimdm": {"set": {"train.steps": 5, "train.warmup": 0, "log.validate_every": 100}},
        "multimdm-distilled": {"set": {"train.steps": 5, "train.warmup": 0}},
        "ar": {"set": {"train.steps": 6, "train.warmup": 0}},
        "quantile": {"set": {"train.steps": 14, "train.warmup": 1}},
    },
}


def tiny_quickstart(out: Path, seed: int) -> Quickstart:
    """All of it, in a directory of its own."""
    out.mkdir(parents=True, exist_ok=True)
    scale = write_yaml(out / "tiny.yaml", TINY)
    experiment = open_experiment(Request("quickstart", scale, 1, out, first_seed=seed, flat=True))
    assert isinstance(experiment, Quickstart)
    return experiment
