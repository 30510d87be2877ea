"""Answers to prompts with LLaDA's parameters: a fixed number of new tokens behind each prompt, block after block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from multimdm._checks import check_integer, require
from multimdm.pipeline.canvas import prompts_canvas
from multimdm.pipeline.generation import Run, fill, length_of
from multimdm.pipeline.model import Model
from multimdm.samplers.settings import Sampling


@dataclass(frozen=True)
class Answering:
    """LLaDA's settings by their names; all divisions must come out even, as in its own code."""

    gen_length: int = 128
    """New tokens per answer."""
    block_length: int | None = None
    """Tokens that are made at once, from left to right block by block; gen_length unless given."""
    steps: int | None = None
    """Network calls for all blocks together; gen_length unless given."""
    tps: int | None = None
    """Tokens per step: steps = gen_length / tps. Where both are given they must agree."""
    temperature: float | int = 0.0
    """0 takes the most probable tokens, given the context and the own mask."""
    remasking: Literal["low_confidence", "random"] = "low_confidence"
    """What waits for later steps: the tokens that the network is least sure of, or any."""
    cfg_scale: float | int = 0.0
    """Classifier-free guidance; above 0 every step is two network calls."""
    logits_eos_inf: bool = False
    """Never choose the end of text."""
    confidence_eos_eot_inf: bool = False
    """Fill positions with the end of text or of turn last. Unlike LLaDA's own code, at any temperature."""

    @property
    def num_steps(self) -> int:
        """K, the number of steps."""
        if self.tps is not None:
            return self.gen_length // self.tps
        return self.gen_length if self.steps is None else self.steps

    @property
    def num_blocks(self) -> int:
        """How many blocks an answer has."""
        return self.gen_length // (self.gen_length if self.block_length is None else self.block_length)

    def check(self) -> None:
        """Raise a ValueError that names the field, its value and the remedy."""
        self.check_values()
        for name in ("block_length", "tps"):
            part = getattr(self, name)
            require(
                part is None or self.gen_length % part == 0,
                f"gen_length must be divisible by {name}; got {self.gen_length} and {part}",
            )
        require(
            self.num_steps % self.num_blocks == 0,
            f"steps must be divisible by the number of blocks, gen_length / block_length = {self.num_blocks}; "
            f"got {self.num_steps}",
        )
        require(
            self.steps is None or self.num_steps == self.steps,
            f"steps must be gen_length / tps = {self.num_steps}, or left out; got {self.steps}",
        )

    def check_values(self) -> None:
        """What can be wrong whatever the length of answers will be."""
        check_integer("gen_length", self.gen_length, 1)
        for name in ("block_length", "steps", "tps"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        require(
            0 <= self.cfg_scale < math.inf,
            f"cfg_scale must be a finite number of at least 0 (0 is off); got {self.cfg_scale}",
        )
        replace(self, steps=None, tps=None).sampling((), ()).check()

    def sampling(self, end_of_text: tuple[int, ...], ends: tuple[int, ...]) -> Sampling:
        """The settings in our terms, for a model with these ends of text, and of text or turn."""
        return Sampling(
            steps=self.num_steps,
            temperature=self.temperature,
            temperature_on="posterior",  # at 0, what own masks tell must count; LLaDA's predictions are posteriors
            order="confidence",
            block_length=self.block_length,
            remasking=self.remasking,
            guidance=self.cfg_scale,
            exclude_tokens=end_of_text if self.logits_eos_inf else (),
            postpone_tokens=ends if self.confidence_eos_eot_inf else (),
        )


@dataclass(frozen=True)
class Answers:
    """One list of new ids per prompt, ends of text included."""

    ids: list[list[int]]
    nfe: int
    """Network calls that an answer took."""


def end_tokens(model: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The end of text; and all that end an answer, the end of turn of chat models included."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return (), ()
    end = () if tokenizer.eos_id is None else (tokenizer.eos_id,)
    return end, (*end, *tokenizer.turn_ends)


def answer(model: Model, prompts: Sequence[Sequence[int]], settings: Answering, run: Run | None = None) -> Answers:
    """Make the answers; prompts may differ in length, and neighbours do not change an answer."""
    run = Run() if run is None else run
    settings.check()
    require(len(prompts) > 0, "prompts must hold at least one prompt; got none")
    canvas = prompts_canvas(prompts, settings.gen_length, length_of(model, None), "gen_length")
    samples = fill(model, canvas, settings.sampling(*end_tokens(model)), run)
    starts = [len(prompt) for prompt in prompts]
    ids = [row[n : n + settings.gen_length] for row, n in zip(samples.ids.tolist(), starts, strict=True)]
    return Answers(ids, samples.nfe)
