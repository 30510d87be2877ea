"""A causal network that is asked again and again about longer beginnings of the same texts."""

from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from multimdm._checks import require
from multimdm.models.dit import DiT
from multimdm.models.head import Reduce
from multimdm.models.memory import KeysAndValues
from multimdm.process import Time


class Remembering:
    """The network, to be called as it is itself; what it has been shown before is not looked at again.

    A text of L tokens then takes L positions, not L calls of up to L positions. Each call must show the beginning
    that the last one showed and at least one more position; only of the new ones can predictions be asked for.
    """

    def __init__(self, network: DiT) -> None:
        require(network.config.causal, "only a causal network can remember: in others earlier positions see later ones")
        self._network = network
        self._memory = [KeysAndValues() for _ in network.blocks]

    @torch.no_grad()
    def __call__(
        self,
        x_t: Int[Tensor, "B L"],
        t: Time | None = None,
        positions: Bool[Tensor, "B L"] | None = None,
        valid: Bool[Tensor, "B L"] | None = None,
        reduce: Reduce | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """What the network says of the new positions, or of those among them that are asked for."""
        require(valid is None, "valid must be left out: a beginning has no padding")
        seen = self._memory[0].length
        require(
            x_t.shape[1] > seen, f"x_t must have more than the {seen} positions that were shown; got {x_t.shape[1]}"
        )
        asked = None if positions is None else positions[:, seen:]
        with self._not_compiled():
            features = self._network.features(x_t[:, seen:], t, asked, memory=self._memory)
        return self._network.read(features, reduce)

    def _not_compiled(self) -> AbstractContextManager:
        """Blocks that are compiled for training would be compiled anew for beginnings of other lengths."""
        compiled = any(getattr(block, "_compiled_call_impl", None) is not None for block in self._network.blocks)
        return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
