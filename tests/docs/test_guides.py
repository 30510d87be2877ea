"""What the guides show must work: every command as printed, on small files, with fewer steps and smaller networks."""

import gzip
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from multimdm.cli.main import main
from support.shortening import with_options

DOCS = Path(__file__).parents[2] / "docs"
GOLDEN = Path(__file__).parents[1] / "golden"

SHORT = "--train.steps 2 --train.batch-size 2 --log.validation-sequences 2 --log.sample-every 0 --train.no-compile"
SMALL = "--network.hidden-dim 16 --network.num-blocks 1 --network.num-heads 2"
EXTRA = {
    "pretrain": f"{SHORT} {SMALL}",
    "train-text": "--fast --longer 0.003",
    "adapt": SHORT,
    "couple": f"{SHORT} --quantile.size 4",
    "distill": SHORT.replace("steps 2", "steps 5"),
    "evaluate": "--num 2 --sequences 2",
    "pareto": "--num 2 --temperatures 1.0 --align-entropy none",
    "entropy": "--out runs/entropy",
    "reproduce": "--list",
}
"""What makes each command short."""
INSTEAD = {
    "bpe:4096": "bpe:300",
    "--tokenizer gpt2": "--tokenizer data/letters",  # the Hub's, in place of which stands one of the same size
    "--preset lm1b": "--preset lm1b book.txt --tokenizer bpe:300",
    "--preset openwebtext": "--preset openwebtext letters.txt --tokenizer data/letters --valid-last 2 --length 16",
    "--ranks 8": "--ranks 2",
    "--steps 4 8 16": "--steps 1 2",
}
STORIES = ("pretrain tales-mdlm", "adapt tales-multimdm-cont")
LETTERS = "prepare letters.txt --tokenizer chars --out data/letters"
WEB = "prepare --preset openwebtext --out data/owt"
BEFORE = {
    "adaptation": (LETTERS,),
    "data": (LETTERS,),
    "distillation": STORIES,
    "evaluation": STORIES,
    "scaling": (LETTERS, WEB),
}
"""What a guide takes for granted."""
NUMBER = {
    "adaptation": 10,
    "data": 12,
    "distillation": 2,
    "evaluation": 8,
    "method": 1,
    "models": 4,
    "own-text": 3,
    "quantile": 6,
    "reproduction": 6,
    "scaling": 3,
}
"""Commands of each guide: none is overlooked."""


def commands(guide: str) -> list[str]:
    """Without the name of the program; with torchrun, what each rank would run."""
    text = (DOCS / f"{guide}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]
    shown += re.findall(r"\*Made by `(multimdm [^`]+)`", text)
    return [re.sub(r"^(torchrun .* -m )?multimdm ", "", line) for line in shown if "multimdm " in line]


def shortened(command: str) -> list[str]:
    for printed, small in INSTEAD.items():
        command = command.replace(printed, small)
    return with_options(shlex.split(command), shlex.split(EXTRA.get(command.split()[0], "")))


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """The files that the guides speak of."""
    monkeypatch.chdir(tmp_path)
    for name in ("book", "captions", "novel"):
        lines = "\n".join(f"This is line {n} of a {name}.\n" for n in range(150))
        Path(f"{name}.txt").write_text(lines, encoding="utf-8")
    Path("diary.txt").write_text("\n<|endoftext|>\n".join(f"Day {n}.\nIt rained." for n in range(40)), encoding="utf-8")
    pairs = ({"prompt": f"How tall is tower {n}?", "answer": f"{n} feet"} for n in range(60))
    Path("questions.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    Path("parts").mkdir()
    with gzip.open("parts/one.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"body": f"Note {n} says little."}) + "\n" for n in range(150))
    # As many characters, with four special tokens, as the small MDLM has tokens.
    letters = "".join(chr(0x100 + n) for n in range(96))
    Path("letters.txt").write_text("\n".join(letters[n : n + 12] for n in range(84 + 1)), encoding="utf-8")
    shutil.copytree(GOLDEN / "mdlm_dit", "mdlm-owt")
    return tmp_path


@pytest.mark.parametrize("guide", NUMBER)
def test_its_commands_run(guide, workplace):
    found = commands(guide)
    assert len(found) == NUMBER[guide], found
    for command in (*BEFORE.get(guide, ()), *found):
        words = shortened(command)
        assert main(words) == 0, words
        if words[0] == "prepare":
            check_sources(words)


def check_sources(words: list[str]) -> None:
    """All that a command names is in the data: an option that is dropped in silence loses half of them."""
    named = {word.rpartition(":")[2] for word in words if re.search(r"\.(txt|jsonl(\.gz)?)$|^parts/", word)}
    out = Path(words[words.index("--out") + 1])
    manifest = json.loads(next(path for path in sorted(out.rglob("manifest.json"))).read_text(encoding="utf-8"))
    assert {source["name"] for source in manifest["sources"]} == named, words


def test_snippets_of_the_data_guide(workplace, capsys):
    """The first prepared data and Tales in Python."""
    text = (DOCS / "data.md").read_text(encoding="utf-8")
    assert main(shortened(next(line for line in commands("data") if "captions.txt" in line))) == 0
    snippets = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(snippet, {})
    assert "This is line" in capsys.readouterr().out
