"""Texts from a model: unconditional samples, completions, infilling."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn

from multimdm._checks import check_integer, require
from multimdm._hints import hint
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import DiT, Remembering
from multimdm.models.layers import standing_weights
from multimdm.pipeline.canvas import Canvas, empty_canvas
from multimdm.pipeline.ranks import shared
from multimdm.process import Hybrid, Streams
from multimdm.process.places import home_of
from multimdm.samplers.advice import resolve
from multimdm.samplers.autoregressive import generate_autoregressive
from multimdm.samplers.candi import generate_candi
from multimdm.samplers.loop import Generated, Watch, generate
from multimdm.samplers.settings import Sampling, our_word
from multimdm.samplers.steps import choice_of, step_of
from multimdm.samplers.trace import Trace

if TYPE_CHECKING:
    from multimdm.pipeline.model import Model


@dataclass(frozen=True)
class Samples:
    """Finished sequences, and what they cost."""

    ids: Int64[Tensor, "num L"]
    texts: list[str]
    """One per sequence; none if the model has no tokenizer."""
    nfe: int
    """Network calls that a sequence needed, one after another."""
    trace: Trace | None = None
    sampling: Sampling | None = None
    """How they were drawn, with what was advised or usual where nothing was given."""
    valid: Bool[Tensor, "num L"] | None = None
    """Which ids belong to their text, if some sequences are shorter than others: behind them is padding."""


@dataclass(frozen=True)
class Run:
    """How the work is done; none of it changes the law of a sample."""

    seed: int = 0
    first: int = 0
    """Number of the first sequence in the run of this seed: 2 from 0 and 2 from 2 are the 4 from 0."""
    batch_size: int = 64
    """Sequences that go through the network together."""
    trace: bool = False
    """Keep the states of all steps."""
    watch: Watch | None = None
    """Called after every step with (steps done, steps in all, states of the batch)."""

    def check(self) -> None:
        """Raise a ValueError that names the field and its value."""
        check_integer("seed", self.seed, 0)
        check_integer("first", self.first, 0)
        check_integer("batch_size", self.batch_size, 1)


def settings_of(**options: Any) -> tuple[Sampling, Run]:
    """What is drawn and how the work is done, from names that are fields of one or the other; `fill` checks them.

    What is None or left out is the checkpoint's advice, else the usual. `sampling` stands for all fields of one.
    """
    law, work = ({field.name for field in fields(kind)} for kind in (Sampling, Run))
    whole = options.pop("sampling", None)
    for name in options:
        if name not in law | work:
            if (word := our_word(name)) is not None:
                raise ValueError(f"there is no option '{name}'; here it is {word}")
            raise ValueError(f"there is no option '{name}'; {hint(name, sorted(law | work), 'options are')}")
    run = Run(**{name: value for name, value in options.items() if name in work})
    named = {name: value for name, value in options.items() if name in law}
    if whole is None:
        return Sampling(**named), run
    said = [name for name, value in named.items() if value is not None]
    require(not said, f"give sampling or its fields, not both; got sampling and {', '.join(said)}")
    return whole, run


def tokenizer_of(model: "Model", what: str) -> Tokenizer:
    """The model's tokenizer; an error if it has none."""
    if model.tokenizer is None:
        raise ValueError(
            f"this checkpoint has no tokenizer, which {what} needs: import it with --tokenizer NAME, or work with ids"
        )
    return model.tokenizer


def length_of(model: "Model", length: int | None) -> int:
    """A length that the network is made for; its longest unless given."""
    longest = model.network.config.max_length
    length = longest if length is None else check_integer("length", length, 1)
    require(length <= longest, f"length must be at most {longest}, for which the network was made; got {length}")
    return length


def fill(model: "Model", canvas: Canvas, sampling: Sampling, run: Run) -> Samples:
    """Make all positions that are not fixed, batch by batch; what the settings leave open is as the model advises.

    Ranks that share their work (`ranks.py`) take the batches in turn.
    """
    sampling = resolve(sampling, model.advice)
    run.check()
    length_of(model, canvas.given.shape[1])
    device = home_of(next(model.network.parameters()).device)
    canvas = canvas.to(device)
    make = _maker(model, canvas, sampling)

    def made(start: int) -> Generated:
        part = canvas.rows(slice(start, start + run.batch_size))
        return make(part, Streams.spawn(run.seed, len(part.given), run.first + start), run)

    with evaluating(model.network):
        parts = shared(range(0, len(canvas.given), run.batch_size), made, device)
    ids = torch.cat([part.ids for part in parts])
    traces = [part.trace for part in parts if part.trace is not None]
    return Samples(
        ids=ids,
        texts=decode(model.tokenizer, ids, canvas.valid) if model.tokenizer is not None else [],
        nfe=max(part.nfe for part in parts),
        trace=Trace.join(traces) if traces else None,
        sampling=sampling,
        valid=canvas.valid,
    )


