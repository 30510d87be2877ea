import subprocess
import sys
import time

import pytest

from multimdm.cli import prepare as command
from multimdm.cli.main import main
from multimdm.data.options import PRESETS, PrepareOptions
from multimdm.data.prepared import PreparedData
from support.shortening import with_options


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"the cat sat on {i} mats\n" for i in range(100)), encoding="utf-8")
    return path


@pytest.fixture
def asked(monkeypatch):
    """The options that the arguments stand for; nothing is run."""
    seen = []
    monkeypatch.setattr(command, "run", seen.append)

    def parse(*arguments):
        assert main(["prepare", *arguments]) == 0
        return seen[-1]

    return parse


def test_prepare_and_again(corpus, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    arguments = ["prepare", str(corpus), "--tokenizer", "bpe:300", "--length", "32", "--out", str(out)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert f"wrote {out}" in shown.replace("\n", "")
    assert "100 documents" in shown
    assert PreparedData.open(out).manifest.counts.documents == 100
    assert sorted(path.name for path in out.iterdir()) == [
        "counts.bin",
        "lengths.bin",
        "manifest.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokens.bin",
    ]
    assert main(arguments) == 0
    assert "is up to date: nothing has changed" in capsys.readouterr().out
    assert main(with_options(arguments, ["--length", "16"])) == 2
    assert "--length was 32, is 16" in capsys.readouterr().err
    assert main(with_options(arguments, ["--length", "16", "--force"])) == 0
    assert PreparedData.open(out).manifest.length == 16


def test_splits_and_padding_are_told(corpus, tmp_path, capsys):
    arguments = ["--tokenizer", "chars", "--layout", "padded", "--length", "20", "--valid-fraction", "0.1"]
    assert main(["prepare", str(corpus), *arguments, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "train      90 documents in 90 sequences of 20" in shown
    assert "valid      10 documents in 10 sequences of 20" in shown
    assert "90 documents cut" in shown


def test_mix(corpus, tmp_path):
    other = tmp_path / "b.jsonl"
    other.write_text('{"text": "a dog"}\n' * 50, encoding="utf-8")
    mix = ["--mix", f"0.5:{corpus}", f"0.5:{other}"]
    assert main(["prepare", *mix, "--tokenizer", "chars", "--out", str(tmp_path / "out")]) == 0
    assert PreparedData.open(tmp_path / "out").manifest.options["mix"] == mix[1:]


def test_options_reach_the_library(asked):
    options = asked("a.txt", "b.txt", "--out", "x", "--documents", "file", "--field", "body", "--drop-last")
    assert options.sources == ("a.txt", "b.txt")
    assert (options.documents, options.field, options.drop_last, options.force) == ("file", "body", True, False)
    assert options.preset is None


def test_presets(asked):
    options = asked("--preset", "lm1b", "--out", "x")
    assert (options.tokenizer, options.length, options.layout) == ("bert-base-uncased", 128, "packed")
    assert (options.detokenize, options.valid) == ("lm1b", ("hf:dvruette/lm1b#test",))
    options.check()
    options = asked("--preset=openwebtext", "--out", "x")
    assert (options.tokenizer, options.length, options.layout) == ("gpt2", 1024, "packed")
    assert (options.sources, options.valid_last) == (("hf:dylanebert/openwebtext",), 100_000)
    assert options.detokenize is None
    options.check()


def test_presets_are_overridden(asked):
    options = asked("mine.txt", "--preset", "openwebtext", "--length", "256", "--valid_fraction=0.1", "--out", "x")
    assert (options.sources, options.length, options.tokenizer) == (("mine.txt",), 256, "gpt2")
    assert (options.valid_fraction, options.valid_last) == (0.1, None)
    options.check()
    options = asked("--preset", "openwebtext", "--mix", "1:a.txt", "--out", "x")
    assert (options.sources, options.mix) == ((), ("1:a.txt",))
    options.check()


def test_presets_name_options_only():
    for values in PRESETS.values():
        PrepareOptions(**values).check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "source 'none.txt': there is no such file or folder"),
        ([], "give the text to prepare"),
        (["none.txt", "--length", "1"], "--length must be at least 3"),
        (["none.txt", "--preset", "imagenet"], "--preset imagenet: there is none of that name; the presets are lm1b"),
        (["--mix", "0.5:none.txt", "half:b"], "--mix half:b: expected WEIGHT:SOURCE"),
        (["hf:"], "A data set is written hf:NAME"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(arguments, message, tmp_path, capsys):
    assert main(["prepare", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_preset_named(capsys):
    with pytest.raises(SystemExit):
        main(["prepare", "--out", "x", "--preset"])
    assert "--preset" in capsys.readouterr().err


def test_help_is_quick_and_plain():
    start = time.perf_counter()
    code = (
        "import sys; from multimdm.cli.main import main\n"
        "try: main(['prepare', '--help'])\n"
        "finally: print([m for m in ('torch', 'transformers', 'datasets', 'pyarrow') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert time.perf_counter() - start < 5
    assert shown.endswith("[]\n")
    assert "SOURCE ..." in shown
    for option in ("--tokenizer", "--mix", "--layout", "--valid-fraction", "--preset", "--force", "--out"):
        assert option in shown
