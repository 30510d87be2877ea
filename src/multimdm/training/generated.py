"""Pairs that a model makes itself: noise, and the text that it leads to. As in rectified flows, they are trained on.

The first round of coupling finds noise for given texts, among few strings. Here a model that is coupled already finds
texts for given noise, in many steps: what all its steps decided is then learnt for the first one. The noise is exactly
uniform, while the texts are the model's and not the data's: what it does badly is learnt too. Many rounds are as many
runs, each begun with the last one's model.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm.data.prepared import Example
from multimdm.process import MultiMask, Streams
from multimdm.samplers import Ancestral, Choice, generate, time_grid
from multimdm.training.engine import Engine
from multimdm.training.noise_strings import NoiseStrings
from multimdm.training.seeds import derive
from multimdm.training.settings import GenerationSettings
from multimdm.training.teacher import Teacher

_TOGETHER = 64
"""Texts that are made at once: a constant, so that they are the same with any number of ranks."""
_TEXTS, _NUMBER = "generated.texts", "generated.number"


class GeneratedPairs:
    """The noise of every training text, and the text itself."""

    def __init__(
        self, settings: GenerationSettings, engine: Engine, teacher: Teacher, process: MultiMask, length: int, seed: int
    ) -> None:
        self.settings, self._engine, self._teacher, self._process = settings, engine, teacher, process
        self._noise = NoiseStrings(process, settings.size, length, settings.reuse, derive(seed, "generated noise"))
        self._seed = derive(seed, "generated texts")
        self._texts = torch.zeros((settings.size, length), dtype=torch.long)

    def due(self, first: int) -> bool:
        """Whether the text with this number is not made yet."""
        return not self._noise.serves(first)

    @torch.no_grad()
    def refresh(self, first: int) -> None:
        """New pairs, from the one with this number on. All ranks must call it."""
        self._noise.turn_to(first)
        n, strings = self.settings.size, self._noise.draw()
        sampler = Ancestral(time_grid("uniform", self.settings.steps), Choice(temperature=self.settings.temperature))
        texts = torch.zeros_like(strings)
        parts = [slice(start, min(start + _TOGETHER, n)) for start in range(0, n, _TOGETHER)]
        # A sharded network must run equally often on all ranks, so each makes all texts: a text that is finished early
        # takes fewer calls.
        shared = not self._engine.sharded
        for part in parts[self._engine.rank :: self._engine.ranks] if shared else parts:
            noise = strings[part].to(self._engine.device)
            streams = Streams.spawn(self._seed, len(noise), self._noise.number * n + part.start)
            made = generate(
                self._teacher, self._process, sampler, torch.zeros_like(noise), generator=streams, noise=noise
            )
            texts[part] = made.ids.cpu()
        self._texts = self._engine.sum(texts) if shared else texts

    def train(self, first: int, num: int) -> tuple[Example, Int64[Tensor, "num L"]]:
        """The texts number first .. first + num - 1, which belong to one set, and their noise."""
        _, places = self._noise.place(first, num)
        ids = self._texts[places]
        return Example(ids, torch.ones_like(ids, dtype=torch.bool)), self._noise.draw()[places]

    def measures(self) -> dict[str, float]:
        """Nothing that is worth a record."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs."""
        return {_TEXTS: self._texts.clone(), _NUMBER: torch.tensor(self._noise.number)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self._texts, self._noise.number = tensors[_TEXTS].clone(), int(tensors[_NUMBER])
