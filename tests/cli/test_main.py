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
    # A server and what only tells write nothing.
    assert "--out" in capsys.readouterr().out or name in ("serve", "recipes", "models", "info", "completion")


def test_help_of_a_command(capsys):
    """`multimdm help sample` is `multimdm sample --help`."""
    texts = []
    for arguments in (["help", "sample"], ["sample", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert main(["help", "smaple"]) == 2
    assert "did you mean 'sample'?" in capsys.readouterr().err


def heavy_imports(*arguments):
    """What of these `multimdm` has imported when it has answered, in a process of its own."""
    code = (
        "import sys, contextlib; from multimdm.cli.main import main\n"
        f"with contextlib.suppress(SystemExit): main({list(arguments)!r})\n"
        "print([m for m in ('torch', 'matplotlib', 'tyro', 'numpy', 'scipy', 'transformers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[-1]


def test_help_imports_nothing_heavy():
    """`multimdm --help` must answer at once: it may not wait for torch, matplotlib or tyro."""
    assert heavy_imports("--help") == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", "--help"),
        ("adapt", "--help"),
        ("couple", "tales-quantile", "--help"),
        ("distill", "tales-distill-gumbel", "--help"),
        ("recipes",),
        ("completion", "bash"),
    ],
)
def test_help_of_training_does_not_wait_for_torch(arguments):
    assert "torch" not in heavy_imports(*arguments)
