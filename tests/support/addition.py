"""A small task for small models: addition, as a corpus and as a task of the harness."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import yaml

_TASK = """
task: addition
custom_dataset: !function items.load
output_type: generate_until
test_split: test
num_fewshot: 0
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
process_results: !function items.results
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: %d
metric_list:
  - metric: accuracy
    aggregation: mean
    higher_is_better: true
"""

_ANSWER_DIGITS = 3
"""Of sums of one digit too: an answer and the end of text are then four tokens, which 1, 2 and 4 per step divide, and
what is asked for is just as long as what was trained on, without a place that no text ever had."""

_ITEMS = """
import json
from pathlib import Path

from datasets import Dataset


def load(**_):
    lines = (Path(__file__).parent / "items.jsonl").read_text().splitlines()
    return {"test": Dataset.from_list([json.loads(line) for line in lines])}


def results(doc, results):
    return {"accuracy": float(results[0].strip() == doc["answer"])}
"""


def sums(num: int, seed: int, held_out: bool = False, digits: int = 2) -> list[tuple[str, str]]:
    """Questions and answers, all of equal length; about every tenth sum is held out.

    Which ones is left to a checksum: a rule such as 7a + 13b = 0 mod 10 would hold out every pair of equal last digits.
    """
    rng, found = random.Random(seed), []
    most = 10**digits
    while len(found) < num:
        a, b = rng.randrange(most), rng.randrange(most)
        if (crc32(f"{a}+{b}".encode()) % 10 == 0) == held_out:
            found.append((f"{a:0{digits}}+{b:0{digits}}=", f"{a + b:0{_ANSWER_DIGITS}}"))
    return found


def write_task(directory: Path, items: list[tuple[str, str]], length: int) -> Path:
    """A directory with the task `addition`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "addition.yaml").write_text(_TASK % length)
    (directory / "items.py").write_text(_ITEMS)
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in items]
    (directory / "items.jsonl").write_text("\n".join(lines) + "\n")
    return directory


@dataclass(frozen=True)
class Recipes:
    """Arguments of `multimdm` for a base and its adaptation; their models are in `base` and `adapted`."""

    prepare: list[str]
    pretrain: list[str]
    adapt: list[str]
    answer_length: int
    """Digits of an answer and the end of text."""


def write_recipes(out: Path, digits: int, base_steps: int, adapt_steps: int, masks: int) -> Recipes:
    """Data and recipes for a tiny LLaDA that adds; settings are fixed here, beforehand."""
    out.mkdir(parents=True, exist_ok=True)
    for name, num, held_out in (("train", 9000 if digits > 1 else 2000, False), ("valid", 200, digits > 1)):
        items = sums(num, 0 if name == "train" else 1, held_out, digits)
        (out / f"{name}.txt").write_text("".join(f"{question}{answer}\n" for question, answer in items))
    answer_length = _ANSWER_DIGITS + 1
    length = 2 * digits + 2 + answer_length
    log = {"every": 50, "validate_every": 0, "sample_every": 0, "checkpoint_every": 500, "tensorboard": False}
    log["validation_sequences"] = 128
    base = {
        "system": "mdlm",
        "data": {"kind": "prepared", "path": str(out / "data")},
        "network": {
            "architecture": "llada",
            "size": "tiny",
            "hidden_dim": 64,
            "num_blocks": 3,
            "num_heads": 4,
            "dropout": 0.0,
            "embedding_std": 1.0,
        },
        "train": {
            "steps": base_steps,
            "batch_size": 64,
            "learning_rate": 3e-3,
            "warmup": 50,
            "decay": "cosine",
            "ema": 0.99,
        },
        "log": log,
    }
    adapted = {
        "backbone": "llada",
        "init": str(out / "base" / "model"),
        "conditioning": "none",
        "data": base["data"],
        "process": {"num_masks": masks},
        "identification": {"start": 0.0, "end": 0.5},
        "train": {**base["train"], "steps": adapt_steps, "learning_rate": 2e-3},
        "log": log,
    }
    for name, recipe in (("base", base), ("adapted", adapted)):
        (out / f"{name}.yaml").write_text(yaml.safe_dump(recipe))
    files = [str(out / "train.txt"), "--tokenizer", "chars", "--layout", "padded", "--ends", "eos"]
    files += ["--length", str(length), "--valid", str(out / "valid.txt"), "--out", str(out / "data")]
    return Recipes(
        prepare=["prepare", *files],
        pretrain=["pretrain", str(out / "base.yaml"), "--out", str(out / "base")],
        adapt=["adapt", str(out / "adapted.yaml"), "--out", str(out / "adapted")],
        answer_length=answer_length,
    )
