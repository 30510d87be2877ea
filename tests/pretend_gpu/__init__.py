"""A pretend GPU: tensors that say cuda:0, compute on the CPU, refuse to mix devices and count what a GPU would do."""

from pretend_gpu.counts import Counts
from pretend_gpu.device import DeviceMismatchError, PretendTensor, pretend_gpu

__all__ = ["Counts", "DeviceMismatchError", "PretendTensor", "pretend_gpu"]
