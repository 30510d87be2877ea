"""Apple's GPU has no float64: networks and tables over the vocabulary are there, all that is exact stays on the CPU.

Where the pretend one computes as the CPU does, texts and losses are the CPU's.
"""

import pytest
import torch

from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Distillation
from multimdm.objectives.candi import Candi
from multimdm.objectives.consistency import Consistency
from multimdm.objectives.coupled import Coupled
from multimdm.objectives.elbo import Elbo, RelaxedElbo
from multimdm.objectives.next_token import NextToken
from multimdm.objectives.sdtt import Sdtt
from multimdm.objectives.settings import ConsistencySettings, Relaxation, SdttSettings, Shares
from multimdm.pipeline import Model
from multimdm.pipeline.devices import find_device
from multimdm.process import Hybrid, MultiMask, Streams, Uniform
from multimdm.samplers import Sampling, generate
from multimdm.samplers.steps import step_of
from pretend_gpu import DeviceMismatchError, Float64Error, pretend_gpu

V, M, B, L = 23, 4, 3, 8

MANY = MultiMask(V, M)
TIED = MANY.tied(noise_shown=True)
OBJECTIVES = {
    "mdlm": Elbo(MultiMask(V, 1)),
    "multimask": Elbo(MANY),
    "multimask, random": Elbo(MultiMask(V, M, assignment=torch.arange(V).flip(0) % M)),
    "multimask, context": Elbo(MultiMask(V, M, readout="context")),
    "duo": Elbo(Uniform(V)),
    "duo, relaxed": RelaxedElbo(Uniform(V), Relaxation()),
    "autoregressive": NextToken(V),
    "candi": Candi(Hybrid(V)),
    "consistency": Consistency(MANY, ConsistencySettings()),
    "consistency, smoothed": Consistency(MANY, ConsistencySettings(visible_target="smoothed")),
    "consistency, anchored": Consistency(MANY.tied(), ConsistencySettings(coupling="anchored")),
    "consistency, gaussian": Consistency(Uniform(V), ConsistencySettings(coupling="gaussian")),
    "sdtt": Sdtt(MANY, SdttSettings()),
    "sdtt, uniform": Sdtt(Uniform(V), SdttSettings()),
    "coupled": Coupled(MANY.tied()),
    "coupled, all kinds": Coupled(TIED, Shares(at_one=0.3, surest=0.3, drafts=0.3, prompts=0.5)),
}


