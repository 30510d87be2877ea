"""Small LLaDA networks with random weights, and their checkpoints in the published layout."""

import hashlib
import json
from pathlib import Path

import torch

from multimdm.data.tokenizer import Tokenizer
from multimdm.models import LLaDA, LLaDAConfig
from multimdm.models.llada_config import published
from multimdm.pipeline import Model
from multimdm.pipeline.shards import write_shards
from multimdm.process import MultiMask

VOCABULARY, MASK = 40, 36
SPARE = (37, 38, 39)
"""Ids that no text has."""


def tiny_config(**changes) -> LLaDAConfig:
    settings = {
        "vocab_size": VOCABULARY,
        "mask_rows": (MASK,),
        "num_rows": VOCABULARY,
        "hidden_dim": 32,
        "num_blocks": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "mlp_dim": 48,
        "max_length": 64,
    }
    return LLaDAConfig(**{**settings, **changes})


def tiny_llada(seed: int = 0, **changes) -> LLaDA:
    """Weights large enough for predictions to differ."""
    network = LLaDA(tiny_config(**changes)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights.normal_(0.0, 0.3, generator=generator)
    return network


def write_llada(
    directory: Path, network: LLaDA, tokenizer: Tokenizer | None = None, shard_bytes: int = 10**9, **config
) -> Path:
    """The published layout, with nothing of ours in it but the tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**published(network.config), **config}))
    write_shards({f"model.transformer.{k}": v for k, v in network.state_dict().items()}, directory, shard_bytes)
    if tokenizer is not None:
        tokenizer.save(directory)
    return directory


def chat_tokenizer(template: str | None = None) -> Tokenizer:
    """Characters, with the ends of text and turn that LLaDA has; 36 ids, so that the mask comes next."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    specials = ["<|startoftext|>", "<|endoftext|>", "<|eot_id|>", "<unk>"]
    letters = "0123456789+= abcdefghijklmnopqr:\n"[: MASK - len(specials)]
    vocabulary = {token: number for number, token in enumerate([*specials, *letters])}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", fuse_unk=False))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(specials)
    roles = {"bos": specials[0], "eos": specials[1], "pad": specials[1], "unk": specials[3]}
    return Tokenizer(backend.to_str(), roles, "letters", chat_template=template)


def llada_of(model: Model) -> LLaDA:
    """The network, which must be LLaDA's."""
    assert isinstance(model.network, LLaDA)
    return model.network


def masks_of(model: Model) -> MultiMask:
    """The process, which must have masks."""
    assert isinstance(model.process, MultiMask)
    return model.process


def weights_hash(network: LLaDA) -> str:
    """Of all weights, whatever has been attached to them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def files_hash(directory: Path) -> str:
    """Of everything in a directory."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
