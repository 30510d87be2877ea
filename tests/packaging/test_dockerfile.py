"""The Dockerfile as far as it can be tried without a container engine: its words, and the commands that it runs."""

import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from multimdm.cli.completion import commands
from support.tiny_models import tales_model

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORDS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "USER", "WORKDIR"}
"""The instructions of Dockerfiles that an image of ours has a use for."""


class Instruction(NamedTuple):
    word: str
    rest: str
    stage: str
    """The name of the stage that it belongs to; empty before the first."""


def instructions() -> list[Instruction]:
    """Lines that end in a backslash go on; comments and blank lines between them do not count."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    found, stage = [], ""
    for line in text.replace("\\\n", " ").splitlines():
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            stage = rest.split(" AS ")[1]
        found.append(Instruction(word, rest, stage))
    return found


FOUND = instructions()


def of(stage: str, word: str) -> str:
    """The last such instruction of a stage, which is the one that counts."""
    return [one.rest for one in FOUND if (one.stage, one.word) == (stage, word)][-1]


def test_its_words_are_those_of_dockerfiles():
    assert {one.word for one in FOUND} <= WORDS
    first = next(n for n, one in enumerate(FOUND) if one.word == "FROM")
    assert all(one.word == "ARG" for one in FOUND[:first]), "nothing else may come before the first stage"
    for one in FOUND:
        if one.word in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(one.rest)), "without a shell, which eats signals"


def test_variables_are_declared_where_they_are_used():
    for number, one in enumerate(FOUND):
        before = FOUND[:number]
        if one.word == "FROM":
            known = {other.rest.split("=")[0] for other in before if other.word == "ARG" and other.stage == ""}
            assert set(re.findall(r"\$\{?(\w+)", one.rest)) <= known
        elif one.word == "RUN":
            known = {
                re.split("=", other.rest)[0] for other in before if other.stage == one.stage and other.word == "ARG"
            }
            own = set(re.findall(r"\b(\w+)=", one.rest))
            assert set(re.findall(r"\$\{?(\w+)", one.rest)) <= known | own


def test_its_python_is_one_that_the_project_takes():
    default = next(one.rest for one in FOUND if one.word == "ARG" and one.rest.startswith("PYTHON="))
    lowest = PROJECT["requires-python"].removeprefix(">=")
    version = default.removeprefix("PYTHON=")
    assert [int(part) for part in version.split(".")] >= [int(part) for part in lowest.split(".")]


def test_commands_that_the_guides_give():
    """Of `docker build`: targets and arguments that there are. Of `docker run`: the port that is exposed."""
    stages = {one.stage for one in FOUND if one.stage}
    declared = {one.rest.split("=")[0] for one in FOUND if one.word == "ARG"}
    header = [line.removeprefix("#") for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()]
    pages = [page.read_text(encoding="utf-8").splitlines() for page in (ROOT / "docs").glob("*.md")]
    builds = [line.strip() for page in [header, *pages] for line in page if line.strip().startswith("docker build")]
    runs = [line.strip() for page in [header, *pages] for line in page if line.strip().startswith("docker run")]
    assert len(builds) >= 4
    assert runs
    for line in builds:
        words = shlex.split(line)
        assert "." in words
        for option, value in pairwise(words):
            assert option != "--target" or value in stages
            assert option != "--build-arg" or value.split("=")[0] in declared
    for line in runs:
        assert re.search(r"--publish 127\.0\.0\.1:\d+:" + of("serve", "EXPOSE"), line)


def test_entry_points_are_commands_of_ours():
    known = {command.name: command.flags for command in commands()}
    for stage in {one.stage for one in FOUND if one.word == "ENTRYPOINT"}:
        program, *words = json.loads(of(stage, "ENTRYPOINT"))
        assert PROJECT["scripts"][program] == "multimdm.cli.main:main"
        if words:
            flags = {flag.name for flag in known[words[0]]}
            assert {word for word in words if word.startswith("--")} <= flags


@pytest.mark.unchecked  # in processes of their own, which the checks do not reach
def test_what_the_image_runs_serves_and_is_healthy(tmp_path):
    """ENTRYPOINT and CMD with a model at /model, and HEALTHCHECK, at a free port."""
    tales_model().save(tmp_path / "model")
    program, *words = json.loads(of("serve", "ENTRYPOINT"))
    words += [word.replace("/model", str(tmp_path / "model")) for word in json.loads(of("serve", "CMD"))]
    assert program == "multimdm"
    command = [sys.executable, "-m", "multimdm", *words, "--port", "0", "--device", "cpu"]
    check = of("serve", "HEALTHCHECK")
    python, _, code = json.loads(check[check.index("[") :])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            port = re.search(r":(\d+)", said)
            assert port is not None, said
            assert python == "python"
            code = code.replace(f":{of('serve', 'EXPOSE')}/", f":{port[1]}/")
            assert port[1] in code
            tries = (subprocess.run([sys.executable, "-c", code]).returncode for _ in range(5))  # an engine tries again
            assert 0 in tries
            absent = subprocess.run([sys.executable, "-c", code.replace("healthz", "nothing")], capture_output=True)
            assert absent.returncode != 0, "a check that cannot fail tells nothing"
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) in (0, -signal.SIGTERM), "it ends when it is told to"
