"""Packages import their names on demand: the stub beside each lists them, and each of them is there."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ["process", "models", "data", "objectives", "samplers"]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_listed_name_is_there(name):
    package = importlib.import_module(f"multimdm.{name}")
    assert package.__all__
    assert all(getattr(package, each) is not None for each in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError):
        package.nothing_of_the_kind  # noqa: B018


def test_no_name_is_imported_before_it_is_asked_for():
    imports = ", ".join(f"multimdm.{name}" for name in PACKAGES)
    program = f"import sys, {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
