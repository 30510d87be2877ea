"""The arithmetic of training by formula is that which torch counts; names of GPUs are known as drivers give them."""

from typing import Any

import pytest
import torch

from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Elbo
from multimdm.objectives.candi import Candi
from multimdm.process import Hybrid, MultiMask, Streams, Uniform
from multimdm.training.counting import arithmetic, without_contents
from multimdm.training.engine import has_fused_adamw
from multimdm.training.gpus import GPUS, flops_per_token, known_gpu, share_asked, utilisation

L, V = 64, 211


@pytest.mark.parametrize("asked", [1.0, 0.5])
def test_flops_per_token_are_those_that_torch_counts(asked):
    with without_contents(asked):
        network = DiT(DiTConfig(vocab_size=V, num_masks=1, hidden_dim=64, num_blocks=3, num_heads=4, max_length=L))
        with arithmetic() as counter:
            ids = torch.zeros(2, L, dtype=torch.long)
            network(ids, 0.5, torch.ones_like(ids, dtype=torch.bool)).sum().backward()
        counted = counter.get_total_flops() / (2 * L)
        assert flops_per_token(network, L, asked) == pytest.approx(counted, rel=0.1)


def test_frozen_weights_and_teachers():
    network = DiT(DiTConfig(vocab_size=V, num_masks=1, hidden_dim=64, num_blocks=3, num_heads=4, max_length=L))
    trained = flops_per_token(network, L, 1.0)
    assert flops_per_token(network, L, 1.0, teacher_calls=1) == pytest.approx(trained * 4 / 3)
    assert flops_per_token(network, L, 1.0, teacher_calls=2) == pytest.approx(trained * 5 / 3)
    network.requires_grad_(False)
    assert flops_per_token(network, L, 1.0) < trained


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla V100-SXM2-16GB", None),
    ],
)
def test_gpus_are_known_by_what_drivers_call_them(name, kind):
    assert known_gpu(name) == (None if kind is None else GPUS[kind])


@pytest.mark.parametrize(
    "objective",
    [Elbo(MultiMask(V, 3)), Candi(Hybrid(V, noise_dim=16)), Elbo(Uniform(V))],
    ids=["masks", "candi", "duo"],
)
def test_networks_are_asked_at_the_share_of_positions_that_is_reckoned_with(objective):
    asked = []

    def network(x, t, positions, valid=None, reduce: Any = None):
        asked.append(positions.float().mean())
        return reduce(torch.zeros(int(positions.sum()), V, requires_grad=True), slice(0, int(positions.sum())))

    B = 400
    times = (torch.arange(B, dtype=torch.float64) + 0.5) / B
    objective(network, Batch(torch.zeros(B, L, dtype=torch.long), None, times, Streams.spawn(0, B)))
    assert float(asked[0]) == pytest.approx(share_asked(objective.process), abs=0.02)


def test_adamw_is_fused_wherever_shards_can_be():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert has_fused_adamw(cpu, sharded=False)
    assert has_fused_adamw(gpu, sharded=True)
    assert not has_fused_adamw(cpu, sharded=True)


def test_utilisation_is_the_share_of_the_peak(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    assert utilisation(989e12, 2.0, torch.device("cuda")) == pytest.approx(0.5)
    assert utilisation(989e12, 2.0, torch.device("cpu")) is None
