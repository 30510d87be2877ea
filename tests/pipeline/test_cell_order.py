"""The line of the vocabulary that a model with quantile noise has learnt: saved, loaded, and checked."""

from dataclasses import replace

import pytest
import torch

from multimdm import load
from multimdm.pipeline.files import write_safetensors
from support.tiny_models import shown_tales_model


def test_it_is_saved_and_loaded(tmp_path):
    model = shown_tales_model(length=12)
    model.save(tmp_path / "plain")
    assert load(tmp_path / "plain").cell_order is None
    order = torch.randperm(model.network.config.vocab_size, generator=torch.Generator().manual_seed(0))
    replace(model, cell_order=order).save(tmp_path / "model")
    found = load(tmp_path / "model").cell_order
    assert found is not None
    assert torch.equal(found, order)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"other": torch.zeros(3)}, "lacks the tensor 'order'"),
        ({"order": torch.arange(405)}, "every token, at most 404, a place of its own"),
        ({"order": torch.arange(404).view(4, 101)}, "a place of its own"),
        ({"order": torch.zeros(404, dtype=torch.long)}, "a place of its own"),
        ({"order": torch.arange(404).float()}, "a place of its own"),
    ],
)
def test_a_table_that_is_no_order_is_refused(tensors, message, tmp_path):
    shown_tales_model(length=12).save(tmp_path / "model")
    write_safetensors(tensors, tmp_path / "model" / "cells.safetensors")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model")
