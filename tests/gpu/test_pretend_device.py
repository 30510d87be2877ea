"""The pretend GPU computes what the CPU computes, refuses what a GPU refuses, and counts what a GPU would do."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from multimdm.evaluation.judges.causal_lm import arithmetic
from pretend_gpu import DeviceMismatchError, PretendTensor, pretend_gpu


def test_results_and_gradients_are_those_of_the_cpu():
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4), torch.randn(3, 6)
    expected = layer(x).log_softmax(-1)[:, 0].sum()
    expected.backward()
    assert layer.weight.grad is not None
    slope = layer.weight.grad.clone()
    layer.zero_grad()
    with pretend_gpu():
        layer.to("cuda:0")
        y = layer(x.to("cuda:0")).log_softmax(-1)[:, 0].sum()
        y.backward()
        assert isinstance(layer.weight, PretendTensor)
        assert y.device == layer.weight.device == torch.device("cuda", 0)
        assert torch.equal(y.cpu(), expected)
        assert torch.equal(layer.weight.grad.cpu(), slope)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: torch.where(cpu > 0, gpu, gpu),
        lambda gpu, cpu: gpu @ cpu,
        lambda gpu, cpu: cpu.gather(1, gpu.long()),
        lambda gpu, cpu: torch.cat([gpu, cpu]),
        lambda gpu, cpu: cpu.add_(gpu),
    ],
)
def test_mixed_devices_are_refused(mixed):
    with pretend_gpu():
        gpu, cpu = torch.ones(3, 3, device="cuda:0"), torch.ones(3, 3)
        with pytest.raises(DeviceMismatchError, match="mixes tensors of cuda:0"):
            mixed(gpu, cpu)
        assert torch.equal((gpu + torch.tensor(2.0)).cpu(), cpu + 2), "numbers of the host are welcome"


def test_a_generator_of_the_host_is_refused():
    with pretend_gpu(), pytest.raises(DeviceMismatchError, match="generator of the host"):
        torch.rand(3, device="cuda:0", generator=torch.Generator())


@pytest.mark.parametrize(
    ("waiting", "times"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: bool((x > 0).all()), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x.to("cpu"), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: torch.empty(3, 3).copy_(x), 1),
        (lambda x: x * 2 + x.sum(), 0),
        (lambda x: x[torch.zeros(2, dtype=torch.long, device="cuda:0")], 0),
        (lambda x: x.to(torch.float64).to("cuda:0"), 0),
    ],
)
def test_waits_are_counted(waiting, times):
    with pretend_gpu() as counts:
        x = torch.ones(3, 3, device="cuda:0")
        counts.reset()
        waiting(x)
        assert sum(counts.waits.values()) == times, counts.waits


def test_copies_from_the_host_are_counted():
    with pretend_gpu() as counts:
        x = torch.ones(3).to("cuda:0")
        torch.tensor([1, 2], device="cuda:0")
        assert torch.as_tensor(x, dtype=torch.float64).is_cuda
        x[torch.tensor([0, 1])]
        x.copy_(torch.zeros(3))
        assert sum(counts.uploads.values()) == 4
        assert not counts.waits


@pytest.mark.parametrize(
    ("work", "launches", "moved"),
    [
        (lambda x: x + x, 1, 3 * 400),
        (lambda x: x.mul_(2), 1, 2 * 400),
        (lambda x: x.fill_(2), 1, 400),
        (lambda x: x.sum(), 1, 400 + 4),
        (lambda x: x.T.unflatten(0, (2, 5)), 0, 0),
        (lambda x: torch.empty_like(x), 0, 0),
        (lambda x: torch.exp(x, out=torch.empty_like(x)), 1, 2 * 400),
        (lambda x: x + x[:1, :1].expand(10, 10), 1, 2 * 400 + 4),
        (lambda x: x.gather(1, torch.zeros_like(x[:, :1], dtype=torch.long)), 2, 80 + 80 + 2 * 40),
    ],
)
def test_launches_and_bytes(work, launches, moved):
    with pretend_gpu() as counts:
        x = torch.ones(10, 10, device="cuda:0")
        counts.reset()
        work(x)
        assert sum(counts.launches.values()) == launches
        assert counts.bytes == moved


def test_autocast_takes_matrix_products_to_bfloat16():
    with pretend_gpu(), torch.autocast("cuda", torch.bfloat16):
        weight = torch.ones(4, 3, device="cuda:0", requires_grad=True)
        y = F.linear(torch.ones(2, 3, device="cuda:0"), weight)
        assert y.dtype == torch.bfloat16
        y.float().sum().backward()
        assert weight.grad is not None
        assert weight.grad.dtype == torch.float32


def test_judges_multiply_in_bfloat16_on_a_gpu_alone():
    products = []
    for device in ("cpu", "cuda:0"):
        with pretend_gpu(), torch.no_grad():
            x = torch.ones(2, 2, device=device)
            with arithmetic(torch.device(device)):
                products.append((x @ x).dtype)
    assert products == [torch.float32, torch.bfloat16]


def test_float64_kernels_are_counted():
    with pretend_gpu() as counts:
        torch.ones(2, device="cuda:0").double()
        assert counts.doubles == 1


def test_a_pretend_tensor_needs_its_device():
    with pretend_gpu():
        x = torch.ones(2, device="cuda:0")
    with pytest.raises(RuntimeError, match="outside of pretend_gpu"):
        _ = x + 1
