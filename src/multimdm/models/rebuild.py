"""A network with other weights in place of those that are trained: the moving average, to be saved."""

from collections.abc import Mapping

from torch import Tensor

from multimdm.models.dit import DiT
from multimdm.models.llada import LLaDA
from multimdm.models.lora import public_name, skeleton

Backbone = DiT | LLaDA
"""The networks that are trained."""


def rebuilt(network: Backbone, weights: Mapping[str, Tensor]) -> Backbone:
    """A network on the CPU with these weights, one for every parameter that is trained.

    Of a network with an adapter, it has the adapter alone: the base is not copied, and need not be to save it.
    """
    if isinstance(network, LLaDA):
        if network.adapter is not None:
            return skeleton(network, {public_name(name): x for name, x in weights.items()}).eval()
        other = LLaDA(network.config, device="meta")
        other.load_state_dict(weights, assign=True)
        return other.eval()
    buffers = {name: x.detach().cpu() for name, x in network.named_buffers()}
    other = DiT(network.config)
    other.load_state_dict({name: {**buffers, **weights}[name] for name in other.state_dict()})
    return other.eval()
