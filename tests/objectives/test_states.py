"""States that samplers meet: how many of each kind, at which times, what is shown in them and what is asked."""

import dataclasses

import pytest
import torch
from torch import Tensor

from multimdm.models import DiT, show_noise
from multimdm.objectives import Batch, Shares, stratified_times
from multimdm.objectives.base import Network
from multimdm.objectives.settings import Kind
from multimdm.objectives.states import States, divide, draw_states
from multimdm.process import Generator, Mixture, MultiMask, Schedule, Streams, Time
from multimdm.process.tied import TiedPath
from support.distilling import L, V, network
from support.statistics import MUTANT, REJECT, p_of_draws

M, B = 3, 40
PROCESS = MultiMask(V, M, Schedule(rho=0.6)).tied(noise_shown=True)
KINDS = Shares(at_one=0.2, surest=0.25, drafts=0.1)
ALL = Shares(at_one=0.2, surest=0.25, drafts=0.1, prompts=0.5)
PROMPTED = pytest.mark.parametrize("shares", [KINDS, ALL], ids=["no prompts", "prompts"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])


def seeing() -> DiT:
    """A network that sees the noise."""
    net = show_noise(network(PROCESS))
    with torch.no_grad():
        net.vocab_embed.embedding.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(4))
    return net.eval()


NETWORK = seeing()


class Counted:
    """A network that remembers what it was called on."""

    def __init__(self) -> None:
        self.shown: list[Mixture] = []

    def __call__(self, x_t, t, positions, valid, reduce):
        self.shown.append(x_t)
        return NETWORK(x_t, t, positions, valid, reduce)


def batch(padded: bool = False, num: int = B, seed: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, V, (num, L), generator=generator)
    noise = PROCESS.prior((num, L), generator)
    valid = torch.arange(L) < torch.arange(num)[:, None] % L + 1 if padded else None
    times = stratified_times(num, torch.Generator().manual_seed(seed))
    return Batch(ids, valid, times, Streams.spawn(3, num), x_1=noise)


def drawn(given: Batch, shares: Shares = ALL, net: Network = NETWORK) -> States:
    return draw_states(net, given.path(PROCESS), given, shares)


def of_kind(states: States, kind: Kind) -> list[int]:
    rows = (states.kind == kind).nonzero()[:, 0].tolist()
    assert rows, f"there must be some {kind.name}"
    return rows


def noise_of(given: Batch) -> Tensor:
    assert given.x_1 is not None
    return given.x_1


def lengths(given: Batch) -> list[int]:
    return [L] * len(given.ids) if given.valid is None else given.valid.sum(1).tolist()


def beginning(states: States, row: int) -> int:
    """How many tokens are given; they are the first."""
    if states.given is None:
        return 0
    number = int(states.given[row].sum())
    assert states.given[row].tolist() == [place < number for place in range(L)]
    return number


# ------------------------------------------------------------------- shares


