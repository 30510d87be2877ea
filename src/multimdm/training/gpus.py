"""GPUs as their makers describe them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One kind."""

    flops: float
    """Peak of dense bfloat16 products per second."""
    memory: int
    """In GB, of 10^9 bytes."""


GPUS = {
    "b200": Gpu(2250e12, 180),
    "h200": Gpu(989e12, 141),
    "h100": Gpu(989e12, 80),
    "a100": Gpu(312e12, 80),
    "a100-40": Gpu(312e12, 40),
    "l40s": Gpu(362e12, 48),
    "rtx4090": Gpu(165e12, 24),
}


def known_gpu(name: str) -> Gpu | None:
    """The GPU that a driver calls by this name ("NVIDIA H100 80GB HBM3"); None if it is none of ours."""
    plain = name.lower().replace(" ", "")
    return next((gpu for kind, gpu in GPUS.items() if kind in plain), None)
