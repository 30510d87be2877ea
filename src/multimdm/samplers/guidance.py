"""Classifier-free guidance: away from what the network would say without the prompt."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from multimdm.process import Mixture, Process, Time
from multimdm.process.chunks import chunk_rows
from multimdm.process.places import at_home
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.tied import shown

_CHUNK_ENTRIES = 2**23


def guided(network: Network, process: Process, batch: Batch, scale: float | int) -> Network:
    """logits = u + (1 + scale) (c - u): c is the prediction, u that with all given tokens replaced by noise.

    Two network calls for one. The network needs the methods `features` and `logits`, so that the two tables of logits
    are made chunk by chunk. With one mask the noise is the mask, as in LLaDA; tied noise is x_1.
    """
    given = ~batch.free if batch.valid is None else ~batch.free & batch.valid
    noise = process.prior(batch.x.shape, batch.generator, batch.x.device) if batch.end is None else batch.end
    # Without the given tokens all is free: where they stood, x_1 counts as it does elsewhere.
    hidden = shown(process, replace(batch, x=torch.where(given, noise, batch.x), free=batch.free | given))
    rows_per_chunk = chunk_rows(process.vocab_size, batch.x, _CHUNK_ENTRIES)

    def call(
        x_t: Tensor | Mixture, t: Time, positions: Tensor, valid: Tensor | None, reduce: Any
    ) -> tuple[Tensor, ...]:
        with_prompt, without = (
            network.features(x, t, positions, valid)  # pyright: ignore[reportFunctionMemberAccess]
            for x in (x_t, hidden)
        )
        parts = []
        for start in range(0, len(with_prompt), rows_per_chunk):
            rows = slice(start, min(start + rows_per_chunk, len(with_prompt)))
            c, u = (network.logits(f[rows]) for f in (with_prompt, without))  # pyright: ignore[reportFunctionMemberAccess]
            # Tokens that are never predicted have -inf in both, whose difference is no number.
            result = reduce(torch.where(c.isneginf(), c, u + (1 + scale) * (c - u)), rows)
            parts.append(tuple(map(at_home, result if isinstance(result, tuple) else (result,))))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    return call