@pytest.mark.parametrize(
    "shares",
    [
        Shares(),
        Shares(0.0),
        ALL,
        Shares(0.1, 0.2, 0.3, 0.4),
        Shares(at_one=0.0, drafts=0.1),
        Shares(0.0, 0.7),
        Shares(at_one=0.3, surest=0.6, drafts=0.1),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_kind_has_its_share_exactly_and_times_of_its_own(shares, seed):
    """Within a kind the times are one in each of n equal intervals again: the batch is divided, not thinned out."""
    kind, t = divide(shares, stratified_times(B, torch.Generator().manual_seed(seed)))
    counts = {each: int((kind == each).sum()) for each in Kind}
    assert counts == {each: round(B * shares.of(each)) for each in Kind}
    assert sum(counts.values()) == B
    for each in (Kind.MASKS, Kind.SUREST):
        own, num = t[kind == each].sort().values, counts[each]
        assert bool(((own > 0) & (own <= 1)).all())
        places = torch.arange(num)
        assert bool(((own >= places / num - 1e-9) & (own <= (places + 1) / num + 1e-9)).all())
    assert bool((t[kind == Kind.AT_ONE] == 1).all())
    assert bool((t[kind == Kind.DRAFTS] == 0).all())


def test_times_of_a_kind_are_uniform():
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kind, t = divide(ALL, u)
    assert p_of_draws(kind, torch.tensor([ALL.of(each) for each in Kind])) > REJECT
    assert p_of_draws(kind, torch.tensor([0.40, 0.25, 0.15, 0.2])) < MUTANT
    for each in (Kind.MASKS, Kind.SUREST):
        tenths = (10 * t[kind == each]).long().clamp_max(9)
        assert p_of_draws(tenths, torch.full((10,), 0.1)) > REJECT
    assert p_of_draws((10 * u[kind == Kind.SUREST]).long(), torch.full((10,), 0.1)) < MUTANT


def test_shares_above_one_are_refused():
    Shares(0.5, 0.25, 0.25, prompts=1.0)
    Shares(0.1, 0.2, 0.7)  # 1 but for rounding
    message = r"must not exceed 1 together, .*; got at_one 0\.5, surest 0\.3, drafts 0\.3, prompts 0"
    with pytest.raises(ValueError, match=message):
        Shares(0.5, surest=0.3, drafts=0.3)
    with pytest.raises(ValueError, match=r"nor prompts by itself; got .* prompts 1\.5"):
        Shares(prompts=1.5)
    with pytest.raises(ValueError, match=r"drafts -0\.1"):
        Shares(0.5, drafts=-0.1)


# ---------------------------------------------------------------- beginnings


@PADDED
def test_a_beginning_is_given_without_the_noise_behind_it(padded):
    """In states of every kind; the rest is as it would be without, and one token at least is left to be made."""
    given = batch(padded)
    states = drawn(given)
    assert states.given is not None
    shown = given.path(PROCESS).shown(states.x_t, states.given)
    assert isinstance(shown, Mixture)
    long = {kind: 0 for kind in Kind}
    for row in range(B):
        number = beginning(states, row)
        long[Kind(int(states.kind[row]))] += number
        assert number < lengths(given)[row]
        assert torch.equal(states.x_t[row, :number], given.ids[row, :number])
        assert not bool(states.asked[row, :number].any())
        assert shown.weights[row, :, 1].tolist() == [float(place >= number) for place in range(L)]
        assert torch.equal(shown.ids[row, number:, 1], noise_of(given)[row, number:] + M)
    assert all(long.values())
    assert bool((shown.weights[..., 0] == 1).all())
    without = drawn(batch(padded), KINDS)
    assert without.given is None
    assert torch.equal(without.t, states.t)
    for kind in (Kind.MASKS, Kind.AT_ONE):  # others are guessed from what is given
        rows = states.kind == kind
        assert torch.equal(torch.where(states.given, without.x_t, states.x_t)[rows], without.x_t[rows])


def test_beginnings_of_all_lengths_are_equally_frequent():
    num = 20_000
    ids = torch.zeros((num, L), dtype=torch.long)
    times = torch.full((num,), 0.1, dtype=torch.float64)
    given = Batch(ids, None, times, Streams.spawn(3, num), x_1=torch.full_like(ids, V))
    states = drawn(given, Shares(0.0, prompts=0.4))
    assert states.given is not None
    law = torch.full((L,), 0.4 / L)
    law[0] += 0.6
    assert p_of_draws(states.given.sum(1), law) > REJECT
    law = torch.full((L,), 0.45 / L)
    law[0] += 0.55
    assert p_of_draws(states.given.sum(1), law) < MUTANT


# ------------------------------------------------------------------- guesses


@torch.no_grad()
def plain_guess(given: Batch, row: int, number: int) -> tuple[Tensor, Tensor]:
    """Of one sequence by itself, with its beginning given: the most probable tokens, and their probabilities."""
    end, ids, length = noise_of(given)[row], given.ids[row], lengths(given)[row]
    place = torch.arange(L)
    shown = Mixture(
        torch.stack([torch.ones(L), (place >= number).float()], dim=-1)[None],
        torch.stack([torch.where(place < number, ids, end), end + M], dim=-1)[None],
    )
    valid = (place < length)[None] if length < L else None
    logits = NETWORK(shown, torch.ones(1, dtype=torch.float64), None, valid)
    assert isinstance(logits, Tensor)
    most = logits[0].softmax(-1).max(-1)
    return most.indices, most.values


@PADDED
@PROMPTED
def test_the_surest_positions_show_the_texts_own_tokens(shares, padded):
    given = batch(padded)
    states, seen, wrong = drawn(given, shares), 0, 0
    for row in of_kind(states, Kind.SUREST):
        length, number = lengths(given)[row], beginning(states, row)
        guess, sure = plain_guess(given, row, number)
        free = sorted(range(number, length), key=lambda place: -float(sure[place]))
        num = round((1 - float(states.t[row])) * len(free))
        known = {*range(number), *free[:num]}
        expected = torch.where(
            torch.tensor([place in known for place in range(L)]), given.ids[row], noise_of(given)[row]
        )
        assert torch.equal(states.x_t[row], expected)
        assert states.asked[row].tolist() == [place < length and place not in known for place in range(L)]
        seen, wrong = seen + num, wrong + int((guess != given.ids[row])[free[:num]].sum())
    assert seen > 5
    assert wrong > 0, "guesses must be wrong somewhere, or they could not be told from the text"


@PADDED
@PROMPTED
def test_whole_drafts_are_asked_for_again(shares, padded):
    given = batch(padded)
    states = drawn(given, shares)
    for row in of_kind(states, Kind.DRAFTS):
        length, number = lengths(given)[row], beginning(states, row)
        assert states.x_t[row, number:length].tolist() == plain_guess(given, row, number)[0][number:length].tolist()
        assert states.asked[row].tolist() == [number <= place < length for place in range(L)]
        assert float(states.t[row]) == 0


# ------------------------------------------------------------------- masks


@PADDED
def test_at_one_everything_is_noise_and_asked_for(padded):
    given = batch(padded)
    states = drawn(given, KINDS)
    for row in of_kind(states, Kind.AT_ONE):
        assert torch.equal(states.x_t[row], noise_of(given)[row])
        assert states.asked[row].tolist() == [place < lengths(given)[row] for place in range(L)]


def test_random_masks_have_the_law_of_the_path():
    """Hidden positions are at x_1 or at the designated mask, as often as the schedule says."""
    num, token = 30_000, torch.tensor(4)
    ids, noise = torch.full((num, L), 4), torch.full((num, L), V + 2)
    times = torch.full((num,), 0.18, dtype=torch.float64)  # of 0.45 that are masks
    states = drawn(Batch(ids, None, times, Streams.spawn(3, num), x_1=noise), KINDS)
    assert bool((states.kind == Kind.MASKS).all())
    assert float(states.t[0]) == pytest.approx(0.4)
    assert int(PROCESS.designated_mask(token)) != V + 2

    def law(t: float) -> Tensor:
        values, p = PROCESS.schedule(t), torch.zeros(V + M, dtype=torch.float64)
        p[token] = values.alpha
        p[PROCESS.designated_mask(token)] = values.one_minus_alpha * values.beta
        p[V + 2] = values.one_minus_alpha * values.one_minus_beta
        return p

    assert p_of_draws(states.x_t, law(0.4)) > REJECT
    assert p_of_draws(states.x_t, law(0.42)) < MUTANT
    assert torch.equal(states.asked, states.x_t >= V)


def test_masks_are_drawn_at_the_time_that_is_told():
    """However small: a weight 1 / t would be much too large for masks of a later time."""
    asked = []

    class Watched(TiedPath):
        def corrupt(self, x_0: Tensor, t: Time, generator: Generator = None) -> Tensor:
            asked.append(t)
            return super().corrupt(x_0, t, generator)

    given = dataclasses.replace(batch(), times=torch.logspace(-12, -0.1, B, dtype=torch.float64))
    states = draw_states(NETWORK, Watched(PROCESS, noise_of(given)), given, ALL)
    assert float(states.t[0]) < 1e-11
    assert torch.equal(asked[0], states.t)


# ------------------------------------------------------------------ padding


def test_padding_is_never_asked_for():
    given = batch(padded=True)
    assert given.valid is not None
    for shares in (ALL, Shares(0.5), Shares(0.0, prompts=1.0), Shares(0.0, surest=0.9), Shares(0.0, drafts=0.9)):
        states = drawn(given, shares)
        assert not bool((states.asked & ~given.valid).any())
        assert states.given is None or not bool((states.given & ~given.valid).any())


# ------------------------------------------------------- parts of the batch


def part_of(given: Batch, rows: slice) -> Batch:
    num, valid = len(given.ids[rows]), given.valid
    return Batch(
        given.ids[rows],
        None if valid is None else valid[rows],
        given.times[rows],
        Streams.spawn(3, num, rows.start),
        x_1=noise_of(given)[rows],
    )


@PADDED
@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_state_does_not_depend_on_how_the_batch_is_divided(padded, size):
    given = batch(padded)
    together, without_guesses = drawn(given), 0
    for start in range(0, B, size):
        rows, net = slice(start, min(start + size, B)), Counted()
        part = drawn(part_of(given, rows), net=net)
        for name in ("x_t", "t", "kind", "asked", "given"):
            assert torch.equal(getattr(part, name), getattr(together, name)[rows]), name
        # Ranks wait for each other: every part runs the network once, even if it has nothing to guess.
        assert len(net.shown) == 1
        guessing = (part.kind == Kind.SUREST) | (part.kind == Kind.DRAFTS)
        without_guesses += not bool(guessing.any())
        assert len(net.shown[0].ids) == max(1, int(guessing.sum()))
    assert without_guesses > 0 or size == 17


def test_without_such_shares_the_network_is_not_asked():
    net = Counted()
    drawn(batch(), Shares(0.25, prompts=0.25), net)
    assert net.shown == []


def test_guesses_take_no_gradient():
    class Watched(Counted):
        def __call__(self, x_t, t, positions, valid, reduce):
            assert not torch.is_grad_enabled()
            return super().__call__(x_t, t, positions, valid, reduce)

    net = Watched()
    drawn(batch(), net=net)
    assert len(net.shown) == 1
