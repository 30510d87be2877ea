"""What the README shows must work."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from multimdm.cli.main import main
from multimdm.cli.training import parsed
from multimdm.data import Tales
from multimdm.pipeline.builtin_cards import builtin_card
from multimdm.report.reproduction_report import read_study
from support.shortening import with_options

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


QUOTED = [block.replace("\n> ", " ") for block in re.findall(r"^> (.*(?:\n> .*)*)$", README, flags=re.MULTILINE)]
"""Stories that it shows."""


def valid(story: str) -> bool:
    """Whether it is a story of Tales, from beginning to end."""
    return bool(Tales().valid(torch.tensor([Tales().encode(story)])))


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
    assert len(QUOTED) == 2
    assert all(map(valid, QUOTED))
    assert f"{names['tales'].entropy_per_token:.2f} nats per token" in README.replace("\n", " ")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory in which the commands are run one after the other."""
    folder = tmp_path_factory.mktemp("readme")
    lines = "\n".join(f"This is line {n} of a book." for n in range(400))
    (folder / "book.txt").write_text(lines, encoding="utf-8")
    shutil.copytree(Path(__file__).parents[1] / "golden" / "mdlm_dit", folder / "mdlm-owt")
    return folder


SHORT = "--train.steps 2 --train.batch-size 2 --log.validation-sequences 2 --log.sample-every 0 --train.no-compile "
SMALL = "--network.hidden-dim 16 --network.num-blocks 1 --network.num-heads 2 "
EXTRA = {
    "pretrain": SHORT + SMALL,
    "train-text": "--fast --longer 0.003",
    "adapt": SHORT,
    "couple": SHORT,
    "distill": SHORT.replace("steps 2", "steps 5"),
    "sample": "--num 2",
    "evaluate": "--num 2",
    "pareto": "--num 2 --temperatures 1.0",
    "reproduce": "--list",
}
"""What makes a command of the README short."""


@pytest.mark.unchecked  # a minute of training: with the checks, several
def test_the_quickstart_and_what_follows_it(place, monkeypatch):
    """`make quickstart` calls `multimdm quickstart`; here its short version, then the commands on what it made."""
    monkeypatch.chdir(place)
    assert "$(BIN)/multimdm quickstart\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert main(["quickstart", "--fast", "--out", "runs/quickstart"]) == 0
    assert Path("runs/quickstart/report.html").exists()
    (line,) = re.findall(r"^\.venv/bin/multimdm (.*)$", README, flags=re.MULTILINE)
    assert main(line.split()) == 0


def test_the_first_text(place, monkeypatch, capsys):
    """Without a checkpoint, anywhere; the prompt is kept, and nothing that a reader sees first has a mistake."""
    monkeypatch.chdir(place)
    (line,) = re.findall(r"^pip install \.\nmultimdm (sample .*)$", README, flags=re.MULTILINE)
    assert main([*line.split(), "--json"]) == 0
    said = capsys.readouterr()
    assert "by 2 network calls" in said.err
    printed = [sample["text"] for sample in json.loads(said.out)["samples"]]
    run_snippet("multimdm.load")
    stories, completed = map(ast.literal_eval, capsys.readouterr().out.splitlines())
    assert stories == printed[:2]
    assert QUOTED[0] in stories
    assert completed[0].startswith("Lily raced to the harbor")
    assert all(map(valid, (*printed, *completed)))


def test_what_it_says_of_quantile_noise_is_what_three_seeds_gave():
    (study,) = read_study(ROOT / "docs" / "results" / "quantile-tales.json")
    ppl = {
        e.label: {one.measurement.steps: one.measurement.gen_ppl.value for one in e.aligned if one.measurement.gen_ppl}
        for e in study.evaluations
    }
    distilled = [label for label in ppl if " + " in label]
    at_random = [label for label in distilled if "confidence" not in label]
    ours, masked, best = ppl["quantile"][2], ppl["MDLM"][16], min(ppl[label][16] for label in at_random)
    said = f"2 calls (perplexity {ours:.0f}) beat 16 of masked ({masked:.0f}) and distilled models ({best:.0f} at best)"
    assert said in README
    assert ours < best < masked
    assert study.seeds == 3
    surest_first = [label for label in ppl if label.endswith("confidence")]
    below = min(K for label in surest_first for K, value in ppl[label].items() if value < ours)
    assert f"those get below it from {below} calls on" in README


def test_figures_of_built_in_models_are_those_of_their_cards():
    text = README.replace("\n", " ")
    figures, masked = builtin_card("tales").figures, builtin_card("tales-mdlm").figures
    few = "{:.1f}, {:.1f} and {:.1f}".format(*(one.gen_ppl.value for one in figures))
    assert f"have an exact perplexity of {few} " in text
    assert f"without a mistake in {100 * figures[1].valid_stories.value:.0f}% of cases, in two calls" in text
    told = re.findall(r"6,000 steps, ([\d,]+), ([\d,]+) and ([\d,]+)\)", text)
    assert [float(number.replace(",", "")) for number in told[0]] == pytest.approx(
        [one.gen_ppl.value for one in masked], rel=0.005
    )


def test_the_other_commands_run(place, monkeypatch):
    """As printed, with fewer steps and smaller networks, and without the Hub's tokenizer."""
    monkeypatch.chdir(place)
    assert main(f"pretrain tales-mdlm {EXTRA['pretrain']}".split()) == 0  # what `adapt` begins with
    names = "prepare|train-text|pretrain|adapt|distill|couple|sample|evaluate|pareto|import|reproduce"
    lines = re.findall(rf"^multimdm ((?:{names}) .*)$", README, flags=re.MULTILINE)
    inline = re.findall(r"`multimdm (export[^`]*)`", README)
    assert [line.split()[0] for line in [*lines, *inline]] == [
        "sample",
        *("prepare", "train-text", "sample"),
        *("import", "adapt", "distill", "evaluate", "pareto"),
        *("pretrain", "couple", "sample"),
        *("reproduce", "export"),
    ]
    for line in (*lines, *inline):
        line = line.replace(" --tokenizer gpt2", "").replace("bpe:4096", "bpe:300")
        assert main(with_options(line.split(), EXTRA.get(line.split()[0], "").split())) == 0, line
    assert Path("back-again/model.safetensors").exists()
    assert Path("runs/measured/report.html").exists()


def test_the_command_for_many_gpus_is_read():
    (line,) = re.findall(r"^torchrun --nproc-per-node 8 -m multimdm pretrain (.*)$", README, flags=re.MULTILINE)
    options = parsed("pretrain", line.split())
    assert options.train.micro_batch == 32


def test_files_that_it_names_exist():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
