"""Files that only other programs read: they parse, and name what is there."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import multimdm

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
YAML = [ROOT / "CITATION.cff", ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_parses(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_the_citation_has_what_its_format_demands():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert {"type", "title", "authors"} <= set(citation["preferred-citation"])
    assert citation["version"] == multimdm.__version__


def test_the_workflow_calls_what_there_is():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert runs == [".ci/run", "make docs"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    assert "\ndocs: " in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_forms_have_a_name_and_fields_of_their_own():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.stem != "config":
            assert form["name"]
            assert form["description"]
            ids = [field["id"] for field in form["body"]]
            assert len(set(ids)) == len(ids)


def copied() -> list[str]:
    """What the Dockerfile takes from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, flags=re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_image_is_sent_what_it_copies():
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert "*" in rules
    assert set(copied()) == allowed
    assert all((ROOT / source).exists() for source in copied())


def test_a_wheel_can_be_made_of_what_the_image_has(tmp_path):
    for source in set(copied()):
        if (ROOT / source).is_dir():
            shutil.copytree(
                ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert fnmatch.fnmatch(wheel.name, f"multimdm-{multimdm.__version__}-*.whl")


def test_its_commands_are_shell_and_its_stages_exist():
    joined = DOCKERFILE.replace("\\\n", " ")
    for command in re.findall(r"^RUN (.*)$", joined, flags=re.MULTILINE):
        subprocess.run(["sh", "-n", "-c", command], check=True)
    stages = re.findall(r"^FROM \S+ AS (\w+)$", joined, flags=re.MULTILINE)
    assert stages == ["wheel", "installed", "serve", "commands"]
    for target in re.findall(r"--target (\w+)|--from=(\w+)", joined):
        assert (target[0] or target[1]) in stages
    extras = re.findall(r"\$\{wheel\}\[([\w,]+)\]", joined)[0].split(",")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", project, flags=re.MULTILINE) for extra in extras)


def test_judges_from_gguf_files_have_what_transformers_asks_for():
    """It refuses to open them without either."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=\[]", package)[0] for package in project["optional-dependencies"]["eval"]}
    assert {"accelerate", "gguf"} <= names


def test_extras_that_anyone_is_told_to_install_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = [
        (path, extra)
        for path in texts
        for extras in re.findall(r"pip install [^\n`]*?(?:multimdm|\.)\[([\w,]+)\]", path.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    ]
    assert len(named) > 10
    assert {extra for _, extra in named} <= set(project["optional-dependencies"])
    assert {extra for path, extra in named if path.name == "README.md"}


def test_hooks_are_tools_of_the_project():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = {"lint-imports": "import-linter"}
    for hook in hooks:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f'"{packages.get(tool, tool)}' in project, tool
