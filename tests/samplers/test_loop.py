"""The loop: K calls, active positions only, finished sequences leave, fixed positions stay, randomness per sequence."""

import pytest
import torch

from multimdm.process import Mixture, MultiMask, Process, Streams, Uniform, debug_checks
from multimdm.samplers import (
    Ancestral,
    Choice,
    Confidence,
    LeftToRight,
    Rewrite,
    Step,
    Trace,
    generate,
    generate_autoregressive,
    time_grid,
)
from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER

B, L, V = 6, 9, 11


class Recorder:
    """A network of fixed random tables that writes down what it was asked; its logits depend on the whole row."""

    def __init__(self, vocab_size: int = V, num_states: int = 2 * V, sharpness: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(0)
        self.own = sharpness * torch.randn(num_states, L + 1, vocab_size, generator=generator, dtype=torch.float64)
        self.calls: list[dict] = []

    def __call__(self, x, t, positions, valid, reduce):
        if isinstance(x, Mixture):
            rows = (x.weights[..., None] * self.own[x.ids, torch.arange(x.ids.shape[1])[:, None]]).sum(-2)
            x = x.ids[..., 0]
        else:
            rows = self.own[x, torch.arange(x.shape[1])]  # [B, L, V]
        self.calls.append({"x": x.clone(), "t": t, "positions": positions, "valid": valid})
        seen = rows if valid is None else rows * valid[..., None]
        logits = rows + seen.cumsum(1) / 2
        packed = logits[positions]
        return reduce(packed, slice(0, len(packed)))


PROCESSES: dict[str, Process] = {"M=1": MultiMask(V, 1), "M=4": MultiMask(V, 4), "uniform": Uniform(V)}
SHOWN = MultiMask(V, 4).tied(noise_shown=True)
STEPS: dict[str, Step] = {
    "ancestral": Ancestral(time_grid("uniform", 5)),
    "cosine, top-p": Ancestral(time_grid("cosine", 5), Choice(0.8, 0.9)),
    "greedy": Ancestral(time_grid("uniform", 5), Choice(0)),
    "greedy last": Ancestral(time_grid("uniform", 5), greedy_last=True),
    "corrector": Ancestral(time_grid("uniform", 5), corrector=0.3),
    "confidence": Confidence(5),
    "blocks": Confidence(5, block_length=3),
    "threshold": Confidence(5, block_length=4, threshold=0.7),
    "left to right": LeftToRight(5, threshold=0.5),
}
BOTH = [
    pytest.param(process, step, id=f"{name}, {kind}")
    for name, process in PROCESSES.items()
    for kind, step in STEPS.items()
    if process.num_masks or (isinstance(step, Ancestral) and not step.revises)
] + [
    pytest.param(SHOWN, step, id=f"shown, {kind}")
    for kind, step in {**STEPS, "rewrite": Rewrite(5), "rewrite, greedy": Rewrite(5, Choice(0))}.items()
    if kind != "corrector"
]
EVERY = pytest.mark.parametrize(("process", "step"), BOTH)


def nothing() -> torch.Tensor:
    return torch.zeros(B, L, dtype=torch.long)


def some_given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, fixed positions and padding, different in every row; the last row has nothing to be made."""
    generator = torch.Generator().manual_seed(3)
    given = torch.randint(0, V, (B, L), generator=generator)
    fixed = torch.rand(B, L, generator=generator) < 0.4
    fixed[-1] = True
    valid = torch.arange(L) < torch.tensor([9, 7, 9, 8, 5, 9])[:, None]
    return given, fixed, valid


@EVERY
def test_no_mask_is_left_and_the_trace_tells_all(process, step):
    network = Recorder()
    seen = []
    with debug_checks():
        result = generate(
            network,
            process,
            step,
            nothing(),
            generator=Streams.spawn(1, B),
            trace=True,
            watch=lambda done, steps, x: seen.append((done, steps, x.clone())),
        )
    assert int(result.ids.max()) < V
    assert isinstance(result.trace, Trace)
    states, times = result.trace.states, result.trace.times
    assert states.shape == (6, B, L)
    assert times.shape == (6, B)
    assert bool((times.diff(dim=0) <= 0).all())
    assert float(times[0].min()) == 1
    assert float(times[-1].abs().max()) == 0
    assert torch.equal(states[-1], result.ids)
    if process.num_masks:
        assert bool(process.active(states[0]).all())
    assert [(done, steps) for done, steps, _ in seen] == [(k, 5) for k in range(1, 6)]
    assert all(torch.equal(x, state) for (_, _, x), state in zip(seen, states[1:], strict=True))


@EVERY
def test_calls_are_counted_and_the_head_runs_where_it_must(process, step):
    network = Recorder()
    result = generate(network, process, step, nothing(), generator=Streams.spawn(1, B))
    assert result.nfe == len(network.calls) <= 5
    assert int(result.calls.sum()) == sum(len(call["x"]) for call in network.calls)
    for call in network.calls:
        active = process.active(call["x"])
        if isinstance(step, Rewrite):
            assert bool(call["positions"].all())
        elif isinstance(step, Confidence):
            assert bool((call["positions"] <= active).all())
        else:
            assert torch.equal(call["positions"], active)
        if process.num_masks and not step.revises:
            assert bool(active.any(1).all())  # who is finished has left


@pytest.mark.parametrize("steps", [1, 2, 7, 32])
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_the_steps_are_exactly_so_many_calls(process, steps):
    """With enough positions that something is always left to be done."""
    wide = torch.zeros(40, L, dtype=torch.long)
    network = Recorder()
    result = generate(network, process, Ancestral(time_grid("uniform", steps)), wide, generator=Streams.spawn(0, 40))
    assert len(network.calls) == result.nfe == steps
    assert [call["t"] for call in network.calls] == [pytest.approx(1 - k / steps) for k in range(steps)]


@EVERY
def test_fixed_positions_and_padding_stay(process, step):
    given, fixed, valid = some_given()
    network = Recorder()
    result = generate(network, process, step, given, fixed, valid, Streams.spawn(1, B), trace=True)
    kept = fixed | ~valid
    assert result.trace is not None
    assert bool((result.trace.states[:, kept] == given[kept]).all())
    assert int(result.ids.max()) < V
    assert int(result.calls[-1]) == 0  # nothing to make in the last row
    for call in network.calls:
        assert call["valid"].shape == call["x"].shape
        assert not bool((call["positions"] & ~call["valid"]).any())
    assert bool((result.ids != given)[~kept].any())


@EVERY
def test_a_sequence_does_not_depend_on_its_neighbours(process, step):
    """Together, in two halves, alone, and beside others that are finished sooner."""
    given, fixed, valid = some_given()
    together = generate(Recorder(), process, step, given, fixed, valid, Streams.spawn(5, B), trace=True)
    assert together.trace is not None
    for start, end in ((0, 3), (3, 6), (2, 3)):
        rows = slice(start, end)
        part = generate(
            Recorder(),
            process,
            step,
            given[rows],
            fixed[rows],
            valid[rows],
            Streams.spawn(5, end - start, first=start),
            trace=True,
        )
        assert part.trace is not None
        assert torch.equal(part.ids, together.ids[rows])
        assert torch.equal(part.trace.states, together.trace.states[:, rows])
        assert torch.equal(part.trace.times, together.trace.times[:, rows])


def test_finished_sequences_leave_and_change_nothing():
    process, step = MultiMask(V, 4), Ancestral(time_grid("uniform", 30))
    network = Recorder()
    result = generate(network, process, step, nothing(), generator=Streams.spawn(2, B))
    sizes = [len(call["x"]) for call in network.calls]
    assert sizes[0] == B
    assert len(set(sizes)) > 2  # they left one by one
    assert sorted(sizes, reverse=True) == sizes
    for row in range(B):
        alone = generate(Recorder(), process, step, nothing()[:1], generator=Streams.spawn(2, 1, first=row))
        assert torch.equal(alone.ids[0], result.ids[row])
        assert alone.nfe == int(result.calls[row])


def test_equal_seeds_give_equal_results_and_others_do_not():
    process, step = MultiMask(V, 4), Ancestral(time_grid("uniform", 4))
    first, again, other = (
        generate(Recorder(sharpness=0.3), process, step, nothing(), generator=Streams.spawn(seed, B)).ids
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_given_noise_stands_for_the_priors_draw():
    process, step = PROCESSES["M=4"], STEPS["ancestral"]
    noise = process.prior((B, L), Streams.spawn(9, B))
    made = generate(Recorder(), process, step, nothing(), generator=Streams.spawn(1, B), trace=True, x_1=noise)
    assert made.trace is not None
    assert torch.equal(made.trace.states[0], noise)


@pytest.mark.unchecked
def test_noise_of_another_shape_is_refused():
    process = MultiMask(V, 4)
    with pytest.raises(ValueError, match="x_1"):
        generate(Recorder(), process, STEPS["ancestral"], nothing(), x_1=process.prior((B, L - 1)))


def test_kinds_of_states():
    process = MultiMask(4, 2)  # masks 4 and 5, by parity
    states = torch.tensor([[[4, 5, 4]], [[4, 4, 3]], [[0, 1, 3]]])
    kinds = Trace(states, torch.zeros(3, 1)).kinds(process)
    assert kinds[:, 0].tolist() == [[DESIGNATED, DESIGNATED, OTHER], [DESIGNATED, OTHER, CLEAN], [CLEAN] * 3]
    kinds = Trace(torch.tensor([[[2, 1]], [[0, 1]]]), torch.zeros(2, 1)).kinds(Uniform(4))
    assert kinds[:, 0].tolist() == [[OTHER, CLEAN], [CLEAN, CLEAN]]


def test_no_gradient_is_kept():
    table = torch.nn.Parameter(torch.zeros(V))

    def network(x, t, positions, valid, reduce):
        assert not torch.is_grad_enabled()
        return reduce(table.expand(int(positions.sum()), V), slice(0, int(positions.sum())))

    result = generate(network, MultiMask(V, 2), Ancestral((1.0, 0.0)), nothing())
    assert not result.ids.is_inference()  # may be trained on


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given": torch.zeros(B, L)}, "given must be an integer tensor"),
        ({"given": torch.zeros(0, L, dtype=torch.long)}, "given must be a table"),
        ({"fixed": torch.zeros(B, L)}, "fixed must be a bool tensor"),
        ({"fixed": torch.zeros(B, L - 1, dtype=torch.bool)}, "fixed and given must have the same shape"),
        ({"valid": torch.zeros(B, dtype=torch.bool)}, "valid and given must have the same shape"),
        ({"generator": Streams.spawn(0, B + 1)}, "generator must have one stream per sequence, 6; got 7"),
        (
            {"given": torch.full((B, L), V), "fixed": torch.ones(B, L, dtype=torch.bool)},
            "given must hold clean tokens, 0..10, where it is fixed or padding; it does not at 54 positions",
        ),
    ],
)
def test_bad_input(change, message):
    arguments = {"given": nothing(), "fixed": None, "valid": None, "generator": None} | change
    network = Recorder()
    with pytest.raises(ValueError, match=message):
        generate(network, MultiMask(V, 1), Ancestral((1.0, 0.0)), **arguments)
    assert not network.calls


# ------------------------------------------------------------------------------ autoregressive


def test_autoregressive():
    """Every token is drawn from the logits at its index, which have seen the start symbol and what is before."""
    network = Recorder(num_states=V + 1)
    result = generate_autoregressive(network, V, nothing(), generator=Streams.spawn(0, B), trace=True)
    assert result.nfe == len(network.calls) == L
    assert int(result.ids.max()) < V
    for place, call in enumerate(network.calls):
        assert bool((call["x"][:, 0] == V).all())
        assert torch.equal(call["x"][:, 1:], result.ids[:, :place])
        assert bool(call["positions"][:, -1].all())
        assert int(call["positions"].sum()) == B
    assert result.trace is not None
    assert bool((result.trace.states[0] == V).all())
    assert torch.equal(result.trace.states[-1], result.ids)
    halves = [
        generate_autoregressive(network, V, nothing()[:3], generator=Streams.spawn(0, 3, first=i)).ids for i in (0, 3)
    ]
    assert torch.equal(torch.cat(halves), result.ids)


def test_autoregressive_greedy_after_a_prompt():
    given, fixed = nothing(), torch.zeros(B, L, dtype=torch.bool)
    given[:, :3], fixed[:, :3] = 7, True
    network = Recorder(num_states=V + 1)
    result = generate_autoregressive(network, V, given, fixed, Choice(0))
    assert result.nfe == len(network.calls) == L - 3
    assert bool((result.ids[:, :3] == 7).all())
    logits = network.own[torch.tensor([V, 7, 7, 7]), torch.arange(4)]
    expected = (logits + logits.cumsum(0) / 2)[-1].argmax()
    assert bool((result.ids[:, 3] == expected).all())
    without = generate_autoregressive(network, V, given, fixed, Choice(0, never=(int(expected),)))
    assert not bool((without.ids == expected).any())
