"""What kind of model it is, in words."""

from multimdm.models import Backbone
from multimdm.process import AnyProcess, Hybrid, MultiMask


def kind_of(process: AnyProcess | None) -> str:
    """The process; None is that of an autoregressive model."""
    if process is None:
        return "autoregressive, one network call per token"
    if isinstance(process, Hybrid):
        return "hybrid diffusion (CANDI)"
    if not isinstance(process, MultiMask):
        return "uniform-state diffusion"
    M = process.num_masks
    kind = "masked diffusion" if M == 1 else f"multi-mask diffusion, M = {M}, rho = {process.schedule.rho:g}"
    kind += ", x_1 kept" if process.tied_noise else ""
    return kind + (", own masks read by Bayes' rule" if process.readout == "context" else "")


def size_of(network: Backbone) -> str:
    """Blocks, width and parameters."""
    config = network.config
    size = sum(weights.numel() for weights in network.parameters())
    blocks = f"{config.num_blocks} block{'s' * (config.num_blocks > 1)} of width {config.hidden_dim}"
    return f"{blocks}, {size / 1e6:,.2f} million parameters"
