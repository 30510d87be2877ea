import subprocess
import sys

import pytest

from multimdm.cli.main import COMMANDS, main


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert main([]) == 0


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("multimdm 0.")


def test_a_misspelt_command_is_told_the_nearest(capsys):
    assert main(["entrpoy"]) == 2
    assert "did you mean 'entropy'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert "--out" in capsys.readouterr().out or name == "serve"  # a server writes nothing


def test_help_imports_nothing_heavy():
    """`multimdm --help` must answer at once: it may not wait for torch, matplotlib or tyro."""
    code = (
        "import sys; from multimdm.cli.main import main; main(['--help']); "
        "print([m for m in ('torch', 'matplotlib', 'tyro', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
