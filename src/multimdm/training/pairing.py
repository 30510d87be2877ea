"""Which noise belongs to which training text: matched set by set, ahead of the steps that use it.

Texts have numbers in the run (`sources.py`), so a set of n of them is known before its first step, and sets may be
larger than batches. Whenever `reuse` sets are used up, n new noise strings are drawn, the averaged network runs on them
once, at t = 1 and without gradient, and the next `reuse` sets of texts are matched with them. What is kept is small:
for each text the numbers of the strings that its noise is made of.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm.data.prepared import Example
from multimdm.objectives.matching import assign, match_blocks, matching_cost
from multimdm.objectives.settings import MatchingSettings
from multimdm.process import MultiMask
from multimdm.process.anchored import shown_with_end
from multimdm.training.engine import Engine
from multimdm.training.noise_strings import NoiseStrings
from multimdm.training.seeds import derive
from multimdm.training.sources import Source

_STRINGS = 32
"""Noise strings that the network runs on at once: a constant, so that sums are the same with any number of ranks."""
_ORIGIN, _NUMBER, _GAIN = "matching.origin", "matching.number", "matching.gain"


class Pairing:
    """The noise of every training text."""

    def __init__(
        self, settings: MatchingSettings, engine: Engine, process: MultiMask, source: Source, seed: int
    ) -> None:
        self.settings, self._engine, self._process, self._source = settings, engine, process, source
        L = source.length
        self._noise = NoiseStrings(process, settings.size, L, settings.reuse, derive(seed, "matching noise"))
        width = L if settings.blocks is None else settings.blocks
        self._places = [slice(first, min(first + width, L)) for first in range(0, L, width)]
        self._origin = torch.zeros((settings.reuse, settings.size, len(self._places)), dtype=torch.int32)
        self.gain = 0.0
        """By how much the matched noise makes the texts more probable than any other, in nats per text."""

    def due(self, first: int) -> bool:
        """Whether the text with this number needs noise that is not matched yet."""
        return not self._noise.serves(first)

    @torch.no_grad()
    def refresh(self, first: int) -> None:
        """New noise strings for the sets from the one with this text on. All ranks must call it.

        The network is run as it is: the caller puts the averaged weights in.
        """
        self._noise.turn_to(first)
        strings, gains = self._noise.draw().to(self._engine.device), []
        features = self._features(strings)
        for turn in range(self.settings.reuse):
            example = self._source.train(self._noise.first + turn * self.settings.size, self.settings.size)
            costs = self._costs(features, *example.on(self._engine.device))
            whole = assign(costs.sum(0), self.settings.solver)
            origin = whole[:, None]
            if len(self._places) > 1:
                origin = match_blocks(whole, costs, self.settings.group, self.settings.solver)
            self._origin[turn] = origin
            chosen = costs.gather(2, origin.T[:, :, None]).sum() / self.settings.size
            gains.append(float(costs.sum(0).mean() - chosen))
        self.gain = sum(gains) / len(gains)

    def train(self, first: int, num: int) -> tuple[Example, Int64[Tensor, "num L"]]:
        """The texts number first .. first + num - 1, which belong to one set, and their noise."""
        return self._source.train(first, num), self.noise(first, num)

    def measures(self) -> dict[str, float]:
        """What is worth a record."""
        return {"matching_gain": self.gain}

    def noise(self, first: int, num: int) -> Int64[Tensor, "num L"]:
        """x_1 of the texts number first .. first + num - 1, which belong to one set."""
        turn, places = self._noise.place(first, num)
        origin, strings = self._origin[turn, places].long(), self._noise.draw()
        return torch.cat([strings[origin[:, b], where] for b, where in enumerate(self._places)], dim=1)

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs."""
        return {
            _ORIGIN: self._origin.clone(),
            _NUMBER: torch.tensor(self._noise.number),
            _GAIN: torch.tensor(self.gain, dtype=torch.float64),
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self._origin.copy_(tensors[_ORIGIN])
        self._noise.number, self.gain = int(tensors[_NUMBER]), float(tensors[_GAIN])

    def _features(self, strings: Tensor) -> list[tuple[slice, Tensor]]:
        """What the head sees at t = 1, for this rank's share of the strings.

        A sharded network must run equally often on all ranks, so that ranks with a smaller share run once in vain.
        """
        n, rank, ranks = self.settings.size, self._engine.rank, self._engine.ranks
        parts = [slice(start, min(start + _STRINGS, n)) for start in range(0, n, _STRINGS)]
        found = []
        for first in range(0, len(parts), ranks):
            own = parts[min(first + rank, len(parts) - 1)]
            ones = torch.ones(own.stop - own.start, dtype=torch.float64, device=strings.device)
            with self._engine.autocast():
                shown = shown_with_end(self._process, strings[own], strings[own])
                features = self._engine.network.features(shown, ones)
            if first + rank < len(parts):
                found.append((own, features))
        return found

    def _costs(self, features: list[tuple[slice, Tensor]], ids: Tensor, valid: Tensor | None) -> Tensor:
        """[blocks, n texts, n strings], of all ranks' shares."""
        n = self.settings.size
        costs = torch.zeros((len(self._places), n, n), dtype=torch.float32)
        for b, where in enumerate(self._places):
            counted = None if valid is None else valid[:, where]
            for own, part in features:
                costs[b, :, own] = matching_cost(self._engine.network, part[:, where], ids[:, where], counted).cpu()
        return self._engine.sum(costs)
