"""Import and export of checkpoints of other projects, as files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from multimdm._files import read_json
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import LLaDA
from multimdm.models.foreign import Kind, export_settings, export_tensors, import_tensors
from multimdm.models.lora import merge
from multimdm.pipeline.files import new_directory, read_lightning, read_safetensors
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.model import Model
from multimdm.pipeline.settings import ForeignSettings
from multimdm.process import MultiMask, Uniform


def import_checkpoint(
    source: Path, kind: Kind, mask_id: int | None = None, tokenizer: Tokenizer | None = None
) -> Model:
    """A model from a directory in the Hub's layout, its name on the Hub, or a Lightning .ckpt file."""
    source = local_directory(source)
    if source.is_dir():
        settings, averaged = foreign_settings(source / "config.json"), False
        tensors = read_safetensors(source / "model.safetensors")
    elif source.suffix == ".ckpt" and source.exists():
        settings = {}
        tensors, averaged = read_lightning(source)
    else:
        raise ValueError(f"{source} must be a directory with config.json and model.safetensors, or a .ckpt file")
    foreign = import_tensors(tensors, kind, settings, mask_id)
    V = foreign.network.config.vocab_size
    # GPT-2's DUO has one more state than its tokenizer has tokens, [PAD]; more than that is another vocabulary.
    if tokenizer is not None and not 0 <= V - tokenizer.vocab_size <= 1:
        raise ValueError(
            f"tokenizer '{tokenizer.name}' has {tokenizer.vocab_size} tokens, the checkpoint {V}: it is another one's"
        )
    return Model(
        network=foreign.network,
        tokenizer=tokenizer,
        process=Uniform(V) if kind == "duo" else MultiMask(V, 1),
        foreign=ForeignSettings(kind, foreign.mask_id, foreign.dtypes),
        leftover=foreign.leftover,
        lineage=({"imported": kind, "from": source.name, "weights": "moving average" if averaged else "as stored"},),
    )


def foreign_settings(path: Path) -> dict[str, Any]:
    """What import needs of the Hub's config.json, checked."""
    wanted = {"model_length": int, "dropout": (int, float), "time_conditioning": bool}
    settings = {name: value for name, value in read_json(path).items() if name in wanted}
    for name, value in settings.items():
        if not isinstance(value, wanted[name]) or (name == "model_length" and value < 1):
            raise ValueError(f"{path}: {name} has a value that makes no sense: {value!r}")
    return settings


def export_checkpoint(model: Model, out: Path) -> None:
    """Write the Hub's layout: `backbone.*` in model.safetensors, and config.json.

    A LLaDA network is written in its own layout, whole: an adapter is merged into its weights.
    """
    if isinstance(model.network, LLaDA):
        network = merge(model.network) if model.network.adapter is not None else model.network
        replace(model, network=network).save(out)
        return
    foreign = model.as_foreign()
    tensors = export_tensors(foreign)
    with new_directory(out) as directory:
        (directory / "config.json").write_text(json.dumps(export_settings(foreign), indent=1) + "\n", encoding="utf-8")
        save_file(tensors, directory / "model.safetensors")
