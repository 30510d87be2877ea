"""How to sample: one schema for the library, the command line and the server. Imports no torch.

What is None here was not said: the checkpoint's advice is followed, else what is usual (`advice.resolve`).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WrapValidator, create_model
from pydantic_core import PydanticCustomError

from multimdm.samplers.grid import Grid, time_grid

Order = Literal["ancestral", "confidence", "left_to_right", "rewrite"]
"""The order in which tokens are settled."""
ORDERS: tuple[Order, ...] = get_args(Order)

Threshold = float | int | Literal["by_steps"]
"""The confidence from which on a position is sure; by_steps is K / (K + 1) for K calls."""

TemperatureOn = Literal["prediction", "posterior"]
"""What temperature, top-p and top-k act on."""

Remasking = Literal["low_confidence", "low_certainty", "random"]
"""Which positions stay masked."""

USUAL_STEPS = 4
SURE_RUN = 0.9
"""Confidence that positions of a run from left to right have, unless a threshold is given."""
_COLDEST = 1e-6
"""Logits divided by less would leave the range of float32."""

BROKEN = "setting"
"""The type of pydantic's errors whose message is complete: it names the field, its value and the remedy."""


def _rule(says: str, holds: Callable[[Any], bool] = lambda value: True) -> WrapValidator:
    """What a setting must be, beyond its type; a value of another type is refused in the same words."""

    def checked(value: Any, of_type: Any, info: Any) -> Any:
        with suppress(ValidationError):
            found = of_type(value)
            if found is None or holds(found):
                return found
        raise _broken(f"{info.field_name} {says}; got {repr(value)[:80]}")

    return WrapValidator(checked)


def _checked_grid(value: Any, of_type: Any) -> Any:
    """A list, as JSON has it, becomes a tuple; what is no grid is refused."""
    try:
        grid = of_type(tuple(value) if isinstance(value, list) else value)
    except ValidationError:
        says = "grid must be 'uniform', 'cosine' or a list of times from 1 down to 0"
        raise _broken(f"{says}; got {repr(value)[:80]}") from None
    if isinstance(grid, tuple):
        try:
            time_grid(grid)
        except ValueError as error:
            raise _broken(str(error)) from None
    return grid


def _broken(complaint: str) -> PydanticCustomError:
    return PydanticCustomError(BROKEN, "{complaint}", {"complaint": complaint})


_IDS = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
_OF_IDS = _rule("must be ids of at least 0", lambda ids: all(i >= 0 for i in ids))
_COUNT = _rule("must be an integer of at least 1, or left out", lambda number: number >= 1)

_ONLY_WITH: dict[str, tuple[Order, ...]] = {
    "corrector": ("ancestral",),
    "grid": ("ancestral",),
    "greedy_last": ("ancestral",),
    "block_length": ("confidence",),
    "threshold": ("confidence", "left_to_right"),
    "remasking": ("confidence",),
    "guidance": ("confidence",),
    "postpone_tokens": ("confidence",),
}
"""Settings that have a meaning with some orders only."""
_OFF = {
    "corrector": "must be 0 with order='{order}'; got {value!r}",
    "grid": "must be left out with order='{order}', which has times of its own; got {value!r}",
    "greedy_last": "must be off with order='{order}'; use temperature=0 for greedy tokens",
}
"""How the ones are refused that only ancestral steps have."""


@dataclass(frozen=True)
class StepsAndTemperature:
    """How much work a sample is and how bold it may be: what measurements vary."""

    steps: Annotated[int | None, _rule("must be an integer of at least 1", lambda steps: steps >= 1)] = None
    """Network calls K, at most: unless given, as the checkpoint advises, else 4. A list of times has its own K; an
    autoregressive model calls once per token."""
    temperature: Annotated[
        float | int | None,
        _rule(
            f"must be 0 (the most probable token) or a finite number of at least {_COLDEST}",
            lambda tau: tau == 0 or _COLDEST <= tau < float("inf"),
        ),
    ] = None
    """tau: logits are divided by it before the softmax. 0 takes the most probable token. Unless given, as the
    checkpoint advises, else 1."""


