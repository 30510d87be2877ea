"""Packages whose names are imported when they are asked for: who reads settings alone does not wait for torch."""

from collections.abc import Callable, Mapping
from importlib import import_module


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package, of name -> the module inside it that has the name.

    No name may be that of a module: importing the module would hide it.
    """

    def find(name: str) -> object:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return find
