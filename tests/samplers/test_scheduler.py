"""A loop in the way of diffusers draws what our own sampler draws, bit for bit, with K network calls for K steps."""

import inspect
from typing import Any

import pytest
import torch

from multimdm.pipeline import Model
from multimdm.process import MultiMask, Process, Schedule, Streams, Uniform
from multimdm.samplers import Ancestral, ProcessScheduler, generate, time_grid
from support.statistics import REJECT, p_of_draws
from support.tiny_models import tiny_dit

V, L, B = 11, 9, 5
PROCESSES = {
    "masked": MultiMask(V, 1),
    "masked cosine": MultiMask(V, 1, Schedule(kind="cosine")),
    "multi-mask": MultiMask(V, 3, Schedule(rho=0.5)),
    "multi-mask by Bayes": MultiMask(V, 3, Schedule(rho=0.7), readout="context"),
    "uniform": Uniform(V),
}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
SETTINGS = {
    "usual": {},
    "shaped": {"temperature": 0.6, "top_p": 0.8, "top_k": 4},
    "on the posterior": {"temperature": 0.5, "temperature_on": "posterior"},
    "certain": {"temperature": 0},
    "certain at the end": {"greedy_last": True, "grid": "cosine"},
    "at given times": {"grid": (1.0, 0.9, 0.35, 0.3, 0.0)},
}


class Counted:
    """A network that is conditioned on time, and the number of its calls."""

    def __init__(self, process: Process) -> None:
        self.network, self.calls = tiny_dit(V, process.num_masks, L), 0

    def __call__(self, x_t, t):
        self.calls += 1
        with torch.no_grad():
            return self.network(x_t, t)


def looped(scheduler: ProcessScheduler, network, steps: int | None, generator, given=None, prompt=None) -> torch.Tensor:
    """As pipelines do it: they know the scheduler's interface, and nothing of processes."""
    if "timesteps" in inspect.signature(scheduler.set_timesteps).parameters and not isinstance(scheduler.grid, str):
        scheduler.set_timesteps(timesteps=list(scheduler.grid[:-1]))
    else:
        scheduler.set_timesteps(steps, device="cpu")
    sample = scheduler.prior((B, L), generator)
    if given is not None and prompt is not None:
        sample = torch.where(prompt, given, sample)
    for t in scheduler.timesteps:
        logits = network(scheduler.scale_model_input(sample, t), t)
        sample = scheduler.step(logits, t, sample, generator=generator, prompt_mask=prompt, return_dict=False)[0]
    return sample


@ALL
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_equal_seeds_give_equal_texts_by_as_many_calls(process, settings):
    network = Counted(process)
    model = Model(network.network, process)
    steps = None if isinstance(settings.get("grid"), tuple) else 6
    for seed in (0, 1):
        wanted = model.sample(B, L, steps=steps, seed=seed, order="ancestral", **settings)
        network.calls = 0
        made = looped(ProcessScheduler(process, **settings), network, steps, Streams.spawn(seed, B))
        assert torch.equal(made, wanted.ids)
        assert network.calls == (4 if steps is None else steps)


@pytest.mark.parametrize("corrector", [0.2, 1.0])
def test_what_masks_again_does_so(corrector):
    process = PROCESSES["multi-mask"]
    network = Counted(process)
    wanted = Model(network.network, process).sample(B, L, steps=6, seed=3, order="ancestral", corrector=corrector)
    made = looped(ProcessScheduler(process, corrector=corrector), network, 6, Streams.spawn(3, B))
    assert torch.equal(made, wanted.ids)


@ALL
def test_prompts_stay(process):
    """Masks and uniform states alike; also one prompt for all sequences."""
    network, given = Counted(process), torch.randint(V, (B, L), generator=torch.Generator().manual_seed(0))
    fixed = torch.rand(B, L, generator=torch.Generator().manual_seed(1)) < 0.4
    step = Ancestral(time_grid("uniform", 4))
    wanted = generate(network.network, process, step, given, fixed, generator=Streams.spawn(2, B)).ids
    scheduler = ProcessScheduler(process)
    assert torch.equal(looped(scheduler, network, 4, Streams.spawn(2, B), given, fixed), wanted)
    alike = torch.arange(L) < 3
    made = looped(scheduler, network, 4, Streams.spawn(2, B), given, alike)
    assert torch.equal(made[:, :3], given[:, :3])


def test_generators_of_torch():
    """No sequence of uniform states is finished early; of masked ones, none is in one step."""
    for process, steps in ((PROCESSES["uniform"], 5), (PROCESSES["multi-mask"], 1)):
        network, nothing = Counted(process), torch.zeros(B, L, dtype=torch.long)
        step = Ancestral(time_grid("uniform", steps))
        wanted = generate(network.network, process, step, nothing, generator=torch.Generator().manual_seed(4)).ids
        made = looped(ProcessScheduler(process), network, steps, torch.Generator().manual_seed(4))
        assert torch.equal(made, wanted)


