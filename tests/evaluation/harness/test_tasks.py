"""The tasks of the table: references are right, rubbish is wrong, prompts look as they should."""

from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.model import LM
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from multimdm.evaluation.harness.benchmarks import BENCHMARKS, TASKS_DIRECTORY, minerva_examples, open_benchmark
from multimdm.evaluation.harness.tasks.scoring import gsm8k_number, humaneval_results, mbpp_results

DATA = Path(__file__).parents[4] / "shared" / "data" / "benchmarks"
there = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmarks' items are not here")


class Parrot(LM):
    """Says what it is told to say of each item, and remembers the prompts."""

    def __init__(self, say) -> None:
        super().__init__()
        self.say, self.prompts = say, []

    tokenizer_name = "parrot"  # pyright: ignore[reportAssignmentType]

    def generate_until(self, requests) -> list[str]:
        self.prompts += [request.args[0] for request in requests]
        return [self.say(request.doc) for request in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


REFERENCES = {
    "math500": lambda doc: doc["solution"],
    "gsm8k": lambda doc: doc["answer"],
    "humaneval": lambda doc: doc["canonical_solution"],
    "mbpp": lambda doc: doc["code"],
}


def run(name: str, say, code: bool = True, limit: int = 4) -> tuple[float, Parrot]:
    manager = TaskManager(include_path=str(TASKS_DIRECTORY), include_defaults=False, metadata={"data": str(DATA)})
    parrot, task = Parrot(say), BENCHMARKS[name].task
    results: Any = simple_evaluate(
        parrot, tasks=[task], task_manager=manager, limit=limit, bootstrap_iters=0, confirm_run_unsafe_code=code
    )
    return results["results"][task][f"{BENCHMARKS[name].metric},none"], parrot


@there
@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_references_are_right_and_rubbish_is_wrong(name):
    share, parrot = run(name, REFERENCES[name])
    assert share == 1.0
    assert run(name, lambda doc: "rubbish 3.14159")[0] == 0.0
    examples = {"math500": 4, "gsm8k": 5, "humaneval": 0, "mbpp": 3}[name]
    asks = {"math500": "\n\nSolution:", "gsm8k": "\nAnswer:", "humaneval": '"""', "mbpp": "\n[BEGIN]"}[name]
    assert parrot.prompts[0].rstrip().endswith(asks.strip())
    assert parrot.prompts[0].count(asks) >= examples + 1


@there
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_code_is_not_run_unless_allowed(name):
    with pytest.raises(ValueError, match="confirm_run_unsafe_code"):
        run(name, REFERENCES[name], code=False)


@there
def test_numbers_of_items():
    sizes = {name: len(open_benchmark(name, str(DATA))["test"]) for name in BENCHMARKS}
    assert sizes == {"math500": 500, "gsm8k": 1319, "humaneval": 164, "mbpp": 500}


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"lacks gsm8k/train.jsonl, gsm8k/test.jsonl, which the task gsm8k needs"):
        open_benchmark("gsm8k", str(tmp_path))


def test_the_examples_of_the_field():
    examples = minerva_examples()
    assert len(examples) == 4
    assert all("The final answer is" in example["solution"] for example in examples)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 + 4 = <<3+4=7>>7\n#### 7", 7.0),
        ("#### 1,234", 1234.0),
        ("#### $12.50", 12.5),
        ("the answer is 18.", 18.0),
        ("#### -3", -3.0),
        ("no number", None),
        ("####", None),
        ("#### 5 apples, not 6", 5.0),
    ],
)
def test_the_number_of_an_answer(text, number):
    assert gsm8k_number(text) == number


def test_programs_are_judged_by_their_tests():
    doc = {"prompt": "def twice(x):\n", "test": "def check(f):\n    assert f(2) == 4", "entry_point": "twice"}
    assert humaneval_results(doc, ["    return 2 * x"]) == {"pass_at_1": 1.0}
    assert humaneval_results(doc, ["    return x"]) == {"pass_at_1": 0.0}
    task = {"test_list": ["assert f(1) == 2"], "test_setup_code": ""}
    assert mbpp_results(task, ["def f(x):\n    return x + 1"]) == {"pass_at_1": 1.0}
    assert mbpp_results(task, ["import os; os._exit(0)"]) == {"pass_at_1": 0.0}
