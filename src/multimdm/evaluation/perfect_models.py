"""Models whose network is the perfect one, by name: `perfect:M=20,rho=0.5` is measured where a checkpoint could be.

A name lists what differs from masked diffusion with one mask, rho = 1 and the assignment modulo M: M=20, rho=0.5,
random or frequency (assignments), cosine (alpha), tied (x_1 is kept and shown), context (masks are read by Bayes' rule,
so that temperature spares what they tell), uniform (uniform states), epsilon=1e-4 (of the judged source); or like=PATH,
for the process of a checkpoint.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.data.tales import Tales, tales_tokenizer
from multimdm.evaluation.perfect_network import PerfectNetwork
from multimdm.evaluation.tales_models import fingerprint_of_tales
from multimdm.pipeline import Model, load
from multimdm.pipeline.settings import describe_process
from multimdm.process import (
    AnyProcess,
    MultiMask,
    Process,
    Schedule,
    Streams,
    Uniform,
    frequency_balanced,
    modulo,
    random_balanced,
)

PERFECT = "perfect"
_ITEM = re.compile(r"(M|rho|epsilon)=?([\d.eE+-]+)|(random|frequency|cosine|tied|context|uniform)")
_LIKE = "like="
_COUNTED = 10_000
"""Stories by which the frequency of tokens is known."""
_COUNTING_SEED = 0xC0


@dataclass
class PerfectModel(Model):
    """A model of Tales that makes no mistake of its own."""

    network: PerfectNetwork  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def fingerprint(self) -> str:
        """A hash of all that its predictions depend on: the stories, epsilon and the process."""
        network, process = self.network, self.process
        assert process is not None
        said = [PERFECT, fingerprint_of_tales(network.tales), repr(network.epsilon), repr(describe_process(process))]
        said += [repr(process.assignment.tolist())] if isinstance(process, MultiMask) else []
        return hashlib.sha256("\n".join(said).encode()).hexdigest()

    @property
    def size(self) -> str:
        """What is said in place of the number of parameters."""
        return f"exact predictions in place of a network (Tales with epsilon = {self.network.epsilon:g})"

    def save(self, path: str | Path, replace: bool = False) -> None:
        """There is nothing to save."""
        raise ValueError(f"the perfect network has no weights to save to {path}: its name says all of it")


def is_perfect(name: str) -> bool:
    """Whether this is the name of a perfect model; a directory of that name is a checkpoint."""
    return (name == PERFECT or name.startswith(f"{PERFECT}:")) and not Path(name).exists()


def perfect_model(process: AnyProcess | None, tales: Tales, epsilon: float | int = Tales.EPSILON) -> PerfectModel:
    """The model of Tales with this process that no training could improve on."""
    if not isinstance(process, Process):
        raise ValueError(f"the perfect network is for masks and for uniform states; got {process!r}")
    return PerfectModel(PerfectNetwork(tales, process, epsilon).eval(), process, tales_tokenizer(tales))


def open_perfect(name: str) -> PerfectModel:
    """The model that a name means."""
    tales, said = Tales(), name.removeprefix(PERFECT).removeprefix(":")
    if said.startswith(_LIKE):
        return perfect_model(load(said.removeprefix(_LIKE)).process, tales)
    numbers, words = _parsed(name, said)
    return perfect_model(_process(name, tales, numbers, words), tales, numbers.get("epsilon", Tales.EPSILON))


def _parsed(name: str, said: str) -> tuple[dict[str, float], set[str]]:
    """What a name says, as numbers and words."""
    numbers: dict[str, float] = {}
    words: set[str] = set()
    for item in filter(None, said.split(",")):
        found = _ITEM.fullmatch(item)
        if found is None:
            raise ValueError(
                f"{name}: '{item}' is none of M=20, rho=0.5, epsilon=1e-4, random, frequency, cosine, tied, context, "
                f"uniform; for the process of a checkpoint: {PERFECT}:{_LIKE}PATH"
            )
        key, number, word = found.groups()
        if key is not None:
            numbers[key] = _number(name, item, number)
        else:
            words.add(word)
    if "uniform" in words and ({"M", "rho"} & {*numbers} or words - {"uniform", "cosine"}):
        raise ValueError(f"{name}: uniform states have no masks; only cosine and epsilon go with them")
    return numbers, words


def _number(name: str, item: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise ValueError(f"{name}: '{item}' must have a number; got '{number}'") from None


def _process(name: str, tales: Tales, numbers: dict[str, float], words: set[str]) -> MultiMask | Uniform:
    V, M = tales.vocab_size, numbers.get("M", 1.0)
    require(int(M) == M, f"{name}: M must be a whole number; got {M:g}")
    kind: Literal["linear", "cosine"] = "cosine" if "cosine" in words else "linear"
    schedule = Schedule(numbers.get("rho", 1.0), kind)
    if "uniform" in words:
        return Uniform(V, schedule)
    assignment = _assignment(tales, int(M), words)
    if "tied" in words:
        require("context" not in words, f"{name}: context is not for tied noise; leave one of them out")
        return MultiMask(V, int(M), schedule, assignment).tied(noise_shown=True)
    return MultiMask(V, int(M), schedule, assignment, readout="context" if "context" in words else "posterior")


def _assignment(tales: Tales, num_masks: int, words: set[str]) -> Tensor:
    if "random" in words:
        return random_balanced(tales.vocab_size, num_masks)
    if "frequency" in words:
        ids = tales.sample(_COUNTED, Streams.spawn(_COUNTING_SEED, _COUNTED))
        return frequency_balanced(torch.bincount(ids.flatten(), minlength=tales.vocab_size), num_masks)
    return modulo(tales.vocab_size, num_masks)
