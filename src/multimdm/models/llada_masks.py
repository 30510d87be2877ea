"""From LLaDA's one mask to many: rows of the input embedding that hold copies of the mask's.

The head is left alone: masks are never predicted. `resize_token_embeddings` of other libraries would grow it as well.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multimdm._checks import check_integer, require
from multimdm.models.llada import LLaDA
from multimdm.models.llada_config import LLaDAConfig, with_masks

RESERVED = {126_464: range(126_084, 126_336)}
"""Size of a published vocabulary -> its ids that no text has, which its authors advise to use for new tokens."""


def reserved_rows(config: LLaDAConfig, num_masks: int, spare: Sequence[int] | None = None) -> tuple[int, ...]:
    """The mask's own row, then rows of ids that no text has: `spare`, or those of the published vocabulary."""
    check_integer("num_masks", num_masks, 1)
    mask = _only_mask(config)
    known = RESERVED.get(config.vocab_size, range(0)) if spare is None else spare
    rows = [row for row in known if row != mask]
    require(
        len(rows) >= num_masks - 1,
        f"num_masks must be at most {len(rows) + 1}, for which this vocabulary of {config.vocab_size} has spare rows; "
        f"got {num_masks}: append rows instead (rows: appended)",
    )
    return (mask, *rows[: num_masks - 1])


def appended_rows(config: LLaDAConfig, num_masks: int) -> tuple[int, ...]:
    """The mask's own row, then new rows behind the embedding."""
    check_integer("num_masks", num_masks, 1)
    return (_only_mask(config), *range(config.num_rows, config.num_rows + num_masks - 1))


def check_unused(rows: Sequence[int], used: Sequence[int]) -> None:
    """Refuse rows of tokens that texts have: such a token would be taken for noise."""
    collisions = sorted(set(rows) & set(used))
    require(
        not collisions,
        f"mask ids must not be tokens of the data; {collisions[:5]} are: choose other rows, or append them",
    )


@torch.no_grad()
def expand_llada(network: LLaDA, rows: Sequence[int], offsets: Float[Tensor, "M d"] | None = None) -> LLaDA:
    """The network with its masks on these rows, all copies of the one it had: every mask gives the same logits.

    Unless `offsets` (`expand.py`) are added to the copies. Weights are taken over, not copied, but for the
    embedding; the given network keeps its own and stays as it is.
    """
    config = network.config
    mask = _only_mask(config)
    expanded = LLaDA(with_masks(config, rows), device="meta")
    old = network.wte.weight
    table = torch.cat(
        [old, old[mask].expand(expanded.config.num_rows - len(old), -1)]
    )  # also if nothing is appended: a copy
    table[list(rows)] = old[mask] if offsets is None else old[mask] + offsets
    state = {**network.state_dict(), "wte.weight": table}
    expanded.load_state_dict(state, assign=True)
    for name, weight in expanded.named_parameters():
        parent, _, leaf = name.rpartition(".")
        # `assign` shares the parameter objects: whether they are trained must not be shared.
        setattr(expanded.get_submodule(parent), leaf, nn.Parameter(weight.data))
    expanded.recompute = network.recompute
    return expanded.to(old.device).train(network.training)


def _only_mask(config: LLaDAConfig) -> int:
    require(config.num_masks == 1, f"only a network with one mask can be expanded; this one has {config.num_masks}")
    return config.mask_rows[0]