@dataclass(frozen=True)
class SamplingRules:
    """What is drawn, at any K and tau."""

    top_p: Annotated[float | int, _rule("must lie in (0, 1] (1 keeps every token)", lambda p: 0 < p <= 1)] = 1.0
    """Draw clean tokens from the fewest most probable ones that hold this share of the probability."""
    top_k: Annotated[int | None, _COUNT] = None
    """Draw clean tokens from this many most probable ones."""
    temperature_on: Annotated[TemperatureOn, _rule("must be 'prediction' or 'posterior'")] = "prediction"
    """Temperature, top-p and top-k act on what the network predicts or, with posterior, after the evidence of the state
    has joined. Only uniform states and masks that are read by Bayes' rule (readout: context) tell the two apart: at
    temperature 0 prediction takes what the context makes most probable, posterior what context and state do."""
    greedy_last: Annotated[bool, _rule("must be true or false")] = False
    """Take the most probable token in the last step."""
    grid: Annotated[Grid | None, WrapValidator(_checked_grid)] = None
    """With --order ancestral, times of the steps: uniform, cosine (short steps near the noise), or a list from 1 down
    to 0. Unless given, as the checkpoint advises, else uniform."""
    corrector: Annotated[float | int, _rule("must lie in [0, 1] (0 is off)", lambda share: 0 <= share <= 1)] = 0.0
    """Share of visible tokens that every step masks again and predicts anew, as far as the marginals allow."""
    order: Annotated[Order | None, _rule(f"must be one of {', '.join(ORDERS)}")] = None
    """Reveal at random, as the process says (ancestral); the most confident positions first; runs of sure positions
    from left to right; or rewrite the whole text in every call until nothing changes (for models that are shown their
    noise). Unless given, as the checkpoint advises, else ancestral."""
    block_length: Annotated[int | None, _COUNT] = None
    """With --order confidence: make blocks of this length one after the other (LLaDA); all at once unless given."""
    threshold: Annotated[
        Threshold | None,
        _rule("must lie in (0, 1], or be 'by_steps' or left out", lambda least: least == "by_steps" or 0 < least <= 1),
    ] = None
    """With --order confidence: also reveal every position of at least this confidence; saves calls, or leaves them for
    what is less sure. With --order left_to_right: the least confidence within a run (0.9). by_steps is K / (K + 1):
    the fewer the calls, the less is asked of a position. Unless given, as the checkpoint advises for that order."""
    remasking: Annotated[Remasking, _rule("must be 'low_confidence', 'low_certainty' or 'random'")] = "low_confidence"
    """With --order confidence: keep the positions masked whose drawn token is least probable, or whose prediction is
    least certain whatever is drawn (such a sampler has an exact likelihood), or any."""
    guidance: Annotated[
        float | int,
        _rule("must be a finite number of at least 0 (0 is off)", lambda scale: 0 <= scale < float("inf")),
    ] = 0.0
    """With --order confidence: classifier-free guidance away from what would be said without the given tokens; 0 is
    off. Doubles the network calls."""
    exclude_tokens: Annotated[tuple[int, ...], _IDS, _OF_IDS] = ()
    """Ids that are never chosen."""
    postpone_tokens: Annotated[tuple[int, ...], _IDS, _OF_IDS] = ()
    """With --order confidence: ids whose positions are revealed last, such as the end of text."""


@dataclass(frozen=True)
class Sampling(SamplingRules, StepsAndTemperature):
    """What is drawn; seeds and batches are not part of it, since they do not change the law."""

    @property
    def num_steps(self) -> int:
        """K."""
        return len(self.times) - 1

    @property
    def times(self) -> tuple[float, ...]:
        """The grid, from 1 down to 0."""
        grid = "uniform" if self.grid is None else self.grid
        usual = USUAL_STEPS if isinstance(grid, str) else None
        return time_grid(grid, usual if self.steps is None else self.steps)

    def check(self) -> None:
        """Raise a ValueError that names the field, its value and the remedy."""
        try:
            _schema()(**vars(self))
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"]) from None
        _ = self.times  # checks steps and grid together
        if self.remasking == "random" and self.threshold is not None:
            raise ValueError(f"threshold must be left out with remasking='random'; got {self.threshold!r}")
        if self.order is not None:
            if misplaced := self.misplaced(self.order):
                raise ValueError(_refusal(misplaced[0], getattr(self, misplaced[0]), self.order))
        elif all(self.misplaced(order) for order in ORDERS):
            given = [name for name in _ONLY_WITH if self._says(name)]
            raise ValueError(f"{' and '.join(given)} are for different orders; leave some of them out")

    def misplaced(self, order: Order) -> list[str]:
        """Names of settings that are given and mean nothing with this order."""
        return [name for name, orders in _ONLY_WITH.items() if order not in orders and self._says(name)]

    def _says(self, name: str) -> bool:
        return getattr(self, name) != getattr(_SILENT, name)


_SILENT = Sampling()
"""The settings that say nothing."""


_NEW = "new_tokens, or length, which counts the prompt too"
_STEPS = "steps"
OUR_WORDS = {
    "max_new_tokens": _NEW,
    "max_tokens": _NEW,
    "max_completion_tokens": _NEW,
    "gen_length": _NEW,
    "max_length": "length",
    "num_return_sequences": "num",
    "num_samples": "num",
    "n": "num",
    "num_inference_steps": _STEPS,
    "num_steps": _STEPS,
    "diffusion_steps": _STEPS,
    "do_sample": "temperature: 0 takes the most probable token",
    "sampler": "order",
}
"""What other libraries call an option -> what it is called here and, with dashes, on the command line."""


def our_word(name: str) -> str | None:
    """What follows "here it is"; None if the name means nothing to us."""
    return OUR_WORDS.get(name.replace("-", "_"))


def types_of_settings() -> dict[str, Any]:
    """Setting -> its type with its rule, as pydantic takes them."""
    hints = get_type_hints(Sampling, include_extras=True)
    return {field.name: hints[field.name] for field in fields(Sampling)}


@cache
def _schema() -> type[BaseModel]:
    """All rules about single settings."""
    named: dict[str, Any] = {name: (kind, ...) for name, kind in types_of_settings().items()}
    return create_model("Settings", __config__=ConfigDict(strict=True), **named)


def _refusal(name: str, value: object, order: Order) -> str:
    """Why a setting does not go with an order."""
    if name in _OFF:
        return f"{name} {_OFF[name].format(order=order, value=value)}"
    wanted = " or ".join(f"'{one}'" for one in _ONLY_WITH[name])
    return f"{name} needs order={wanted}; got {value!r} without it"
