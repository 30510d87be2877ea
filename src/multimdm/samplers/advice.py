"""How a checkpoint wants to be sampled, and what comes of it together with what a user says. Imports no torch."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from multimdm.process.settings import PromptForm
from multimdm.samplers.settings import USUAL_STEPS, Order, Sampling, Threshold


@dataclass(frozen=True)
class SamplingAdvice:
    """Settings that were found good for a model; None where there is no advice."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    order: Order | None = None
    temperature: float | int | None = None
    grid: Literal["uniform", "cosine"] | None = None
    """The grid of ancestral steps. A list of times is no advice: it would have a K of its own, and fit no other."""
    threshold: Threshold | None = None
    """The threshold of the order that is advised."""
    steps: int | None = None
    prompts: PromptForm | None = None
    """How prompts are to be written for a model that learnt answers."""

    def __post_init__(self) -> None:
        settings = {name: value for name, value in asdict(self).items() if name != "prompts"}
        Sampling(**{**settings, "order": self.order or "ancestral"}).check()


def resolve(given: Sampling, advice: SamplingAdvice | None = None) -> Sampling:
    """What is given, else what is advised, else what is usual; checked.

    What is given always wins, and advice that does not go with it is dropped: an order to which a given setting is
    strange (a grid to confidence, say) and then its threshold, steps beside a list of times, and temperature 0 beside
    top-p or top-k, which would mean nothing.
    """
    advice = _fitting(given, SamplingAdvice() if advice is None else advice)
    order: Order = given.order or advice.order or "ancestral"
    listed = not isinstance(given.grid, str | None)
    resolved = replace(
        given,
        order=order,
        temperature=_first(given.temperature, advice.temperature, 1.0),
        grid=_first(given.grid, advice.grid or "uniform") if order == "ancestral" else given.grid,
        threshold=_first(given.threshold, advice.threshold),
        steps=given.steps if listed else _first(given.steps, advice.steps, USUAL_STEPS),
    )
    resolved.check()
    return resolved


def _fitting(given: Sampling, advice: SamplingAdvice) -> SamplingAdvice:
    """The advice that goes with what is given."""
    if advice.order is not None and (given.order not in (None, advice.order) or given.misplaced(advice.order)):
        advice = replace(advice, order=None, threshold=None)
    if given.remasking == "random":
        advice = replace(advice, threshold=None)
    if advice.temperature == 0 and (given.top_p != 1 or given.top_k is not None):
        advice = replace(advice, temperature=None)
    return advice


def _first(*values: Any) -> Any:
    """The first that says something."""
    return next((value for value in values if value is not None), None)