@ALL
@pytest.mark.parametrize("settings", [{}, SETTINGS["shaped"], SETTINGS["on the posterior"]], ids=["1", "2", "3"])
def test_the_logits_are_those_of_what_is_drawn(process, settings):
    num = 20_000
    scheduler = ProcessScheduler(process, **settings)
    scheduler.set_timesteps(4)
    x_t = scheduler.prior((1, 2), torch.Generator().manual_seed(0)).expand(num, 2).clone()
    x_t[:, 1] = 7  # a clean token, or a uniform state
    logits = torch.randn(2, V, generator=torch.Generator().manual_seed(1)).expand(num, 2, V)
    out = scheduler.step(logits, scheduler.timesteps[1], x_t, torch.Generator().manual_seed(2))
    laws = out.pred_logits[0].exp()
    torch.testing.assert_close(laws.sum(-1), torch.ones(2))
    for position, law in enumerate(laws):
        assert p_of_draws(out.sampled_tokens[:, position], law.double()) > REJECT
        if not process.active(x_t)[0, position]:
            assert law[7] == 1
    if settings.get("top_k"):
        assert int((laws[0] > 0).sum()) <= 4
    scheduler.temperature = 0  # settings are read at every step
    certain = scheduler.step(logits, scheduler.timesteps[1], x_t)
    assert set(certain.pred_logits.exp().unique().tolist()) == {0.0, 1.0}
    assert torch.equal(certain.pred_logits.argmax(-1), certain.sampled_tokens)


@ALL
def test_noise_is_that_of_the_process(process):
    scheduler, x_0 = ProcessScheduler(process), torch.full((20_000, 1), 3)
    x_t = scheduler.add_noise(x_0, 0.6, torch.Generator().manual_seed(0))
    assert p_of_draws(x_t[:, 0], process.marginal(torch.tensor(3), 0.6).double()) > REJECT
    times = torch.linspace(0.1, 0.9, len(x_0))
    assert torch.equal(
        scheduler.add_noise(x_0, times, torch.Generator().manual_seed(1)),
        process.corrupt(x_0, times, torch.Generator().manual_seed(1)),
    )


@ALL
def test_from_the_middle_with_a_network_that_knows(process):
    scheduler = ProcessScheduler(process)
    scheduler.set_timesteps(8)
    x_0 = torch.randint(V, (B, L), generator=torch.Generator().manual_seed(0))
    truth = torch.nn.functional.one_hot(x_0, V).double().log()
    x = scheduler.add_noise(x_0, scheduler.timesteps[5], torch.Generator().manual_seed(1))
    assert not torch.equal(x, x_0)
    for t in scheduler.timesteps[5:]:
        x = scheduler.step(truth, t, x, torch.Generator().manual_seed(2)).prev_sample
    assert torch.equal(x, x_0)


def test_timesteps():
    scheduler = ProcessScheduler(PROCESSES["masked"])
    scheduler.set_timesteps(4)
    assert scheduler.timesteps.tolist() == [1.0, 0.75, 0.5, 0.25]
    assert scheduler.timesteps.dtype == torch.float32
    scheduler.set_timesteps(timesteps=[1.0, 0.1])
    assert scheduler.timesteps.tolist() == pytest.approx([1.0, 0.1])
    cosine = ProcessScheduler(PROCESSES["masked"], grid="cosine")
    cosine.set_timesteps(5)
    assert cosine.timesteps.tolist() == pytest.approx(time_grid("cosine", 5)[:-1])
    assert ((cosine.timesteps > 0) & (cosine.timesteps <= 1)).all()
    assert cosine.order == 1


def test_wrong_calls_are_named():
    scheduler = ProcessScheduler(PROCESSES["masked"])
    x, logits = torch.full((1, 2), V), torch.zeros(1, 2, V)
    with pytest.raises(ValueError, match="call set_timesteps first"):
        scheduler.step(logits, 1.0, x)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"num_inference_steps": 0}, "steps must be an integer of at least 1; got 0"),
        ({"timesteps": [0.9, 0.5]}, "grid must fall from 1 to 0"),
        ({"timesteps": [1.0, 0.5], "num_inference_steps": 3}, "steps must be 2"),
    )
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            scheduler.set_timesteps(**arguments)
    scheduler.set_timesteps(4)
    with pytest.raises(ValueError, match=r"timestep must be one of scheduler.timesteps; got 0.8, .* nearest is 0.75"):
        scheduler.step(logits, 0.8, x)
    with pytest.raises(ValueError, match=r"logits of the 11 clean tokens at every position, \[1, 2, 11\]; got"):
        scheduler.step(torch.zeros(1, 2, V + 1), 1.0, x)
    scheduler.top_p = 0
    with pytest.raises(ValueError, match=r"top_p must lie in \(0, 1\]"):
        scheduler.step(logits, 1.0, x)
    with pytest.raises(ValueError, match=r"a scheduler, .* is not for a model whose noise is tied to the text"):
        ProcessScheduler(MultiMask(V, 3).tied())
