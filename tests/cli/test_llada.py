"""MultiLLaDA in small, by commands: learn to add, adapt to eight masks, measure both through the harness."""

import json
from pathlib import Path

import pytest

import multimdm
from multimdm.cli.main import main
from multimdm.pipeline.settings import same_process
from support.addition import sums, write_recipes, write_task
from support.tiny_llada import chat_tokenizer, files_hash, tiny_llada, write_llada

TEMPLATE = "{{ bos_token }}{{ messages[0].content }}<|eot_id|>"


def test_the_whole_way(tmp_path, capsys):
    """Settings are fixed beforehand; what is checked is that all of it works, not who wins."""
    recipes = write_recipes(tmp_path, digits=1, base_steps=300, adapt_steps=100, masks=8)
    assert main(recipes.prepare) == 0
    assert main(recipes.pretrain) == 0
    base, adapted = tmp_path / "base" / "model", tmp_path / "adapted" / "model"
    before = files_hash(base)
    assert main(recipes.adapt) == 0
    assert files_hash(base) == before
    include = write_task(tmp_path / "tasks", sums(60, 3, digits=1), recipes.answer_length)
    evaluate = ["evaluate", "--harness", str(base), str(adapted), "--tasks", "addition", "--include", str(include)]
    evaluate += ["--tps", "1", "2", "4", "--batch-size", "32", "--device", "cpu", "--out", str(tmp_path / "table")]
    assert main(evaluate) == 0
    results = json.loads((tmp_path / "table" / "results.json").read_text())
    assert [(r["model"], r["tps"], r["network_calls"]) for r in results] == [
        (name, tps, 4 // tps) for name in ("base", "adapted") for tps in (1, 2, 4)
    ]
    for result in results:
        assert result["items"] == 60
        assert result["low"] <= result["share"] <= result["high"]
    table = (tmp_path / "table" / "table.md").read_text()
    assert table.startswith("| task | model | TPS 1 | TPS 2 | TPS 4 |")
    assert "n=60" in table
    capsys.readouterr()
    assert main(evaluate) == 0  # everything is there already
    assert "TPS 4" in capsys.readouterr().out
    losses = [json.loads(line) for line in (tmp_path / "base" / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in losses if record["kind"] == "train"]
    assert losses[-1] < 0.8 * losses[0]  # it has learnt something
    assert main(["export", str(adapted), "--out", str(tmp_path / "merged")]) == 0
    assert same_process(multimdm.load(tmp_path / "merged").process, multimdm.load(adapted).process)
    moved = str(base.rename(tmp_path / "moved"))
    assert main(["export", str(adapted), "--out", str(tmp_path / "again")]) == 2
    assert main(["export", str(adapted), "--out", str(tmp_path / "again"), "--base", moved]) == 0
    assert files_hash(tmp_path / "again") == files_hash(tmp_path / "merged")
    assert main(["sample", str(adapted), "--prompt", "1+1=", "--num", "1", "--device", "cpu", "--base", moved]) == 0


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    return write_llada(tmp_path / "chatty", tiny_llada(), chat_tokenizer(TEMPLATE))


def test_prompts_and_chat(chatty, capsys):
    usual = ["sample", str(chatty), "--prompt", "1+1=", "--new-tokens", "8", "--num", "2", "--json", "--device", "cpu"]
    usual += ["--order", "confidence", "--block-length", "4", "--steps", "4", "--temperature", "0"]
    assert main(usual) == 0
    plain = json.loads(capsys.readouterr().out)
    encode = chat_tokenizer().encode
    assert plain["samples"][0]["ids"][:4] == encode("1+1=")
    assert len(plain["samples"][0]["ids"]) == 12
    assert main([*usual, "--chat"]) == 0
    chat = json.loads(capsys.readouterr().out)["samples"][0]
    assert chat["ids"][:6] == [0, *encode("1+1="), 2]
    answer = chat["ids"][6:]
    stop = next((place for place, token in enumerate(answer) if token in (1, 2)), len(answer))
    assert chat["text"] == chat_tokenizer().decode([token for token in answer[:stop] if token < 36])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chat"], "--chat needs --prompt"),
        (["--new-tokens", "4"], "--new-tokens needs --prompt"),
        (["--prompt", "1", "--new-tokens", "4", "--length", "8"], "without --length"),
        (["--prompt", "1", "--chat", "--bos"], "--bos must be left out with --chat"),
    ],
)
def test_bad_options_of_sample(arguments, message, capsys):
    assert main(["sample", "nowhere", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "humaneval"], "allow it with --run-code"),
        (["--tasks", "gsm9k"], "there is no task 'gsm9k'"),
        (["--tasks", "gsm8k", "--gen-length", "10", "--tps", "4"], "gen_length must be divisible by tps; got 10 and 4"),
        (["--tasks", "gsm8k", "--data", "/nowhere"], "/nowhere lacks gsm8k/train.jsonl"),
    ],
)
def test_bad_options_of_the_harness(arguments, message, capsys):
    assert main(["evaluate", "--harness", "nowhere", *arguments]) == 2
    assert message in capsys.readouterr().err
