"""Completion: what the scripts know is what the commands take."""

import contextlib
import re
import shutil
import subprocess

import pytest

from multimdm.cli.completion import SCRIPTS, commands
from multimdm.cli.flags import flags_of
from multimdm.cli.main import COMMANDS, main

_AT_THE_BEGINNING = re.compile(r"^[^\w\n-]*(?:-h, )?(--[a-z][\w.-]*)(?:, (--[a-z][\w.-]*))?(?: |$)", re.MULTILINE)
_OPTIONAL = re.compile(r"--(process|lora|relaxation|consistency|sdtt|matching|generation|quantile|advice)\.")
"""Flags of sections that a recipe may leave out: --help without a recipe does not show them."""


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_are_those_that_help_shows(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
    shown = {flag for pair in _AT_THE_BEGINNING.findall(capsys.readouterr().out) for flag in pair if flag}
    ours = {flag.name for flag in flags_of(name) if not flag.positional}
    assert shown - ours == set()
    assert {flag for flag in ours - shown if not _OPTIONAL.match(flag)} == set()
    assert "--help" in ours


def test_sections_that_a_recipe_may_leave_out_are_offered():
    assert {"--quantile.order", "--advice.steps"} <= {flag.name for flag in flags_of("couple")}
    order = next(flag for flag in flags_of("couple") if flag.name == "--quantile.order")
    assert order.values == ("id", "probable", "similar", "neighbours")
    assert order.help.startswith("Which tokens have the small numbers")


@pytest.fixture(scope="module")
def table():
    return commands()


@pytest.fixture(scope="module")
def bash(table, tmp_path_factory):
    script = tmp_path_factory.mktemp("completion") / "multimdm.bash"
    script.write_text(SCRIPTS["bash"](table))

    def complete(*words, cwd):
        """What bash offers after these words, as it asks a completion function."""
        quoted = " ".join(f"'{word}'" for word in words)
        code = (
            f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _multimdm; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        result = subprocess.run(["bash", "-c", code], cwd=cwd, capture_output=True, text=True, check=True)
        assert result.stderr == ""
        return result.stdout.split()

    return complete


def test_bash(bash, tmp_path):
    (tmp_path / "runs" / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine.yaml").touch()
    assert bash("multimdm", "pre", cwd=tmp_path) == ["prepare", "pretrain"]
    assert bash("multimdm", "pretrain", "tales-", cwd=tmp_path)[:2] == ["tales-ar", "tales-candi"]
    assert "tales-multimdm-cont" in bash("multimdm", "adapt", "", cwd=tmp_path)
    assert "tales-mdlm" not in bash("multimdm", "adapt", "", cwd=tmp_path)
    assert bash("multimdm", "pretrain", "mi", cwd=tmp_path) == ["mine.yaml"]
    assert bash("multimdm", "sample", "--infi", cwd=tmp_path) == ["--infill"]
    assert bash("multimdm", "sample", "--order", "c", cwd=tmp_path) == ["confidence"]
    assert "runs/mine/model" in bash("multimdm", "sample", "", cwd=tmp_path)
    assert bash("multimdm", "distill", "x", "--init", "runs/m", cwd=tmp_path) == ["runs/mine", "runs/mine/model"]
    assert bash("multimdm", "help", "samp", cwd=tmp_path) == ["sample"]
    assert bash("multimdm", "completion", "", cwd=tmp_path)[:3] == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_the_same(shell, table, tmp_path):
    """Every command, flag and recipe is in the script; quotes are closed; the shell reads it, if it is there."""
    text = SCRIPTS[shell](table)
    for command in table:
        for flag in command.flags:
            assert flag.name.removeprefix("--") in text
        assert all(word in text for word in command.words)
    assert all(line.count("'") % 2 == 0 for line in text.splitlines())
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(text)
        subprocess.run([shell, "-n", str(script)], check=True)


def test_the_command_prints_the_script(capsys, table):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == SCRIPTS["bash"](table)
