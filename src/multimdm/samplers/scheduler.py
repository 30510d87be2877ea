"""Our processes as a scheduler of the kind that diffusers has: the caller calls the network, `step` does the rest.

The conventions are those that diffusers is settling on for discrete schedulers (its pull request 14741): timesteps fall
within (0, 1], and temperature, top-p and top-k belong to the scheduler. Nothing of diffusers is imported.

Shapes: B sequences of L positions; logits and laws [B, L, V] over the V clean tokens; K timesteps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, overload

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import Generator, Process, Time
from multimdm.process.places import at_home
from multimdm.samplers.batch import Batch
from multimdm.samplers.grid import Grid
from multimdm.samplers.process_checks import refuse_tied
from multimdm.samplers.question import Question
from multimdm.samplers.settings import Sampling, TemperatureOn
from multimdm.samplers.steps import step_of

_SAME_TIME = 1e-6
"""Timesteps are float32, and callers may have computed with them."""
_ALL = slice(None)
"""The caller's logits come in one piece."""


@dataclass(frozen=True)
class SchedulerOutput:
    """What a step gives back."""

    prev_sample: Int64[Tensor, "B L"]
    """x_s: what the network is shown next."""
    sampled_tokens: Int64[Tensor, "B L"]
    """The clean tokens by which x_s was drawn: new ones where the network was asked, else those that are there."""
    _law: Callable[[Tensor], Tensor] = field(repr=False)

    @cached_property
    def pred_logits(self) -> Float[Tensor, "B L V"]:
        """log p of `sampled_tokens`, after temperature, top-p, top-k and what the state tells; made when asked for."""
        return self._law(self.sampled_tokens).log()


@dataclass
class ProcessScheduler:
    """Ancestral steps of a process, one per call of `step`; the settings may be changed between steps.

    Given the seed's `Streams`, K steps give what `generate` gives, bit for bit. A `torch.Generator` does too as long as
    no sequence is finished early: `generate` lets finished ones go, and the numbers of the others are then different.
    """

    process: Process
    temperature: float | int = 1.0
    """0 takes the most probable token."""
    top_p: float | int = 1.0
    top_k: int | None = None
    temperature_on: TemperatureOn = "prediction"
    """What these three act on, as in `Sampling`."""
    grid: Grid = "uniform"
    """How `set_timesteps` divides (0, 1]."""
    greedy_last: bool = False
    corrector: float | int = 0.0
    timesteps: Float[Tensor, " K"] = field(init=False, default_factory=lambda: torch.empty(0))
    """The times at which the network is called, from 1 down; the last step goes from the last of them to 0."""

    order = 1
    """Network calls per step, in the words of diffusers."""

    def __post_init__(self) -> None:
        refuse_tied(self.process, "a scheduler, which knows the present sample alone,")
        self._times: tuple[float, ...] = ()

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: torch.device | str | None = None,
        timesteps: list[float] | None = None,
    ) -> None:
        """K steps by `grid`, or at the given times, which begin with 1 and fall."""
        times = None if timesteps is None else (*(float(t) for t in timesteps), 0.0)
        sampling = self._sampling(self.grid if times is None else times, num_inference_steps)
        sampling.check()
        self._times = sampling.times
        self.timesteps = torch.tensor(self._times[:-1], dtype=torch.float32, device=device)

    def prior(
        self, shape: tuple[int, int], generator: Generator = None, device: torch.device | str | None = None
    ) -> Int64[Tensor, "B L"]:
        """x_1: what the network is shown first."""
        return self.process.prior(shape, generator, device)

    def scale_model_input(self, sample: Tensor, timestep: Time | None = None) -> Tensor:
        """The sample as it is: pipelines ask for this."""
        return sample

    @overload
    def step(
        self,
        model_output: Tensor,
        timestep: float | Tensor,
        sample: Tensor,
        generator: Generator = None,
        prompt_mask: Tensor | None = None,
        return_dict: Literal[True] = True,
    ) -> SchedulerOutput: ...

    @overload
    def step(
        self,
        model_output: Tensor,
        timestep: float | Tensor,
        sample: Tensor,
        generator: Generator = None,
        prompt_mask: Tensor | None = None,
        *,
        return_dict: Literal[False],
    ) -> tuple[Tensor, ...]: ...

    @torch.no_grad()
    def step(
        self,
        model_output: Float[Tensor, "B L V"],
        timestep: float | Tensor,
        sample: Int64[Tensor, "B L"],
        generator: Generator = None,
        prompt_mask: Bool[Tensor, "*B L"] | None = None,
        return_dict: bool = True,
    ) -> SchedulerOutput | tuple[Tensor, ...]:
        """x_s ~ p_{s|t}(. | x_t) from logits of the clean tokens, where t is one of `timesteps` and s the next.

        Positions of `prompt_mask` stay as they are; clean tokens of masked processes do so anyway.
        """
        k = self._index(timestep)
        V = self.process.vocab_size
        require(
            model_output.shape == (*sample.shape, V),
            f"model_output must be logits of the {V} clean tokens at every position, {[*sample.shape, V]}; "
            f"got {list(model_output.shape)}",
        )
        sampling = self._sampling(self._times)
        sampling.check()
        move = step_of(self.process, sampling)
        free = torch.ones_like(sample, dtype=torch.bool)
        if prompt_mask is not None:
            free &= ~prompt_mask
        # The network was called by the caller: the question takes its rows of the logits in place of a call.
        question = move.question(self.process, Batch(sample, free, generator=generator), k)
        hypotheses = question.put_to(
            lambda x_t, t, positions, valid, reduce: tuple(map(at_home, reduce(model_output[positions], _ALL)))
        )
        moved = move.move(question, hypotheses, k)
        if not return_dict:
            return moved.x, hypotheses.clean
        return SchedulerOutput(moved.x, hypotheses.clean, partial(self._law, question, model_output))

    def add_noise(
        self, original_samples: Int64[Tensor, "B L"], timesteps: Time, generator: Generator = None
    ) -> Int64[Tensor, "B L"]:
        """x_t ~ p_t(. | x_0), at one time for all or one per sequence."""
        return self.process.corrupt(original_samples, timesteps, generator)

    def _law(self, question: Question, logits: Tensor, tokens: Tensor) -> Float[Tensor, "B L V"]:
        """The law that the tokens were drawn from; a point mass where nothing was left to chance."""
        law = torch.nn.functional.one_hot(tokens, self.process.vocab_size).to(torch.float32)
        drawn = question.positions
        # p(x_0 | x_t) with temperature, top-p and top-k, where tokens were drawn; e_token elsewhere
        if not question.choice.certain and bool(drawn.any()):
            weights = question.choice.law(self.process, logits[drawn], question.batch.x[drawn], question.t)
            law[drawn] = (weights / weights.sum(-1, keepdim=True)).to(law.dtype)
        return law

    def _sampling(self, grid: Grid, steps: int | None = None) -> Sampling:
        names = ("temperature", "top_p", "top_k", "temperature_on", "greedy_last", "corrector")
        return Sampling(order="ancestral", grid=grid, steps=steps, **{name: getattr(self, name) for name in names})

    def _index(self, timestep: float | Tensor) -> int:
        """Which of the timesteps it is."""
        require(len(self._times) > 0, "timesteps are not there yet: call set_timesteps first")
        t = float(timestep)
        k = min(range(len(self._times) - 1), key=lambda k: abs(self._times[k] - t))
        require(
            abs(self._times[k] - t) <= _SAME_TIME,
            f"timestep must be one of scheduler.timesteps; got {t}, and the nearest is {self._times[k]}",
        )
        return k
