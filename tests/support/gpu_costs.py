"""Every objective at work on the pretend GPU, and what it costs there."""

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from multimdm.models.head import reduce_logits
from multimdm.objectives import Batch, Distillation, Objective
from multimdm.objectives.candi import Candi
from multimdm.objectives.consistency import Consistency
from multimdm.objectives.context import Context
from multimdm.objectives.elbo import Elbo, RelaxedElbo
from multimdm.objectives.next_token import NextToken
from multimdm.objectives.sdtt import Sdtt
from multimdm.objectives.settings import ConsistencySettings, ContextSettings, Relaxation, SdttSettings, Shares
from multimdm.objectives.tied import Tied
from multimdm.process import Hybrid, MultiMask, Process, Streams, Uniform
from multimdm.process.places import ENTRIES_ON_A_GPU, TRAINED_ON_A_GPU
from multimdm.samplers import Sampling, generate
from multimdm.samplers.steps import step_of
from pretend_gpu import Counts, pretend_gpu

DEVICE = "cuda:0"
PAPERS_VOCABULARY, PAPERS_ROWS = 50_257, 8192
"""Of a micro-batch of 16 sequences of 1024 tokens, half of them hidden."""


def objectives() -> dict[str, Objective]:
    """By name."""
    one, many = MultiMask(V, 1), MultiMask(V, M)
    return {
        "mdlm": Elbo(one),
        "multimask": Elbo(many),
        "multimask, random": Elbo(MultiMask(V, M, assignment=torch.randperm(V) % M)),
        "multimask, context": Elbo(MultiMask(V, M, readout="context")),
        "a mask for every token": Elbo(MultiMask(V, V)),
        "multimask, mistakes": Elbo(many, context=Context(ContextSettings("marginal"), torch.ones(V).double())),
        "multimask, own mistakes": Elbo(many, context=Context(ContextSettings("own"))),
        "duo": Elbo(Uniform(V)),
        "autoregressive": NextToken(V),
        "duo, relaxed": RelaxedElbo(Uniform(V), Relaxation(share=1.0)),
        "candi": Candi(Hybrid(V, noise_dim=64)),  # to V as 768 to the paper's vocabulary
        "consistency": Consistency(many, ConsistencySettings()),
        "consistency, smoothed": Consistency(many, ConsistencySettings(visible_target="smoothed")),
        "consistency, gaussian": Consistency(Uniform(V), ConsistencySettings(coupling="gaussian")),
        "sdtt": Sdtt(many, SdttSettings()),
        "sdtt, uniform states": Sdtt(Uniform(V), SdttSettings()),
        "tied": Tied(many.tied()),
        "tied, noise shown": Tied(many.tied(noise_shown=True)),
        "tied, drafts": Tied(many.tied(noise_shown=True), Shares(at_one=0.0, drafts=1.0)),
    }


def samplers() -> dict[str, tuple[Process, Sampling]]:
    """By name; of each, what two calls take."""
    many = MultiMask(V, M)
    return {
        "ancestral": (many, Sampling(steps=2)),
        "ancestral, temperature": (many, Sampling(steps=2, temperature=0.7)),
        "ancestral, top-p": (many, Sampling(steps=2, top_p=0.9)),
        "uniform states": (Uniform(V), Sampling(steps=2)),
        "confidence": (many, Sampling(steps=2, order="confidence")),
        "left to right": (many, Sampling(steps=2, order="left_to_right")),
    }


class Head:
    """A network that is nothing but its head: all that it costs is head and loss."""

    def __init__(self, V: int, B: int, L: int, d: int = 4) -> None:
        self.weight, self.bias = (torch.randn(*shape).to(DEVICE).requires_grad_() for shape in ((V, d), (V,)))
        self.inner = torch.randn(B, L, d).to(DEVICE).requires_grad_()

    def __call__(self, x: Any, t: Any, positions: Tensor, valid: Any = None, reduce: Any = None) -> Any:
        """What `reduce` makes of the logits."""
        return reduce_logits(self.features(x, t, positions, valid), self.weight, self.bias, reduce)

    def features(self, x: Any, t: Any, positions: Tensor | None, valid: Tensor | None) -> Tensor:
        """Of every position, whatever is shown there."""
        return self.inner if positions is None else self.inner[positions.nonzero(as_tuple=True)]

    def logits(self, features: Tensor) -> Tensor:
        """The head."""
        return torch.nn.functional.linear(features, self.weight, self.bias)


class Cost(NamedTuple):
    """Of a micro-batch, in bfloat16."""

    bytes_per_logit: float
    launches_per_row: float
    """At the paper's vocabulary and micro-batch, from what is launched once and what is launched for every chunk."""
    waits: int


V, M, B, L = 4096, 4, 4, 128


def cost_of_training(objective: Objective) -> Cost:
    """Of head and loss, forward and backward."""

    def step(network: Head, teacher: Head, ids: Tensor) -> None:
        taught = objective.taught_by(teacher) if isinstance(objective, Distillation) else objective
        # Nearly everything is hidden, so that all rows have logits.
        times = torch.full((len(ids),), 0.9999, dtype=torch.float64)
        noise = torch.full_like(ids, V)
        batch = Batch(ids, None, times, Streams.spawn(0, len(ids)), step=1, steps=100, x_1=noise)
        taught(network, batch).loss.backward()

    return _cost(step, TRAINED_ON_A_GPU)


def cost_of_sampling(process: Process, settings: Sampling) -> Cost:
    """Of head and draw, per network call."""
    step = step_of(process, settings)

    def draw(network: Head, _: Head, ids: Tensor) -> None:
        generate(network, process, step, ids, generator=Streams.spawn(0, len(ids)))

    whole = _cost(draw, ENTRIES_ON_A_GPU)
    calls = step.num_steps
    return Cost(whole.bytes_per_logit / calls, whole.launches_per_row / calls, -(-whole.waits // calls))


def _cost(work: Callable[[Head, Head, Tensor], None], entries: int) -> Cost:
    one, two = (_counted(work, sequences) for sequences in (B, 2 * B))  # in one chunk, and in two like it
    per_chunk = sum(two.launches.values()) - sum(one.launches.values())
    chunks = -(-PAPERS_ROWS * PAPERS_VOCABULARY // entries)
    launches = sum(one.launches.values()) + (chunks - 1) * per_chunk
    return Cost(one.bytes / (B * L * V), launches / PAPERS_ROWS, sum(one.waits.values()))


def _counted(work: Callable[[Head, Head, Tensor], None], sequences: int) -> Counts:
    with (
        pretend_gpu() as counts,
        mock.patch("multimdm.process.places.ENTRIES_ON_A_GPU", B * L * V),
        mock.patch("multimdm.process.places.TRAINED_ON_A_GPU", B * L * V),
    ):
        torch.manual_seed(0)
        networks = Head(V, sequences, L), Head(V, sequences, L)
        ids = torch.randint(V, (sequences, L)).to(DEVICE)
        for _ in range(2):  # what is made once stays: tables on the device
            counts.reset()
            with torch.autocast("cuda", torch.bfloat16):
                work(*networks, ids)
    return counts
