"""What the README shows must work."""

import re
import shutil
from pathlib import Path

import torch

from multimdm.cli.main import main

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def run_snippet(containing: str) -> dict:
    (snippet,) = (s for s in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if containing in s)
    names: dict = {}
    exec(snippet.replace("50_257", "257").replace("num_masks=50", "num_masks=5"), names)
    return names


def test_the_process_snippet_runs():
    names = run_snippet("MultiMask")
    assert names["x_s"].shape == (2, 128)
    assert names["terms"].total.shape == (2, 128)


def test_the_tales_snippet_runs(capsys):
    names = run_snippet("Tales")
    text = capsys.readouterr().out
    assert text.count(".") >= 5
    assert "[True, True, True]" in text.replace("\n", "")
    assert f"{names['tales'].vocab_size} words" in README
    story = " ".join(line.removeprefix("> ") for line in README.splitlines() if line.startswith("> "))
    assert bool(names["tales"].valid(torch.tensor([names["tales"].encode(story)])))
    assert f"{names['tales'].entropy_per_token:.2f} nats per token" in README.replace("\n", " ")


def test_the_commands_run(tmp_path, monkeypatch):
    """`prepare`, `import` and `export` as printed, on small files and without the Hub's tokenizer."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("\n".join(f"This is line {n} of a book." for n in range(200)), encoding="utf-8")
    shutil.copytree(Path(__file__).parents[1] / "golden" / "mdlm_dit", "mdlm-owt")
    lines = re.findall(r"^multimdm ((?:prepare|import|export) .*)$", README, flags=re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        assert main(line.replace(" --tokenizer gpt2", "").replace("bpe:4096", "bpe:300").split()) == 0
    assert Path("back-again/model.safetensors").exists()


def test_training_sampling_and_measuring(tmp_path, monkeypatch, capsys):
    """The five commands as printed, with fewer steps and smaller networks; then the snippet on what they made."""
    monkeypatch.chdir(tmp_path)
    short = "--train.steps 2 --train.batch-size 2 --log.validation-sequences 2 --log.sample-every 0"
    small = " --network.hidden-dim 16 --network.num-blocks 1 --network.num-heads 2"
    extra = {
        "pretrain": short + small,
        "adapt": short,
        "sample": "--num 2",
        "evaluate": "--num 2 --sequences 2",
        "pareto": "--num 2 --temperatures 1.0",
    }
    lines = re.findall(r"^multimdm ((?:pretrain|adapt|sample|evaluate|pareto) .*)$", README, flags=re.MULTILINE)
    assert [line.split()[0] for line in lines] == list(extra)
    for line in lines:
        assert main(f"{line} {extra[line.split()[0]]}".split()) == 0, line
    assert Path("runs/measured/report.html").exists()
    run_snippet("multimdm.load")
    assert "[MASK]" not in capsys.readouterr().out


def test_files_that_it_names_exist():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parents[2] / link).exists(), link
