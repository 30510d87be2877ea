"""Consistency along paths to a given x_1, against plain sums; what a designated mask tells is never infinite."""

import pytest
import torch

from multimdm.objectives import Batch, Consistency, ConsistencySettings
from multimdm.objectives.coupling import couple
from multimdm.process import MultiMask, Schedule, Streams, Uniform
from support.distilling import L, V, network
from support.tabular import as_function

B = 40
PROCESS = MultiMask(V, 3, Schedule(rho=0.6)).tied()


def given() -> Batch:
    ids = torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(1))
    x_1 = PROCESS.prior((B, L), torch.Generator().manual_seed(2))
    times = torch.linspace(0.05, 0.95, B, dtype=torch.float64)
    return Batch(ids, None, times, Streams.spawn(3, B), x_1=x_1)


@pytest.mark.parametrize("kind", ["reverse_kl", "forward_kl"])
@pytest.mark.parametrize("visible", ["skip", "cross_entropy"])
def test_the_loss_is_the_plain_sum(kind, visible):
    settings = ConsistencySettings(delta=0.25, rounds=1, coupling="anchored", divergence=kind, visible_target=visible)
    student, teacher, batch = network(PROCESS), network(PROCESS, seed=1), given()
    objective = Consistency(PROCESS, settings, teacher)
    s = batch.times * 0.75
    t = s + 0.25
    path = batch.path(PROCESS)
    assert path.x_1 is not None
    x_s, x_t = couple(path, batch.ids, s, t, "anchored", batch.generator)
    sums = objective.compare(as_function(student), batch, x_s, s, x_t, t, path)
    matching = revealed = 0.0
    cases = {"same": 0, "named": 0, "visible": 0}
    own, theirs = student(x_t, t).detach(), teacher(x_s, s).detach()
    for i in range(B):
        for place in range(L):
            state, earlier, end, clean = (int(x[i, place]) for x in (x_t, x_s, path.x_1, batch.ids))
            if state < V:
                continue
            here = PROCESS.path_to(torch.tensor(end))
            p = here.condition(own[i, place], torch.tensor(state), float(t[i])).softmax(-1)
            if earlier < V:
                cases["visible"] += 1
                revealed -= float(p[clean].log()) if visible != "skip" else 0.0
                continue
            q = here.condition(theirs[i, place], torch.tensor(earlier), float(s[i])).softmax(-1)
            if earlier != end and state == end:  # the designated mask shows at s alone
                cases["named"] += 1
                revealed -= float(p[q > 0].sum().log())
            else:
                cases["same"] += 1
            p = torch.where(q > 0, p, 0.0) / p[q > 0].sum()
            kept = q > 0
            ratio = (p[kept] / q[kept]).log()
            matching += float((p[kept] * ratio).sum() if kind == "reverse_kl" else -(q[kept] * ratio).sum())
    assert min(cases.values()) > 10, cases
    assert float(sums.terms["matching"]) == pytest.approx(matching, rel=1e-8)
    assert float(sums.terms["revealed"]) == pytest.approx(revealed, rel=1e-8)
    assert bool(sums.loss.isfinite())


def test_the_two_states_lie_on_one_path_to_the_given_end():
    batch = given()
    path = batch.path(PROCESS)
    assert path.x_1 is not None
    ones, halves = torch.ones(B, dtype=torch.float64), torch.full((B,), 0.5, dtype=torch.float64)
    x_s, x_t = couple(path, batch.ids, halves, ones, "anchored", batch.generator)
    assert torch.equal(x_t, path.x_1)
    home = PROCESS.designated_mask(batch.ids)
    assert bool(((x_s == batch.ids) | (x_s == home) | (x_s == path.x_1)).all())


def test_without_noise_of_its_own_a_batch_gets_uniform_ends():
    settings = ConsistencySettings(delta=0.25, rounds=1, coupling="anchored")
    batch = given()
    free = Batch(batch.ids, None, batch.times, batch.generator)
    loss = Consistency(PROCESS, settings, network(PROCESS, seed=1))(network(PROCESS), free).loss
    assert bool(loss.isfinite())
    loss.backward()


def test_bad_pairs():
    with pytest.raises(ValueError, match="coupling anchored is for masks"):
        Consistency(Uniform(V), ConsistencySettings(coupling="anchored"))
    with pytest.raises(ValueError, match=r"coupling must be anchored .* and for no other; got gumbel"):
        Consistency(PROCESS, ConsistencySettings(coupling="gumbel"))
    with pytest.raises(ValueError, match=r"coupling must be anchored .* and for no other; got anchored"):
        Consistency(MultiMask(V, 3), ConsistencySettings(coupling="anchored"))
    batch = given()
    with pytest.raises(ValueError, match="x_1 must be given for coupling anchored"):
        couple(MultiMask(V, 3).path_to(), batch.ids, batch.times / 2, batch.times, "anchored", batch.generator)
