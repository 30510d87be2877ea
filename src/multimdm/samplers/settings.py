"""How to sample: one schema for the library, the command line and the server. Imports no torch.

What is None here was not said: the checkpoint's advice is followed, else what is usual (`advice.resolve`).
"""

from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from multimdm.samplers.grid import Grid, time_grid

Order = Literal["ancestral", "confidence", "left_to_right", "rewrite"]
"""In which order tokens are settled."""
ORDERS: tuple[Order, ...] = get_args(Order)

Threshold = float | int | Literal["by_steps"]
"""From which confidence on a position is sure; by_steps is K / (K + 1) for K calls."""

TemperatureOn = Literal["prediction", "posterior"]
"""What temperature, top-p and top-k act on."""

USUAL_STEPS = 4
SURE_RUN = 0.9
"""Confidence that positions of a run from left to right have, unless a threshold is given."""
_COLDEST = 1e-6
"""Logits divided by less would leave the range of float32."""

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
class Effort:
    """How much work a sample is and how bold it may be: what measurements vary."""

    steps: int | None = None
    """Network calls K, at most: unless given, as the checkpoint advises, else 4. A list of times has its own K; an
    autoregressive model calls once per token."""
    temperature: float | int | None = None
    """tau: logits are divided by it before the softmax. 0 takes the most probable token. Unless given, as the
    checkpoint advises, else 1."""


@dataclass(frozen=True)
class Law:
    """What is drawn, at any K and tau."""

    top_p: float | int = 1.0
    """Draw clean tokens from the fewest most probable ones that hold this share of the probability."""
    top_k: int | None = None
    """Draw clean tokens from this many most probable ones."""
    temperature_on: TemperatureOn = "prediction"
    """Temperature, top-p and top-k act on what the network predicts or, with posterior, after the evidence of the state
    has joined. Only uniform states and masks that are read by Bayes' rule (readout: context) tell the two apart: at
    temperature 0 prediction takes what the context makes most probable, posterior what context and state do."""
    greedy_last: bool = False
    """Take the most probable token in the last step."""
    grid: Grid | None = None
    """With --order ancestral, times of the steps: uniform, cosine (short steps near the noise), or a list from 1 down
    to 0. Unless given, as the checkpoint advises, else uniform."""
    corrector: float | int = 0.0
    """Share of visible tokens that every step masks again and predicts anew, as far as the marginals allow."""
    order: Order | None = None
    """Reveal at random, as the process says (ancestral); the most confident positions first; runs of sure positions
    from left to right; or rewrite the whole text in every call until nothing changes (for models that are shown their
    noise). Unless given, as the checkpoint advises, else ancestral."""
    block_length: int | None = None
    """With --order confidence: make blocks of this length one after the other (LLaDA); all at once unless given."""
    threshold: Threshold | None = None
    """With --order confidence: also reveal every position of at least this confidence; saves calls, or leaves them for
    what is less sure. With --order left_to_right: the least confidence within a run (0.9). by_steps is K / (K + 1):
    the fewer the calls, the less is asked of a position. Unless given, as the checkpoint advises for that order."""
    remasking: Literal["low_confidence", "low_certainty", "random"] = "low_confidence"
    """With --order confidence: keep the positions masked whose drawn token is least probable, or whose prediction is
    least certain whatever is drawn (such a sampler has an exact likelihood), or any."""
    guidance: float | int = 0.0
    """With --order confidence: classifier-free guidance away from what would be said without the given tokens; 0 is
    off. Doubles the network calls."""
    exclude_tokens: tuple[int, ...] = ()
    """Ids that are never chosen."""
    postpone_tokens: tuple[int, ...] = ()
    """With --order confidence: ids whose positions are revealed last, such as the end of text."""

    def check(self) -> None:
        """Raise a ValueError that names the field, its value and the remedy."""
        self._check_values()
        if self.order is not None:
            if strangers := self.strangers(self.order):
                raise ValueError(_refusal(strangers[0], getattr(self, strangers[0]), self.order))
        elif all(self.strangers(order) for order in ORDERS):
            given = [name for name in _ONLY_WITH if self._says(name)]
            raise ValueError(f"{' and '.join(given)} are for different orders; leave some of them out")

    def strangers(self, order: Order) -> list[str]:
        """Names of settings that are given and mean nothing with this order."""
        return [name for name, orders in _ONLY_WITH.items() if order not in orders and self._says(name)]

    def _says(self, name: str) -> bool:
        return getattr(self, name) != getattr(_USUAL_LAW, name)

    def _check_values(self) -> None:
        if not _number(self.top_p) or not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1] (1 keeps every token); got {self.top_p!r}")
        if self.top_k is not None and (not _whole(self.top_k) or self.top_k < 1):
            raise ValueError(f"top_k must be an integer of at least 1, or left out; got {self.top_k!r}")
        if self.temperature_on not in get_args(TemperatureOn):
            raise ValueError(f"temperature_on must be 'prediction' or 'posterior'; got {self.temperature_on!r}")
        if not _number(self.corrector) or not 0 <= self.corrector <= 1:
            raise ValueError(f"corrector must lie in [0, 1] (0 is off); got {self.corrector!r}")
        if self.order not in (None, *ORDERS):
            raise ValueError(f"order must be one of {', '.join(ORDERS)}; got {self.order!r}")
        if self.block_length is not None and (not _whole(self.block_length) or self.block_length < 1):
            raise ValueError(f"block_length must be an integer of at least 1, or left out; got {self.block_length!r}")
        if self.threshold not in (None, "by_steps") and not (_number(self.threshold) and 0 < self.threshold <= 1):
            raise ValueError(f"threshold must lie in (0, 1], or be 'by_steps' or left out; got {self.threshold!r}")
        if self.remasking not in ("low_confidence", "low_certainty", "random"):
            raise ValueError(f"remasking must be 'low_confidence', 'low_certainty' or 'random'; got {self.remasking!r}")
        if self.remasking == "random" and self.threshold is not None:
            raise ValueError(f"threshold must be left out with remasking='random'; got {self.threshold!r}")
        if not _number(self.guidance) or not 0 <= self.guidance < float("inf"):
            raise ValueError(f"guidance must be a finite number of at least 0 (0 is off); got {self.guidance!r}")
        for name in ("exclude_tokens", "postpone_tokens"):
            ids = getattr(self, name)
            if not isinstance(ids, tuple) or not all(_whole(i) and i >= 0 for i in ids):
                raise ValueError(f"{name} must be a tuple of ids of at least 0; got {ids!r}")


_USUAL_LAW = Law()


@dataclass(frozen=True)
class Sampling(Law, Effort):
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
        _ = self.times  # checks steps and grid
        tau = 1.0 if self.temperature is None else self.temperature
        if not _number(tau) or not (tau == 0 or _COLDEST <= tau < float("inf")):
            raise ValueError(
                f"temperature must be 0 (the most probable token) or a finite number of at least {_COLDEST}; "
                f"got {self.temperature!r}"
            )
        super().check()


def _refusal(name: str, value: object, order: Order) -> str:
    """Why a setting does not go with an order."""
    if name in _OFF:
        return f"{name} {_OFF[name].format(order=order, value=value)}"
    wanted = " or ".join(f"'{one}'" for one in _ONLY_WITH[name])
    return f"{name} needs order={wanted}; got {value!r} without it"


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
