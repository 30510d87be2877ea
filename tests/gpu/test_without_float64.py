"""Apple's GPU has no float64, and the pretend one refuses it; every objective and sampler is in the file beside."""

import pytest
import torch

from multimdm.pipeline.devices import find_device
from pretend_gpu import DeviceMismatchError, Float64Error, pretend_gpu


def test_the_name_of_the_device(monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(ValueError, match="there is no Apple GPU"):
        find_device("mps")
    assert find_device("auto").type in ("cpu", "cuda")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert find_device("mps") == torch.device("mps")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert find_device("auto") == torch.device("mps")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert find_device("auto") == torch.device("cuda"), "NVIDIA's before Apple's"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("multimdm.pipeline.devices.launched", lambda: 2)
    assert find_device("auto") == torch.device("cpu"), "several ranks cannot share it"
    with pytest.raises(ValueError, match="several ranks need cpu"):
        find_device("mps")


def test_the_pretend_device_refuses_float64():
    with pretend_gpu("mps"):
        x = torch.ones(3, 3, device="mps:0")
        assert not x.is_cuda
        for put in (x.double, lambda: torch.ones(3, dtype=torch.float64).to("mps:0"), lambda: x.to(torch.float64)):
            with pytest.raises(Float64Error):
                put()
        with pytest.raises(DeviceMismatchError, match="mixes tensors of mps:0"):
            _ = x + torch.ones(3, 3)
        assert x.cpu().double().dtype == torch.float64
