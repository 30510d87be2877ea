"""The option --device of all commands that run a network."""

from typing import Annotated

import tyro

Device = Annotated[
    str,
    tyro.conf.arg(metavar="auto|cpu|cuda[:N]", help="Where networks compute. auto takes a GPU if there is one."),
]


def check_device(name: str) -> None:
    """Refuse a device that is not there, before anything is read."""
    from multimdm.pipeline.devices import find_device

    find_device(name)