def network(seed: int, like: object, causal: bool = False) -> DiT:
    config = DiTConfig(
        vocab_size=V,
        num_masks=getattr(like, "num_masks", 1) * (2 if getattr(like, "noise_shown", False) else 1),
        hidden_dim=8,
        num_blocks=1,
        num_heads=2,
        cond_dim=4,
        max_length=L,
        dropout=0.0,
        causal=causal,
        conditioning="none" if causal else "sigma",
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
    student, teacher = (network(seed, process, name == "autoregressive").to(device) for seed in (0, 1))
    taught = objective.taught_by(teacher) if isinstance(objective, Distillation) else objective
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        torch.randint(V, (B, L), generator=generator),
        torch.arange(L) < torch.tensor([[8], [6], [8]]),
        torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64),
        Streams.spawn(0, B),
        step=1,
        steps=100,
        x_1=V + torch.randint(M, (B, L), generator=generator) if getattr(process, "tied_noise", False) else None,
        weight=torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64),
    )
    loss = taught(student, batch).loss
    loss.backward()
    gradients = [x.grad for x in student.parameters() if x.grad is not None]
    return float(loss.detach()), [gradient.cpu() for gradient in gradients]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name):
    expected, slopes = step(name, "cpu")
    with pretend_gpu("mps") as counts:
        loss, found = step(name, "mps:0")
        assert counts.doubles == 0
    assert loss == pytest.approx(expected, rel=1e-5)
    assert len(found) == len(slopes) > 0
    for one, other in zip(found, slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


SAMPLERS = {
    "ancestral": (MANY, Sampling(steps=3)),
    "mdlm": (MultiMask(V, 1), Sampling(steps=3, temperature=0.7)),
    "context": (MultiMask(V, M, readout="context"), Sampling(steps=3, top_p=0.9)),
    "posterior": (MultiMask(V, M, readout="context"), Sampling(steps=3, temperature=0.5, temperature_on="posterior")),
    "greedy": (MANY, Sampling(steps=3, temperature=0)),
    "top-k": (MANY, Sampling(steps=3, top_k=3)),
    "uniform states": (Uniform(V), Sampling(steps=3)),
    "confidence": (MANY, Sampling(steps=3, order="confidence")),
    "confidence, certain": (MANY, Sampling(steps=3, order="confidence", temperature=0)),
    "left to right": (MANY, Sampling(steps=3, order="left_to_right")),
    "kept noise": (MANY.tied(), Sampling(steps=3, order="confidence")),
    "shown noise": (TIED, Sampling(steps=3, order="rewrite")),
    "guidance": (MANY, Sampling(steps=3, guidance=0.5)),
}


def sampled(name: str, device: str) -> torch.Tensor:
    process, settings = SAMPLERS[name]
    model = network(0, process).to(device).eval()
    given = torch.zeros(B, L, dtype=torch.long)
    fixed = torch.zeros(B, L, dtype=torch.bool)
    fixed[:, :2] = True
    made = generate(model, process, step_of(process, settings), given, fixed, generator=Streams.spawn(0, B), trace=True)
    return made.ids


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name):
    expected = sampled(name, "cpu")
    with pretend_gpu("mps") as counts:
        found = sampled(name, "mps:0")
        assert counts.doubles == 0
        assert counts.launches
    assert torch.equal(found, expected)


def test_likelihoods_are_those_of_the_cpu():
    process, generator = MultiMask(V, M, readout="context"), torch.Generator().manual_seed(0)
    ids, times = torch.randint(V, (B, L), generator=generator), torch.rand(2, B, dtype=torch.float64)
    model = network(0, process).eval()
    expected = nelbo_sums(model, process, ids, None, times, Streams.spawn(0, B)).values
    with pretend_gpu("mps"), torch.no_grad():
        found = nelbo_sums(model.to("mps:0"), process, ids, None, times, Streams.spawn(0, B)).values
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_model_there_writes_what_it_writes_on_the_cpu():
    model = Model(network(0, MANY).eval(), MANY, None)
    expected = model.sample(num=3, length=L, steps=3, seed=0).ids
    with pretend_gpu("mps"):
        model.network.to("mps:0")
        found = model.sample(num=3, length=L, steps=3, seed=0).ids
    assert torch.equal(found, expected)


def test_the_name_of_the_device(monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(ValueError, match="there is no Apple GPU"):
        find_device("mps")
    assert find_device("auto").type in ("cpu", "cuda")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert find_device("mps") == torch.device("mps")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert find_device("auto") == torch.device("mps")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert find_device("auto") == torch.device("cuda"), "NVIDIA's before Apple's"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("multimdm.pipeline.devices.launched", lambda: 2)
    assert find_device("auto") == torch.device("cpu"), "several ranks cannot share it"
    with pytest.raises(ValueError, match="several ranks need cpu"):
        find_device("mps")


def test_the_pretend_device_refuses_float64():
    with pretend_gpu("mps"):
        x = torch.ones(3, 3, device="mps:0")
        assert not x.is_cuda
        for put in (x.double, lambda: torch.ones(3, dtype=torch.float64).to("mps:0"), lambda: x.to(torch.float64)):
            with pytest.raises(Float64Error):
                put()
        with pytest.raises(DeviceMismatchError, match="mixes tensors of mps:0"):
            _ = x + torch.ones(3, 3)
        assert x.cpu().double().dtype == torch.float64
