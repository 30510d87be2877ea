"""Noise strings that many training texts share, set by set.

Texts have numbers in the run (`sources.py`). A set of n strings serves `reuse` sets of n texts, one after the other:
each string belongs to one text of every set. Strings are a function of their numbers, so that they are drawn again
whenever they are needed, and a run remembers no more than which set is in use.
"""

from jaxtyping import Int64
from torch import Tensor

from multimdm.process import MultiMask, Streams
from multimdm.process.checks import require


class NoiseStrings:
    """The set of strings that is in use."""

    def __init__(self, process: MultiMask, size: int, length: int, reuse: int, seed: int) -> None:
        self.size, self.length, self.reuse = size, length, reuse
        self._process, self._seed = process, seed
        self.number = -1
        """Of the set, -1 before the first."""

    @property
    def first(self) -> int:
        """The number of the first text that the set serves."""
        return self.number * self.size * self.reuse

    def serves(self, text: int) -> bool:
        """Whether the text with this number has its noise in the set."""
        return self._set_of(text) == self.number

    def turn_to(self, text: int) -> None:
        """Use the set that serves this text."""
        self.number = self._set_of(text)

    def draw(self) -> Int64[Tensor, "n L"]:
        """x_1, all positions independent and uniform."""
        streams = Streams.spawn(self._seed, self.size, self.number * self.size)
        return self._process.prior((self.size, self.length), streams)

    def place(self, first: int, num: int) -> tuple[int, slice]:
        """Where the texts number first .. first + num - 1 are: which time the set is used, and which places in it."""
        turn, start = divmod(first - self.first, self.size)
        require(
            self.number >= 0 and 0 <= turn < self.reuse and start + num <= self.size,
            f"texts {first} to {first + num - 1} are not those that the noise in use is for",
        )
        return turn, slice(start, start + num)

    def _set_of(self, text: int) -> int:
        return text // (self.size * self.reuse)
