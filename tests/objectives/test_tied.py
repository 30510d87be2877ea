"""The objective along paths that end in a given x_1, against plain formulas and laws."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.models import show_noise
from multimdm.objectives import Batch, Shares, Tied, stratified_times
from multimdm.objectives.settings import Kind
from multimdm.objectives.states import draw_states
from multimdm.process import MultiMask, Schedule, Streams
from support.distilling import L, V, network
from support.statistics import MUTANT, REJECT, p_of_draws
from support.tabular import as_function

B = 64
PROCESS = MultiMask(V, 3, Schedule(rho=0.6)).tied()


def batch(noise: Tensor | None = None, valid: Tensor | None = None, ids: Tensor | None = None) -> Batch:
    if ids is None:
        ids = torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(1))
    times = stratified_times(len(ids), torch.Generator().manual_seed(2))
    return Batch(ids, valid, times, Streams.spawn(3, len(ids)), x_1=noise)


class Watched:
    """A network that remembers what it was shown."""

    def __init__(self, inner) -> None:
        self.inner = inner

    def __call__(self, x_t, t, positions, valid, reduce):
        self.x_t, self.t, self.positions = x_t, t, positions
        return self.inner(x_t, t, positions, valid, reduce)


@pytest.mark.parametrize("weight", ["elbo", "even"])
@pytest.mark.parametrize("at_one", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("padded", [False, True])
def test_the_loss_is_the_weighted_cross_entropy_given_state_and_end(weight, at_one, padded):
    noise = PROCESS.prior((B, L), torch.Generator().manual_seed(7))
    valid = torch.arange(L) < torch.arange(1, B + 1)[:, None] % L + 1 if padded else None
    net = network(PROCESS)
    watched, given = Watched(as_function(net)), batch(noise, valid)
    sums = Tied(PROCESS, Shares(at_one), weight)(watched, given)
    x_t, t = watched.x_t, watched.t
    assert int((t == 1).sum()) == at_one * B
    assert bool((x_t == noise)[t == 1].all())
    elsewhere = (x_t == given.ids) | (x_t == PROCESS.designated_mask(given.ids)) | (x_t == noise)
    assert bool(elsewhere.all())
    expected, parts = 0.0, {"draft": 0.0, "path": 0.0}
    logits = net(x_t, t, None, valid).detach()
    for i in range(B):
        for place in range(L):
            if x_t[i, place] < V or (valid is not None and not valid[i, place]):
                continue
            told = PROCESS.path_to(noise[i, place]).condition(logits[i, place], x_t[i, place], float(t[i]))
            scale = 1.0 if weight == "even" or t[i] == 1 else 1 / float(t[i])  # alpha = 1 - t
            loss = scale * float(F.cross_entropy(told, given.ids[i, place]))
            expected += loss
            parts["draft" if t[i] == 1 else "path"] += loss
    assert float(sums.loss.detach()) == pytest.approx(expected, rel=1e-9)
    shares = {"draft": at_one, "path": 1 - at_one}
    assert set(sums.terms) == {name for name, share in shares.items() if share}
    for name, value in sums.terms.items():
        assert float(value) == pytest.approx(parts[name] / shares[name], rel=1e-9)


KINDS = {Kind.AT_ONE: "draft", Kind.MASKS: "path", Kind.SUREST: "surest", Kind.DRAFTS: "rewrite"}


@pytest.mark.parametrize("weight", ["elbo", "even"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("prompts", [0.0, 0.5])
def test_with_states_of_every_kind_the_loss_is_a_plain_sum(weight, padded, prompts):
    """What is asked, at the weight of its kind and time; and each kind by itself, per share of the batch."""
    process, shares = PROCESS.tied(noise_shown=True), Shares(0.25, surest=0.25, drafts=0.125, prompts=prompts)
    noise = process.prior((B, L), torch.Generator().manual_seed(7))
    valid = torch.arange(L) < torch.arange(1, B + 1)[:, None] % L + 1 if padded else None
    net = show_noise(network(process))
    with torch.no_grad():
        net.vocab_embed.embedding.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(8))
    watched = Watched(net)
    sums = Tied(process, shares, weight)(watched, batch(noise, valid))
    given = batch(noise, valid)
    states = draw_states(net, given.path(process), given, shares)
    assert torch.equal(watched.t, states.t)
    assert torch.equal(watched.positions, states.asked)
    shown = given.path(process).shown(states.x_t, states.given)
    assert all(torch.equal(one, other) for one, other in zip(watched.x_t, shown, strict=True))
    logits = net(shown, states.t, None, valid).detach()
    expected, parts, counts = 0.0, dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
    for i, place in states.asked.nonzero().tolist():
        kind = Kind(int(states.kind[i]))
        scale = 1 / float(states.t[i]) if weight == "elbo" and kind == Kind.MASKS else 1.0  # alpha = 1 - t
        loss = -scale * float(logits[i, place].log_softmax(-1)[given.ids[i, place]])
        expected, parts[kind], counts[kind] = expected + loss, parts[kind] + loss, counts[kind] + 1
    assert min(counts.values()) > 0
    assert float(sums.loss.detach()) == pytest.approx(expected, rel=1e-9)
    assert set(sums.terms) == set(KINDS.values())
    for kind, name in KINDS.items():
        assert float(sums.terms[name]) == pytest.approx(parts[kind] / shares.of(kind), rel=1e-9)


def test_drafts_alone_teach_the_text_from_its_draft():
    """Weights that would be infinite at t = 0 are not used, and no gradient is lost."""
    process = PROCESS.tied(noise_shown=True)
    net = show_noise(network(process))
    sums = Tied(process, Shares(0.0, drafts=1.0))(net, batch())
    sums.loss.backward()
    assert all(bool(x.grad is not None and x.grad.isfinite().all()) for x in net.parameters())
    assert set(sums.terms) == {"rewrite"}


def equal_texts() -> Batch:
    """All of one token, at one time."""
    ids = torch.full((30_000, L), 4)
    return Batch(ids, None, torch.full((len(ids),), 0.3, dtype=torch.float64), Streams.spawn(3, len(ids)))


def test_without_matching_the_states_have_the_law_of_the_process():
    """All of one token at one time: what the network is shown follows p_t(. | x_0)."""
    watched = Watched(as_function(network(PROCESS)))
    Tied(PROCESS, Shares(at_one=0.25))(watched, equal_texts())
    assert float(watched.t[0]) == pytest.approx(0.4)
    law = PROCESS.marginal(torch.tensor(4), watched.t[0])
    assert p_of_draws(watched.x_t, law) > REJECT
    assert p_of_draws(watched.x_t, PROCESS.marginal(torch.tensor(4), watched.t[0] + 0.02)) < MUTANT


def test_without_matching_neighbours_are_independent():
    watched = Watched(as_function(network(PROCESS)))
    Tied(PROCESS, Shares(at_one=0.25))(watched, equal_texts())
    law = PROCESS.marginal(torch.tensor(4), watched.t[0])
    assert p_of_draws(watched.x_t[:, 0] * len(law) + watched.x_t[:, 1], (law[:, None] * law).flatten()) > REJECT


def test_the_gradient_reaches_the_network():
    net = network(PROCESS)
    Tied(PROCESS)(net, batch()).loss.backward()
    assert all(bool(x.grad is not None and x.grad.isfinite().all()) for x in net.parameters())
    rows = net.vocab_embed.embedding.grad
    assert rows is not None
    assert float(rows[V:].abs().sum()) > 0
