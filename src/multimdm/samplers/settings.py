"""How to sample: one schema for the library, the command line and the server. Imports no torch."""

from dataclasses import dataclass
from numbers import Real
from typing import Literal

from multimdm.samplers.grid import Grid, time_grid

_USUAL_STEPS = 4
_COLDEST = 1e-6
"""Logits divided by less would leave the range of float32."""


@dataclass(frozen=True)
class Effort:
    """How much work a sample is and how bold it may be: what measurements vary."""

    steps: int | None = None
    """Network calls K: 4 unless given. A list of times has its own K; an autoregressive model calls once per token."""
    temperature: float | int = 1.0
    """tau: logits are divided by it before the softmax. 0 takes the most probable token."""


@dataclass(frozen=True)
class Law:
    """What is drawn, at any K and tau."""

    top_p: float | int = 1.0
    """Draw clean tokens from the fewest most probable ones that hold this share of the probability."""
    top_k: int | None = None
    """Draw clean tokens from this many most probable ones."""
    greedy_last: bool = False
    """Take the most probable token in the last step."""
    grid: Grid = "uniform"
    """Times of the steps: uniform, cosine (short steps near the noise), or a list from 1 down to 0."""
    corrector: float | int = 0.0
    """Share of visible tokens that every step masks again and predicts anew, as far as the marginals allow."""
    order: Literal["ancestral", "confidence"] = "ancestral"
    """Reveal at random, as the process says, or the most confident positions first."""
    block_length: int | None = None
    """With --order confidence: make blocks of this length one after the other (LLaDA); all at once unless given."""
    threshold: float | int | None = None
    """With --order confidence: also reveal every position of at least this confidence; saves calls."""
    remasking: Literal["low_confidence", "random"] = "low_confidence"
    """With --order confidence: keep the least sure positions masked, or any."""
    guidance: float | int = 0.0
    """With --order confidence: classifier-free guidance away from what would be said without the given tokens; 0 is
    off. Doubles the network calls."""
    exclude_tokens: tuple[int, ...] = ()
    """Ids that are never chosen."""
    postpone_tokens: tuple[int, ...] = ()
    """With --order confidence: ids whose positions are revealed last, such as the end of text."""

    def check(self) -> None:
        """Raise a ValueError that names the field, its value and the remedy."""
        if not _number(self.top_p) or not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1] (1 keeps every token); got {self.top_p!r}")
        if self.top_k is not None and (not _whole(self.top_k) or self.top_k < 1):
            raise ValueError(f"top_k must be an integer of at least 1, or left out; got {self.top_k!r}")
        if not _number(self.corrector) or not 0 <= self.corrector <= 1:
            raise ValueError(f"corrector must lie in [0, 1] (0 is off); got {self.corrector!r}")
        if self.order not in ("ancestral", "confidence"):
            raise ValueError(f"order must be 'ancestral' or 'confidence'; got {self.order!r}")
        if self.order == "confidence":
            self._check_confidence()
        else:
            for name in ("block_length", "threshold", "remasking", "guidance", "postpone_tokens"):
                if getattr(self, name) != getattr(_USUAL_LAW, name):
                    raise ValueError(f"{name} needs order='confidence'; got {getattr(self, name)!r} without it")
        for name in ("exclude_tokens", "postpone_tokens"):
            ids = getattr(self, name)
            if not isinstance(ids, tuple) or not all(_whole(i) and i >= 0 for i in ids):
                raise ValueError(f"{name} must be a tuple of ids of at least 0; got {ids!r}")

    def _check_confidence(self) -> None:
        if self.corrector:
            raise ValueError(f"corrector must be 0 with order='confidence'; got {self.corrector!r}")
        if self.grid != "uniform":
            raise ValueError(f"grid must be left out with order='confidence', which makes its own; got {self.grid!r}")
        if self.greedy_last:
            raise ValueError("greedy_last must be off with order='confidence'; use temperature=0 for greedy tokens")
        if self.block_length is not None and (not _whole(self.block_length) or self.block_length < 1):
            raise ValueError(f"block_length must be an integer of at least 1, or left out; got {self.block_length!r}")
        if self.threshold is not None and (not _number(self.threshold) or not 0 < self.threshold <= 1):
            raise ValueError(f"threshold must lie in (0, 1], or be left out; got {self.threshold!r}")
        if self.remasking not in ("low_confidence", "random"):
            raise ValueError(f"remasking must be 'low_confidence' or 'random'; got {self.remasking!r}")
        if self.remasking == "random" and self.threshold is not None:
            raise ValueError(f"threshold must be left out with remasking='random'; got {self.threshold!r}")
        if not _number(self.guidance) or not 0 <= self.guidance < float("inf"):
            raise ValueError(f"guidance must be a finite number of at least 0 (0 is off); got {self.guidance!r}")


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
        usual = _USUAL_STEPS if isinstance(self.grid, str) else None
        return time_grid(self.grid, usual if self.steps is None else self.steps)

    def check(self) -> None:
        """Raise a ValueError that names the field, its value and the remedy."""
        _ = self.times  # checks steps and grid
        if not _number(self.temperature) or not (self.temperature == 0 or _COLDEST <= self.temperature < float("inf")):
            raise ValueError(
                f"temperature must be 0 (the most probable token) or a finite number of at least {_COLDEST}; "
                f"got {self.temperature!r}"
            )
        super().check()


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