def check_fit(model: "Model", length: int | None, sampling: Sampling) -> None:
    """Refuse settings of unconditional samples that the model cannot follow; nothing is drawn."""
    _maker(model, empty_canvas(1, length_of(model, length)), resolve(sampling, model.advice))


def decode(tokenizer: Tokenizer, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None) -> list[str]:
    """The texts, without padding and without states that the tokenizer has no token for (DUO's [PAD])."""
    known = ids < tokenizer.vocab_size if valid is None else (ids < tokenizer.vocab_size) & valid
    return [tokenizer.decode(row[kept].tolist()) for row, kept in zip(ids.cpu(), known.cpu(), strict=True)]


def answers_of(tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[str]:
    """The texts up to the first end of text or of turn."""
    ends = {*tokenizer.turn_ends, *([] if tokenizer.eos_id is None else [tokenizer.eos_id])}
    texts = []
    for row in rows:
        stop = next((place for place, token in enumerate(row) if token in ends), len(row))
        texts.append(tokenizer.decode([token for token in row[:stop] if token < tokenizer.vocab_size]))
    return texts


Maker = Callable[[Canvas, Streams, Run], Generated]


def _maker(model: "Model", canvas: Canvas, sampling: Sampling) -> Maker:
    """What turns a canvas into sequences: a diffusion step in the loop, or the sampler of an AR or a CANDI model."""
    process, V = model.process, model.network.config.vocab_size
    choice = choice_of(sampling)
    check_tokens(V, sampling)
    if process is None:
        _check_autoregressive(canvas, sampling)
        network = model.network
        assert isinstance(network, DiT)
        return lambda part, streams, run: generate_autoregressive(
            Remembering(network), V, part.given, part.settled, choice, streams, run.trace, run.watch
        )
    if isinstance(process, Hybrid):
        _check_hybrid(sampling)
        times, greedy = sampling.times, sampling.greedy_last
        return lambda part, streams, run: generate_candi(
            model.network,
            process,
            times,
            part.given,
            part.fixed,
            part.valid,
            choice,
            greedy,
            streams,
            run.trace,
            run.watch,
        )
    step = step_of(process, sampling)
    step.check(process, ~canvas.fixed if canvas.valid is None else ~canvas.fixed & canvas.valid)
    return lambda part, streams, run: generate(
        model.network, process, step, part.given, part.fixed, part.valid, streams, run.trace, run.watch
    )


def check_tokens(V: int, sampling: Sampling) -> None:
    """Ids that the settings speak of must be tokens of the model."""
    for name in ("exclude_tokens", "postpone_tokens"):
        unknown = [i for i in getattr(sampling, name) if i >= V]
        require(not unknown, f"{name} must be ids of tokens, 0..{V - 1}; got {unknown}")
    require(len(set(sampling.exclude_tokens)) < V, "exclude_tokens leaves no token to choose")


def _check_hybrid(sampling: Sampling) -> None:
    """Refuse settings that CANDI's only sampler does not have."""
    require(
        (sampling.order, sampling.corrector, sampling.temperature_on) == ("ancestral", 0, "prediction"),
        "order, corrector and temperature_on are for discrete processes; this model is CANDI's, with its own sampler: "
        "leave them out",
    )


def _check_autoregressive(canvas: Canvas, sampling: Sampling) -> None:
    """A causal network goes from left to right, one call per token."""
    prefix = canvas.fixed.cummin(1).values if canvas.fixed.numel() else canvas.fixed
    behind = canvas.valid is None or bool((canvas.valid == canvas.valid.cummin(1).values).all())
    require(
        bool((canvas.fixed == prefix).all()) and behind,
        "an autoregressive model cannot fill gaps before given tokens; use a diffusion model, or `complete`",
    )
    require(
        (sampling.order, sampling.corrector, sampling.grid, sampling.greedy_last) == ("ancestral", 0, "uniform", False)
        and sampling.temperature_on == "prediction",
        "order, corrector, grid, greedy_last and temperature_on are for diffusion models; this one is autoregressive: "
        "leave them out",
    )


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Without dropout, and with weights that stand still; the network's mode is put back."""
    before = network.training
    network.eval()
    try:
        with standing_weights():
            yield
    finally:
        network.train(before)
