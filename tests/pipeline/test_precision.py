"""The arithmetic that a checkpoint is opened in."""

from typing import Any

import pytest
import torch

import multimdm
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.store import Store
from multimdm.evaluation.subject import Subject
from multimdm.models.arithmetic import has_bfloat16, set_up
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from support.tiny_models import TALES, tiny_dit

L = 12


@pytest.fixture
def checkpoint(tmp_path):
    V = TALES.vocab_size
    Model(tiny_dit(V, 2, L), MultiMask(V, 2), None).save(tmp_path / "model")
    return tmp_path / "model"


def logits(model: Model) -> torch.Tensor:
    ids = torch.full((2, L), TALES.vocab_size)
    with torch.no_grad():
        return model.network(ids, 0.7)


def test_products_in_bfloat16_and_weights_in_float32(checkpoint):
    exact, half = multimdm.load(checkpoint), multimdm.load(checkpoint, precision="bfloat16")
    assert torch.equal(logits(multimdm.load(checkpoint, precision="float32")), logits(exact))
    assert {x.dtype for x in half.network.parameters()} == {torch.float32}
    assert logits(half).dtype == torch.bfloat16
    torch.testing.assert_close(logits(half).float(), logits(exact), rtol=0.05, atol=0.05)
    assert not torch.equal(logits(half).float(), logits(exact))


def test_head_and_body_alone_compute_in_it_too(checkpoint):
    network = multimdm.load(checkpoint, precision="bfloat16").network
    ids = torch.full((1, L), TALES.vocab_size)
    with torch.no_grad():
        both = network.logits(network.features(ids, 0.7))
        reduced = network(ids, 0.7, torch.ones_like(ids, dtype=torch.bool), None, lambda part, rows: part)
    assert both.dtype == torch.bfloat16
    assert torch.equal(both[0], reduced)


def test_results_in_another_arithmetic_are_remembered_apart(checkpoint, tmp_path):
    store = Store(tmp_path / "points")
    opened = [
        Subject.open(str(checkpoint), None, Drawing(), store, "cpu", precision).fingerprint
        for precision in ("auto", "float32", "bfloat16")
    ]
    assert len(set(opened)) == 3


def test_emulated_bfloat16_is_refused_and_not_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert not has_bfloat16(torch.device("cuda"))
    assert has_bfloat16(torch.device("cpu"))
    with pytest.raises(ValueError, match="only emulates it; use float32 or tf32"):
        set_up("bfloat16", torch.device("cuda"))


@pytest.mark.parametrize(("precision", "on"), [("tf32", True), ("float32", False)])
def test_tf32_is_switched_for_the_program(precision, on):
    products: Any = torch.backends.cuda.matmul
    convolutions: Any = torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    try:
        products.allow_tf32 = not on
        set_up(precision, torch.device("cuda"))
        assert products.allow_tf32 == on
        set_up("auto", torch.device("cuda"))  # says nothing
        assert products.allow_tf32 == on
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
