"""Fine-tuning on prompts and answers, by commands: answers of different lengths are learnt, with their ends."""

import json
from pathlib import Path

import pytest
import yaml

import multimdm
from multimdm.cli.main import main
from support.tiny_llada import chat_tokenizer, files_hash, tiny_llada, write_llada

LOG = {"every": 10, "validate_every": 0, "sample_every": 0, "checkpoint_every": 1000, "validation_sequences": 8}
TEMPLATE = "{{ bos_token }}{{ messages[0].content }}<|eot_id|>"


def write(path: Path, content) -> str:
    path.write_text(yaml.safe_dump(content) if path.suffix == ".yaml" else content, encoding="utf-8")
    return str(path)


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [record["loss"] for record in records if record["kind"] == "train"]


@pytest.mark.unchecked  # training: with the checks it takes several times as long
def test_a_network_of_ours_learns_to_answer(tmp_path, capsys):
    """First text alone, then prompts and answers: `adapt` goes on with what has its masks already."""
    pairs = [(f"{a}+{b}=", str(a + b)) for a in range(10) for b in range(10)]
    text = write(tmp_path / "text.txt", "".join(f"{question}{answer}\n" for question, answer in pairs))
    lines = (json.dumps({"question": question, "reply": answer}) + "\n" for question, answer in pairs)
    source = write(tmp_path / "pairs.jsonl", "".join(lines))
    prepare = ["prepare", "--length", "10", "--valid-last", "4"]
    assert main([*prepare, text, "--layout", "padded", "--tokenizer", "chars", "--out", str(tmp_path / "text")]) == 0
    tokenizer = str(tmp_path / "text" / "train")
    layout = ["--layout", "pairs", "--prompt-field", "question", "--answer-field", "reply", "--tokenizer", tokenizer]
    assert main([*prepare, source, *layout, "--out", str(tmp_path / "pairs")]) == 0
    train = {"batch_size": 64, "learning_rate": 3e-3, "warmup": 20, "decay": "cosine", "ema": 0.98}
    network = {"size": "tiny", "hidden_dim": 64, "num_blocks": 2, "num_heads": 4, "dropout": 0.0, "embedding_std": 1.0}
    first = {"system": "mdlm", "data": {"path": str(tmp_path / "text")}, "network": network, "log": LOG}
    start = write(tmp_path / "start.yaml", {**first, "train": {**train, "steps": 50}})
    assert main(["pretrain", start, "--out", str(tmp_path / "start")]) == 0
    answers = {"init": str(tmp_path / "start" / "model"), "data": {"path": str(tmp_path / "pairs")}, "log": LOG}
    tuned = write(tmp_path / "tuned.yaml", {**answers, "process": {"num_masks": 1}, "train": {**train, "steps": 400}})
    assert main(["adapt", tuned, "--out", str(tmp_path / "tuned")]) == 0
    capsys.readouterr()
    model = multimdm.load(tmp_path / "tuned")
    seen = pairs[:96]
    said = [model.complete(question, steps=4, temperature=0, order="confidence").texts[0] for question, _ in seen]
    right = sum(made == answer for made, (_, answer) in zip(said, seen, strict=True))
    assert right >= 90, f"{right} of {len(seen)} answers are right"
    assert {len(made) for made, (_, answer) in zip(said, seen, strict=True) if made == answer} == {1, 2}
    question, answer = seen[0]
    assert main(["sample", str(tmp_path / "tuned"), "--prompt", question, "--num", "1", "--temperature", "0"]) == 0
    assert answer in capsys.readouterr().out


@pytest.mark.unchecked
def test_llada_by_lora_in_its_chat_template(tmp_path, capsys):
    """The frozen weights are random and can hardly be taught; that the loss falls is all that is asked for."""
    base = write_llada(tmp_path / "base", tiny_llada(), chat_tokenizer(TEMPLATE))
    before = files_hash(base)
    pairs = [("1+1=", "2"), ("9+3=", "12")] * 8
    turns = ([{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in pairs)
    source = write(tmp_path / "chats.jsonl", "".join(json.dumps({"messages": turn}) + "\n" for turn in turns))
    options = ["--layout", "pairs", "--length", "12", "--tokenizer", str(base), "--out", str(tmp_path / "data")]
    assert main(["prepare", source, *options]) == 0
    recipe = {
        "backbone": "llada",
        "init": str(base),
        "conditioning": "none",
        "data": {"path": str(tmp_path / "data")},
        "process": {"num_masks": 2},
        "lora": {"rank": 8, "rows": "appended"},
        "train": {"steps": 60, "batch_size": 16, "learning_rate": 2e-2, "warmup": 10, "ema": 0.0},
        "log": LOG,
    }
    assert main(["adapt", write(tmp_path / "chat.yaml", recipe), "--out", str(tmp_path / "chat")]) == 0
    assert files_hash(base) == before, "what is learnt is beside the weights"
    told = losses(tmp_path / "chat")
    assert sum(told[-3:]) / 3 < 0.75 * told[0]
    model = multimdm.load(tmp_path / "chat")
    assert model.advice is not None
    assert model.advice.prompts == "chat"
    samples = model.complete("9+3=", new_tokens=5, steps=5, temperature=0, order="confidence")
    written = [0, *chat_tokenizer().encode("9+3="), 2]
    assert samples.ids[0, : len(written)].tolist() == written, "the prompt is written as it was in training"
    assert samples.texts is not None
    assert "9+3=" not in samples.texts[0], "answers alone"
    capsys.readouterr()
    assert main(["sample", str(tmp_path / "chat"), "--prompt", "9+3=", "--num", "1", "--new-tokens", "5"]) == 0
    assert "9+3=" not in capsys.readouterr().out
