"""Options of commands that run a network: --device, --precision, and how all of them are read."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, TypeVar

import tyro

from multimdm.cli.parsing import parse
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


class NetworkOptions(ABC):
    """The options of such a command; subclasses are dataclasses, which have their own fields."""

    device: str

    @abstractmethod
    def check(self) -> None:
        """Say what is wrong before anything is read."""


Options = TypeVar("Options", bound=NetworkOptions)


def network_options(options: type[Options], arguments: Sequence[str], prog: str) -> Options:
    """Parsed and checked. Sections are no part of the names, and switches have no twin that says no."""
    found = parse(options, arguments, prog, config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes))
    found.check()
    check_device(found.device)
    return found


def check_device(name: str) -> None:
    """Refuse a device that is not there, before anything is read."""
    from multimdm.pipeline.devices import find_device

    find_device(name)
