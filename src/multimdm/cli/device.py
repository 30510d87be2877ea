"""The options --device and --precision of commands that run a network."""

from typing import Annotated

import tyro

from multimdm.models.arithmetic import Precision

Device = Annotated[
    str,
    tyro.conf.arg(metavar="auto|cpu|cuda[:N]|mps", help="Where networks compute. auto takes a GPU if there is one."),
]

PrecisionOption = Annotated[
    Precision,
    tyro.conf.arg(
        help="Arithmetic of the network: float32; tf32, faster on a GPU that has it; or products of matrices in "
        "bfloat16. auto is float32, and for LLaDA what is stored."
    ),
]


def check_device(name: str) -> None:
    """Refuse a device that is not there, before anything is read."""
    from multimdm.pipeline.devices import find_device

    find_device(name)
