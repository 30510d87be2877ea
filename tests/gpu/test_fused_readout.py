"""What a GPU reads of logits is what the reference reads of log-probabilities, and so are the gradients."""

import pytest
import torch

from multimdm.objectives.divergence import _FusedDivergence, divergence
from multimdm.process import fused_readout, places, readout
from multimdm.process.assignment import Groups
from multimdm.process.draws import draw_token, invert_cdf
from pretend_gpu import pretend_gpu

N, V, M = 7, 23, 4


def logits(seed: int = 0) -> torch.Tensor:
    """Two tokens are impossible everywhere."""
    table = 3 * torch.randn(N, V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    table[:, [5, 11]] = -torch.inf
    return table.requires_grad_()


def tokens(seed: int) -> torch.Tensor:
    return torch.randint(12, V, (N,), generator=torch.Generator().manual_seed(seed))


def assert_same(fused, reference):
    """Values, and gradients for random slopes of all that is returned."""
    results = []
    for function in (fused, reference):
        table = logits()
        values = function(table)
        generator = torch.Generator().manual_seed(9)
        slopes = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in values]
        (gradient,) = torch.autograd.grad(values, table, slopes)
        results.append((*(x.detach() for x in values), gradient))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_picked():
    clean = tokens(1)
    assert_same(
        lambda table: (fused_readout.picked(table, clean),),
        lambda table: (readout.picked(table.log_softmax(-1), clean),),
    )


@pytest.mark.parametrize("assignment", ["modulo", "random"])
def test_group_masses(assignment):
    order = torch.arange(V) if assignment == "modulo" else torch.randperm(V, generator=torch.Generator().manual_seed(0))
    groups, clean = Groups(order % M, M), tokens(1)
    assert (groups.whole is None) == (assignment == "random")
    assert_same(
        lambda table: fused_readout.group_masses(table, clean, groups),
        lambda table: readout.group_masses(table.log_softmax(-1), clean, groups),
    )


@pytest.mark.parametrize("same", [False, True])
def test_log1p_sum(same):
    clean, odds = tokens(1), torch.logspace(-3, 5, N, dtype=torch.float64)
    state = clean if same else tokens(2)
    assert_same(
        lambda table: fused_readout.log1p_sum(table, clean, state, odds),
        lambda table: readout.log1p_sum(table.log_softmax(-1), clean, state, odds),
    )


@pytest.mark.parametrize("kind", ["reverse_kl", "forward_kl", "mse", "tvd"])
def test_divergences(kind):
    teacher = logits(3).detach()
    assert_same(
        lambda table: (_FusedDivergence.apply(table, teacher, kind),),
        lambda table: (divergence(kind, table, teacher.log_softmax(-1)),),
    )


@pytest.mark.parametrize("columns", [23, 600])
def test_draws_are_those_of_the_reference(columns):
    generator = torch.Generator().manual_seed(0)
    table = 3 * torch.randn(200, columns, generator=generator)
    u = torch.rand(200, dtype=torch.float64, generator=generator)
    expected = invert_cdf(table.softmax(-1), u)
    assert torch.equal(draw_token(table, u), expected)
    with pretend_gpu() as counts:
        drawn = draw_token(table.to("cuda:0"), u.to("cuda:0"))
        assert any("_block_sums" in name for name in counts.launches)
        assert torch.equal(drawn.cpu(), expected)


def test_one_graph_serves_all_numbers_of_rows(monkeypatch):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(places, "_compiled", lambda function, any_shape: torch.compile(function, backend=backend))
    clean = torch.zeros(9, dtype=torch.long)
    function = fused_readout._read_picked.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    torch._dynamo.reset()
    for rows in (2, 5, 9):
        table = torch.randn(rows, V)
        picked, _ = places.run_compiled(function, (table, clean[:rows]), False)
        torch.testing.assert_close(picked, table.log_softmax(-1)[:, 0])
    assert len(graphs) == 1


def test_nothing_is_compiled_on_a_cpu(monkeypatch):
    monkeypatch.setattr(places, "has_compiler", lambda: True)
    assert not places.fuses(torch.ones(3, 3))
