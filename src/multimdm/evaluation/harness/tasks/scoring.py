"""What the task files name: where items come from, how they are shown, whether an answer is right."""

import re
from typing import Any

from multimdm.evaluation.harness.benchmarks import minerva_examples, open_benchmark
from multimdm.evaluation.math_answers import final_answer, same_answer
from multimdm.evaluation.sandbox import run_program

_NUMBER = re.compile(r"-?\$?\d[\d,]*\.?\d*|-?\$?\.\d+")

list_math_examples = minerva_examples


def load_items(benchmark: str, data: str | None = None, **_: Any) -> Any:
    """The splits of a benchmark by its name."""
    return open_benchmark(benchmark, data)


def gsm8k_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """The number behind ####, else the last number, equal to that of the reference."""
    wanted = gsm8k_number(doc["answer"])
    return {"accuracy": float(wanted is not None and gsm8k_number(results[0]) == wanted)}


def gsm8k_number(text: str) -> float | None:
    """The number that a solution ends with."""
    found = _NUMBER.findall(text.rsplit("####", 1)[-1]) if "####" in text else _NUMBER.findall(text)
    if not found:
        return None
    number = found[0] if "####" in text else found[-1]
    try:
        return float(number.replace(",", "").replace("$", "").rstrip("."))
    except ValueError:
        return None


def math_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """The final answer equal to that of the reference."""
    given = final_answer(results[0])
    return {"accuracy": float(given is not None and same_answer(given, doc["answer"]))}


def humaneval_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Whether the function's tests pass."""
    program = "\n".join([doc["prompt"] + results[0], doc["test"], f"check({doc['entry_point']})"])
    return {"pass_at_1": float(run_program(program).passed)}


def mbpp_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Whether the task's assertions hold."""
    program = "\n".join([results[0], doc.get("test_setup_code") or "", *doc["test_list"]])
    return {"pass_at_1": float(run_program(program).passed)}
