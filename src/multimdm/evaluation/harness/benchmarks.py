"""Where the items of the tasks come from: local files as published, or the Hub."""

import ast
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset, load_dataset

TASKS_DIRECTORY = Path(__file__).parent / "tasks"

Items = list[dict[str, Any]]


@dataclass(frozen=True)
class Benchmark:
    """A task of Tab. (llada)."""

    label: str
    """What the paper calls the benchmark."""
    task: str
    """The name by which the harness knows our task."""
    metric: str
    files: dict[str, str]
    """Split -> file below the directory of benchmarks."""
    hub: tuple[str, str | None]
    """Name and configuration on the Hub."""
    runs_code: bool = False
    """Whether answers are programs, which must be run to be judged."""


BENCHMARKS = {
    "math500": Benchmark(
        "MATH500", "multimdm_math500", "accuracy", {"test": "math/math500_test.json"}, ("HuggingFaceH4/MATH-500", None)
    ),
    "gsm8k": Benchmark(
        "GSM8K",
        "multimdm_gsm8k",
        "accuracy",
        {"train": "gsm8k/train.jsonl", "test": "gsm8k/test.jsonl"},
        ("openai/gsm8k", "main"),
    ),
    "humaneval": Benchmark(
        "HumanEval",
        "multimdm_humaneval",
        "pass_at_1",
        {"test": "humaneval/HumanEval.jsonl.gz"},
        ("openai/openai_humaneval", None),
        runs_code=True,
    ),
    "mbpp": Benchmark(
        "MBPP",
        "multimdm_mbpp",
        "pass_at_1",
        {"test": "mbpp/mbpp.jsonl"},
        ("google-research-datasets/mbpp", "full"),
        runs_code=True,
    ),
}
"""Name that `--tasks` takes -> benchmark, in the order of the table."""


def answer_length(name: str) -> int:
    """New tokens that a task gives for an answer."""
    task = (TASKS_DIRECTORY / f"{BENCHMARKS[name].task}.yaml").read_text(encoding="utf-8")
    return yaml.load(task, _TaskFile)["generation_kwargs"]["max_gen_toks"]


class _TaskFile(yaml.SafeLoader):
    """Reads a task's file without importing the functions that it names."""


_TaskFile.add_constructor("!function", lambda loader, node: node.value)


def open_benchmark(name: str, data: str | None) -> dict[str, Dataset]:
    """The splits of a benchmark: from files below `data`, or from the Hub without it."""
    benchmark = BENCHMARKS[name]
    if data is None:
        path, configuration = benchmark.hub
        fetched: Any = load_dataset(path, configuration)
        found = {str(split): list(items) for split, items in fetched.items()}
    else:
        check_files(name, data)
        found = {split: read_items(Path(data) / file) for split, file in benchmark.files.items()}
    prepare = _PREPARE.get(name, lambda splits: splits)
    return {split: Dataset.from_list(items) for split, items in prepare(found).items()}


def check_files(name: str, data: str) -> None:
    """Complain of missing files by name."""
    missing = [file for file in BENCHMARKS[name].files.values() if not (Path(data) / file).is_file()]
    if missing:
        raise ValueError(f"{data} lacks {', '.join(missing)}, which the task {name} needs")


def read_items(path: Path) -> Items:
    """The objects of a .json or .jsonl file, perhaps compressed."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        text = file.read()
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return json.loads(text)


def minerva_examples() -> Items:
    """The four worked problems that the field puts before those of MATH, from the harness's own task of that kind.

    They are read from its source: importing it needs packages for checking answers, which ours does not.
    """
    package = find_spec("lm_eval")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "tasks" / "minerva_math" / "utils.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == "list_fewshot_samples":
            returned = node.body[-1]
            assert isinstance(returned, ast.Return)
            assert returned.value is not None
            return [
                {"problem": item["problem"], "solution": item["solution"]} for item in ast.literal_eval(returned.value)
            ]
    raise ValueError(f"{path} has no list_fewshot_samples: this version of lm-eval keeps the examples elsewhere")


def _split_mbpp(splits: dict[str, Items]) -> dict[str, Items]:
    """The published file has all tasks in one; 11 to 510 are for testing, and 2, 3 and 4 are the usual examples."""
    items = [item for part in splits.values() for item in part]
    for item in items:
        item.pop("challenge_test_list", None)
    return {
        "test": [item for item in items if 11 <= item["task_id"] <= 510],
        "prompt": [item for item in items if item["task_id"] in (2, 3, 4)],
    }


_PREPARE: dict[str, Callable[[dict[str, Items]], dict[str, Items]]] = {
    "mbpp": _split_mbpp,
}
