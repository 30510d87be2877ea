"""The commands of the LLaDA guide as printed, with a tiny network of that shape in place of the 8 billion weights."""

import json
import re
import shlex
from pathlib import Path

import pytest

import multimdm
from multimdm.cli.main import main
from support.shortening import with_options
from support.tiny_llada import chat_tokenizer, masks_of, tiny_llada, write_llada

GUIDE = Path(__file__).parents[2] / "docs" / "llada.md"
DATA = Path(__file__).parents[3] / "shared" / "data" / "benchmarks"

SHORT = "--train.steps 2 --train.batch-size 2 --log.validation-sequences 2 --log.sample-every 0"
EXTRA = {
    "pretrain": f"{SHORT} --network.hidden-dim 16 --network.num-blocks 1 --network.num-heads 2",
    "adapt": SHORT,
    "sample": "--device cpu",
    "evaluate": f"--data {DATA} --gen-length 8 --limit 1 --device cpu",
}
INSTEAD = {
    r"accelerate launch --config_file \S+ -m ": "",
    r"0.5:hf:mlfoundations/\S+": "0.5:words.txt",
    r"0.5:hf:OpenCoder-LLM/\S+": "0.5:sums.txt",
    r"GSAI-ML/LLaDA-8B-(Base|Instruct)": "base",
    r"--length 1024": "--length 16",
    r"--valid-last 1000": "--valid-last 4",
    r"--new-tokens 128": "--new-tokens 32",
    r"--steps 64": "--steps 4",
    r"--tps 1 2 4 8": "--tps 4",
    r"(?<=adapt llada-8b-multimask)": " --init base --lora.rows appended --train.micro-batch 2",
}
"""What a laptop has in place of what is printed; the small vocabulary has no 49 ids in reserve."""


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def shortened(command: str) -> list[str]:
    for printed, small in INSTEAD.items():
        command = re.sub(printed, small, command)
    program, name, *words = shlex.split(command)
    assert program == "multimdm"
    return with_options([name, *words], shlex.split(EXTRA.get(name, "")))


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    template = "{{ bos_token }}{{ messages[0].content }}<|eot_id|>"
    write_llada(Path("base"), tiny_llada(vocab_size=64, num_rows=64), chat_tokenizer(template))
    Path("words.txt").write_text("".join(f"abc {n} def\n" for n in range(200)))
    Path("sums.txt").write_text("".join(f"{n}+{n}={2 * n}\n" for n in range(200)))


@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmarks' items are not here")
def test_its_commands_run(workplace):
    found = commands()
    ours = [command for command in found if not command.startswith("python ")]
    assert len(found) == len(ours) + 1 == 8  # the harness's own program: see evaluation/harness/test_program.py
    for command in ours:
        words = shortened(command)
        assert main(words) == 0, words
    mixture = json.loads(Path("data/llada/train/manifest.json").read_text())
    assert [source["name"] for source in mixture["sources"]] == ["words.txt", "sums.txt"]
    assert masks_of(multimdm.load("runs/llada-tiny/model")).num_masks == 8
    assert masks_of(multimdm.load("runs/llada-8b-multimask/model")).num_masks == 50
    results = json.loads(Path("runs/table/results.json").read_text())
    tasks, models = ("MATH500", "GSM8K", "HumanEval", "MBPP"), ("base", "llada-8b-multimask")
    assert [(r["task"], r["model"]) for r in results] == [(task, model) for model in models for task in tasks]


def test_the_recipe_prints_the_same_commands():
    text = (GUIDE.parents[1] / "recipes" / "adapt" / "llada-8b-multimask.yaml").read_text(encoding="utf-8")
    comments = " ".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#   "))
    printed = " ".join(comments.replace("\\", " ").split())
    shown = [" ".join(command.split()) for command in commands()]
    assert printed == " ".join(one for one in shown if "prepare" in one or "adapt llada-8b" in one)
