"""The programs in benchmarks/, which are no package."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

PLACE = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """One of them as a module; they may import each other."""
    if str(PLACE) not in sys.path:
        sys.path.append(str(PLACE))
    return importlib.import_module(name)
