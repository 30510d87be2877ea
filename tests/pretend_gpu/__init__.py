"""A pretend GPU: tensors that say cuda:0 or mps:0, compute on the CPU, refuse to mix devices and are counted."""

from pretend_gpu.counts import Counts
from pretend_gpu.device import DeviceMismatchError, Float64Error, PretendTensor, pretend_gpu

__all__ = ["Counts", "DeviceMismatchError", "Float64Error", "PretendTensor", "pretend_gpu"]
