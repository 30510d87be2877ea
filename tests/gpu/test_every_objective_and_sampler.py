"""Every objective and every sampler on the pretend GPUs, with a network of the shape that is trained: no tensor of the
host meets one of the device, and losses, gradients and texts are those of the CPU.

Apple's GPU has no float64: networks and tables over the vocabulary are there, all that is exact stays on the CPU.
"""

from typing import get_args

import pytest
import torch

from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Distillation
from multimdm.objectives.candi import Candi
from multimdm.objectives.consistency import Consistency
from multimdm.objectives.context import Context
from multimdm.objectives.elbo import Elbo, RelaxedElbo
from multimdm.objectives.next_token import NextToken
from multimdm.objectives.sdtt import Sdtt
from multimdm.objectives.settings import (
    ConsistencySettings,
    ContextSettings,
    Divergence,
    Relaxation,
    SdttSettings,
    Shares,
)
from multimdm.objectives.tied import Tied
from multimdm.pipeline import Model
from multimdm.process import Hybrid, MultiMask, Streams, Uniform
from multimdm.process.places import home_of
from multimdm.samplers import Sampling, generate
from multimdm.samplers.autoregressive import generate_autoregressive
from multimdm.samplers.candi import generate_candi
from multimdm.samplers.joint import advance, begin
from multimdm.samplers.steps import step_of
from pretend_gpu import pretend_gpu
from pretend_gpu.compiled import Schedule

V, M, B, L, WIDTH = 23, 4, 3, 8, 8

MANY = MultiMask(V, M)
TIED = MANY.tied(noise_shown=True)
MARGINAL = Context(ContextSettings("marginal", 0.5, 0.8), torch.arange(V, dtype=torch.float64))
OWN = Context(ContextSettings("own", 0.5, 0.8))
OBJECTIVES = {
    "mdlm": Elbo(MultiMask(V, 1)),
    "mdlm, mistakes": Elbo(MultiMask(V, 1), context=MARGINAL),
    "multimask": Elbo(MANY),
    "multimask, random": Elbo(MultiMask(V, M, assignment=torch.arange(V).flip(0) % M)),
    "multimask, context": Elbo(MultiMask(V, M, readout="context")),
    "multimask, own mistakes": Elbo(MANY, context=OWN),
    "multimask, fading": Elbo(MANY),
    "multimask, prompts": Elbo(MANY),
    "a mask for every token": Elbo(MultiMask(V, V)),
    "duo": Elbo(Uniform(V)),
    "duo, relaxed": RelaxedElbo(Uniform(V), Relaxation()),
    "autoregressive": NextToken(V),
    "candi": Candi(Hybrid(V)),
    "candi, narrow noise": Candi(Hybrid(V, noise_dim=WIDTH)),
    "consistency": Consistency(MANY, ConsistencySettings()),
    "consistency, smoothed": Consistency(MANY, ConsistencySettings(visible_target="smoothed")),
    "consistency, prompts": Consistency(MANY, ConsistencySettings()),
    "consistency, skip": Consistency(MANY, ConsistencySettings(visible_target="skip")),
    "consistency, markov": Consistency(MANY, ConsistencySettings(coupling="markov")),
    "consistency, independent": Consistency(MANY, ConsistencySettings(coupling="independent")),
    "consistency, own mistakes": Consistency(MANY, ConsistencySettings(), context=OWN),
    "consistency, gaussian": Consistency(Uniform(V), ConsistencySettings(coupling="gaussian")),
    **{f"sdtt, {kind}": Sdtt(MANY, SdttSettings(divergence=kind)) for kind in get_args(Divergence)},
    "sdtt, prompts": Sdtt(MANY, SdttSettings()),
    "sdtt, mistakes": Sdtt(MANY, SdttSettings(), context=MARGINAL),
    "sdtt, uniform": Sdtt(Uniform(V), SdttSettings()),
    "tied": Tied(MANY.tied()),
    "tied, all kinds": Tied(TIED, Shares(at_one=0.3, surest=0.3, drafts=0.3, prompts=0.5)),
    "tied, more masks than tokens": Tied(MultiMask(V, V + 3, tied_noise=True)),
}
DEVICES = ("cuda", "mps")


