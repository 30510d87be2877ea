"""A small adapter of LLaDA with weights that do something."""

from pathlib import Path

import torch

import multimdm
from multimdm.models import Adapter, LLaDA
from multimdm.models.llada_masks import appended_rows, expand_llada, reserved_rows
from multimdm.models.lora import attach, trained_names
from multimdm.pipeline import Model
from multimdm.pipeline.llada import base_digest
from multimdm.process import MultiMask, Schedule, random_balanced
from support.tiny_llada import SPARE, VOCABULARY

M = 4


def adapted(base: Path, place: str = "reserved") -> Model:
    """A model with an adapter that has learnt something, on this base."""
    start = multimdm.load(base)
    assert isinstance(start.network, LLaDA)
    config = start.network.config
    rows = reserved_rows(config, M, SPARE) if place == "reserved" else appended_rows(config, M)
    adapter = Adapter(rank=2, alpha=4.0, base=str(base), base_digest=base_digest(base))
    network = attach(expand_llada(start.network, rows), adapter)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in trained_names(network):
            network.get_parameter(name).normal_(0.0, 0.2, generator=generator)
    process = MultiMask(VOCABULARY, M, Schedule(0.5, "cosine"), random_balanced(VOCABULARY, M, 3))
    return Model(network.eval(), process, start.tokenizer, lineage=({"command": "adapt"},))
