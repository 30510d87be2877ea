"""Sequences that join and leave at different times come out as if each had been made alone."""

import pytest
import torch

from multimdm.process import Mixture, MultiMask, Streams, Uniform
from multimdm.samplers import Ancestral, Choice, Confidence, LeftToRight, Rewrite, generate, time_grid
from multimdm.samplers.joint import Draft, advance, begin

V = 11


class Causal:
    """Logits that depend on the sequence up to the position and on its time; it counts calls."""

    def __init__(self) -> None:
        self.table = torch.randn(3 * V, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self.calls = 0

    def __call__(self, x, t, positions, valid, reduce):
        self.calls += 1
        time = torch.as_tensor(t, dtype=torch.float32).expand(len(positions)).double()
        rows = (x.weights[..., None] * self.table[x.ids]).sum(2) if isinstance(x, Mixture) else self.table[x]
        logits = (rows.cumsum(1) * (1 + time[:, None, None]))[positions]
        half = len(logits) // 2  # two chunks, as a large head makes them
        parts = [
            reduce(logits[rows], rows) for rows in (slice(0, half), slice(half, len(logits))) if rows.start < rows.stop
        ]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))


STEPS = {
    "four": Ancestral(time_grid("uniform", 4)),
    "six": Ancestral(time_grid("uniform", 6)),
    "cosine": Ancestral(time_grid("cosine", 3), Choice(0.7, 0.9)),
    "greedy": Ancestral(time_grid("uniform", 5), Choice(0)),
    "confident": Confidence(3),
    "confident too": Confidence(5),
    "confident and greedy": Confidence(4, Choice(0)),
    "blocks": Confidence(4, block_length=3),
    "left to right": LeftToRight(4),
    "left to right too": LeftToRight(7),
    "left to right and greedy": LeftToRight(5, Choice(0), 0.5),
    "greedy last": Ancestral(time_grid("uniform", 5), greedy_last=True),
    "greedy last too": Ancestral(time_grid("uniform", 3), greedy_last=True),
}
REWRITES = {
    "rewrite": Rewrite(4),
    "rewrite too": Rewrite(6),
    "rewrite boldly": Rewrite(6, Choice(0.5, 0.9, 4, never=(1, 2))),
    "rewrite greedily": Rewrite(6, Choice(0)),
}


def canvas(length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    given = torch.randint(0, V, (2, length), generator=generator)
    return given, torch.rand(2, length, generator=generator) < 0.3


@pytest.mark.parametrize(
    "process",
    [
        MultiMask(V, 1),
        MultiMask(V, 4),
        MultiMask(V, 4, readout="context"),
        MultiMask(V, 4, tied_noise=True),
        MultiMask(V, 4).tied(True),
        Uniform(V),
    ],
    ids=["M=1", "M=4", "context", "tied", "shown", "uniform"],
)
def test_together_is_as_alone(process):
    network = Causal()
    steps = [step for step in STEPS.values() if process.num_masks or isinstance(step, Ancestral)]
    steps += REWRITES.values() if isinstance(process, MultiMask) and process.noise_shown else []
    alone, waiting, calls = [], [], []
    for seed, step in enumerate(steps):
        given, fixed = canvas(5 + seed, seed)
        made = generate(network, process, step, given, fixed, generator=Streams.spawn(seed, 2))
        alone += list(made.ids)
        calls += made.calls.tolist()
        waiting += begin(process, given, ~fixed, step, seed)
    number = {id(draft): place for place, draft in enumerate(waiting)}
    running: list[tuple[int, Draft]] = []
    done: dict[int, Draft] = {}
    network.calls, ticks = 0, 0
    while waiting or running:
        running += [(number[id(draft)], draft) for draft in waiting[:3]]  # three join at every tick
        del waiting[:3]
        results = advance(network, process, [draft for _, draft in running], top=2)
        ticks += 1
        assert all(result.top is not None and result.top.ids.shape[1] == 2 for result in results)
        places = [place for place, _ in running]
        done |= {p: r.draft for p, r in zip(places, results, strict=True) if r.finished}
        running = [(p, r.draft) for p, r in zip(places, results, strict=True) if not r.finished]
    assert network.calls == ticks
    assert all(torch.equal(done[place].x, ids) for place, ids in enumerate(alone))
    assert [done[place].k for place in range(len(alone))] == calls


def test_time_and_calls_are_told():
    process = MultiMask(V, 3)
    given, fixed = canvas(6, 0)
    (draft, *_) = begin(process, given, ~fixed, Ancestral(time_grid("uniform", 2)), 0)
    assert draft.time == 1
    (first,) = advance(Causal(), process, [draft])
    assert (first.draft.time, first.draft.k, first.top) == (0.5, 1, None)
    (second,) = advance(Causal(), process, [first.draft])
    assert second.finished
    assert second.draft.time == 0


def test_a_corrector_is_refused():
    given, fixed = canvas(6, 0)
    with pytest.raises(ValueError, match="corrector"):
        begin(MultiMask(V, 3), given, ~fixed, Ancestral(time_grid("uniform", 2), corrector=0.2), 0)