@pytest.fixture(autouse=True)
def nothing_is_counted(monkeypatch):
    """The compiler need not be asked what it would make of a function: test_costs.py counts."""
    monkeypatch.setattr("pretend_gpu.device.schedule_of", lambda function, args: Schedule(1, 0))


def network(seed: int, like: object, causal: bool = False, mask_fade: float | None = None) -> DiT:
    num_masks = getattr(like, "num_masks", 1)
    config = DiTConfig(
        vocab_size=V,
        num_masks=num_masks * (2 if getattr(like, "noise_shown", False) else 1),
        hidden_dim=WIDTH,
        num_blocks=1,
        num_heads=2,
        cond_dim=4,
        max_length=L,
        dropout=0.0,
        causal=causal,
        conditioning="none" if causal else "sigma",
        mask_fade=mask_fade,
    )
    torch.manual_seed(seed)
    made = DiT(config)
    for weight in made.parameters():  # maps that begin at zero would hide what they are shown
        torch.nn.init.normal_(weight, std=0.3)
    return made


def step(name: str, device: str) -> tuple[float, list[torch.Tensor]]:
    """The loss and the gradients of one micro-batch."""
    objective = OBJECTIVES[name]
    process = getattr(objective, "process", None)
    fade = 1.0 if name == "multimask, fading" else None
    student, teacher = (network(seed, process, name == "autoregressive", fade).to(device) for seed in (0, 1))
    taught = objective.taught_by(teacher) if isinstance(objective, Distillation) else objective
    generator = torch.Generator().manual_seed(0)
    home = home_of(torch.device(device))
    noise = None
    if isinstance(process, MultiMask) and process.tied_noise:
        noise = (V + torch.randint(process.num_masks, (B, L), generator=generator)).to(home)
    batch = Batch(
        torch.randint(V, (B, L), generator=generator).to(home),
        (torch.arange(L) < torch.tensor([[8], [6], [8]])).to(home),
        torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64),
        Streams.spawn(0, B),
        step=1,
        steps=100,
        x_1=noise,
        weight=torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64),
        given=(torch.arange(L).expand(B, L) < 2).to(home) if name.endswith("prompts") else None,
    )
    loss = taught(student, batch).loss
    loss.backward()
    gradients = [x.grad for x in student.parameters() if x.grad is not None]
    return float(loss.detach()), [gradient.cpu() for gradient in gradients]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name, device):
    expected, slopes = step(name, "cpu")
    with pretend_gpu(device) as counts:
        loss, found = step(name, f"{device}:0")
        assert counts.launches
        assert counts.doubles == 0 or device == "cuda"
    assert loss == pytest.approx(expected, rel=1e-5)
    assert len(found) == len(slopes) > 0
    for one, other in zip(found, slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


SAMPLERS = {
    "ancestral": (MANY, Sampling(steps=3)),
    "cosine, greedy at last": (MANY, Sampling(steps=3, grid="cosine", greedy_last=True)),
    "corrector": (MANY, Sampling(steps=3, corrector=0.3)),
    "mdlm": (MultiMask(V, 1), Sampling(steps=3, temperature=0.7)),
    "context": (MultiMask(V, M, readout="context"), Sampling(steps=3, top_p=0.9)),
    "posterior": (MultiMask(V, M, readout="context"), Sampling(steps=3, temperature=0.5, temperature_on="posterior")),
    "a mask for every token": (MultiMask(V, V), Sampling(steps=3)),
    "greedy": (MANY, Sampling(steps=3, temperature=0)),
    "top-k": (MANY, Sampling(steps=3, top_k=3)),
    "never chosen": (MANY, Sampling(steps=3, exclude_tokens=(1, 5))),
    "uniform states": (Uniform(V), Sampling(steps=3)),
    "uniform states, posterior": (Uniform(V), Sampling(steps=3, temperature=0.5, temperature_on="posterior")),
    "confidence": (MANY, Sampling(steps=3, order="confidence")),
    "confidence, certain": (MANY, Sampling(steps=3, order="confidence", temperature=0)),
    "confidence, in blocks": (MANY, Sampling(steps=4, order="confidence", block_length=4, threshold=0.2)),
    "confidence, by certainty": (MANY, Sampling(steps=3, order="confidence", remasking="low_certainty")),
    "confidence, at random": (MANY, Sampling(steps=3, order="confidence", remasking="random")),
    "confidence, postponed": (MANY, Sampling(steps=3, order="confidence", postpone_tokens=(2,))),
    "left to right": (MANY, Sampling(steps=3, order="left_to_right")),
    "kept noise": (MANY.tied(), Sampling(steps=3, order="confidence")),
    "kept noise, more masks than tokens": (MultiMask(V, V + 3, tied_noise=True), Sampling(steps=3)),
    "shown noise": (TIED, Sampling(steps=3, order="rewrite")),
    "guidance": (MANY, Sampling(steps=3, order="confidence", guidance=0.5)),
}


def beginning(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts whose first two tokens are given."""
    home = home_of(torch.device(device))
    fixed = torch.arange(L).expand(B, L) < 2
    return torch.zeros(B, L, dtype=torch.long, device=home), fixed.to(home)


def sampled(name: str, device: str) -> torch.Tensor:
    process, settings = SAMPLERS[name]
    model = network(0, process).to(device).eval()
    streams = Streams.spawn(0, B)
    step = step_of(process, settings)
    return generate(model, process, step, *beginning(device), generator=streams, trace=True).ids.cpu()


def sampled_from_candi(device: str) -> torch.Tensor:
    process = Hybrid(V, noise_dim=WIDTH)
    model = network(0, process).to(device).eval()
    return generate_candi(model, process, (1.0, 0.5, 0.0), *beginning(device), generator=Streams.spawn(0, B)).ids.cpu()


def sampled_token_by_token(device: str) -> torch.Tensor:
    model = network(0, None, causal=True).to(device).eval()
    return generate_autoregressive(model, V, *beginning(device), generator=Streams.spawn(0, B)).ids.cpu()


def sampled_together(device: str) -> torch.Tensor:
    """As a server does: two kinds of steps in one network call."""
    model = network(0, MANY).to(device).eval()
    given, fixed = beginning(device)
    drafts = [
        draft
        for seed, settings in enumerate((Sampling(steps=3), Sampling(steps=3, order="confidence")))
        for draft in begin(MANY, given, ~fixed, step_of(MANY, settings), seed)
    ]
    for _ in range(3):
        drafts = [after.draft for after in advance(model, MANY, drafts, top=2)]
    return torch.stack([draft.x for draft in drafts]).cpu()


OTHERS = {"candi": sampled_from_candi, "autoregressive": sampled_token_by_token, "a server": sampled_together}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*SAMPLERS, *OTHERS])
def test_samplers(name, device):
    sample = OTHERS.get(name, lambda device: sampled(name, device))
    expected = sample("cpu")
    with pretend_gpu(device) as counts:
        found = sample(f"{device}:0")
        assert counts.launches
        assert counts.doubles == 0 or device == "cuda"
    assert torch.equal(found, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_likelihoods_are_those_of_the_cpu(device):
    process, generator = MultiMask(V, M, readout="context"), torch.Generator().manual_seed(0)
    ids, times = torch.randint(V, (B, L), generator=generator), torch.rand(2, B, dtype=torch.float64)
    model = network(0, process).eval()
    expected = nelbo_sums(model, process, ids, None, times, Streams.spawn(0, B)).values
    with pretend_gpu(device), torch.no_grad():
        there = ids.to(home_of(torch.device(device, 0)))
        found = nelbo_sums(model.to(f"{device}:0"), process, there, None, times, Streams.spawn(0, B)).values.cpu()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_there_writes_what_it_writes_on_the_cpu(device):
    model = Model(network(0, MANY).eval(), MANY, None)
    expected = model.sample(num=3, length=L, steps=3, seed=0).ids
    with pretend_gpu(device):
        model.network.to(f"{device}:0")
        found = model.sample(num=3, length=L, steps=3, seed=0).ids.cpu()
    assert torch.equal(found, expected)
