import json
import subprocess
import sys
from shlex import split

import pytest
import torch

from multimdm.cli.main import main
from multimdm.data import Tales
from multimdm.data.tales import tales_tokenizer
from multimdm.models import DiT, DiTConfig
from multimdm.pipeline import Model, load
from multimdm.process import MultiMask, Process, Uniform
from multimdm.samplers import SamplingAdvice
from support.tiny_models import shown_tales_model, word_model, word_tokenizer

TALES = Tales()
PROCESSES: dict[str, Process | None] = {
    "several": MultiMask(TALES.vocab_size, 4),
    "one": MultiMask(TALES.vocab_size, 1),
    "uniform": Uniform(TALES.vocab_size),
    "causal": None,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Directories of untrained models of every kind, and of one without a tokenizer."""
    root = tmp_path_factory.mktemp("checkpoints")
    for name, process in PROCESSES.items():
        network = DiT(
            DiTConfig(
                vocab_size=TALES.vocab_size,
                num_masks=1 if process is None else process.num_masks,
                causal=process is None,
                conditioning="none" if process is None else "sigma",
                hidden_dim=8,
                num_blocks=1,
                num_heads=1,
                cond_dim=4,
                max_length=16,
            )
        )
        Model(network, process, tales_tokenizer(TALES)).save(root / name)
    Model(network, MultiMask(TALES.vocab_size, 1)).save(root / "bare")
    return root


def run(capsys, *arguments) -> str:
    assert main(["sample", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_texts(checkpoints, capsys):
    assert main(["sample", str(checkpoints / "several"), "--num", "3", "--steps", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "3 texts of 16 tokens by 2 network calls\n"
    expected = load(checkpoints / "several").sample(num=3, steps=2).texts
    assert printed.out.splitlines() == [f"[{i + 1}] {text}" for i, text in enumerate(expected)]


def test_fewer_calls_than_steps_are_explained(checkpoints, capsys):
    """With a threshold that every position passes, one call settles all."""
    arguments = ["--num", "1", "--length", "16", "--steps", "8", "--order", "confidence", "--threshold", "0.000001"]
    assert main(["sample", str(checkpoints / "several"), *arguments]) == 0
    error = capsys.readouterr().err
    assert error == (
        "1 text of 16 tokens by 1 network call, finished early: nothing was left to do in the rest of 8 steps\n"
    )


def test_tokens_are_not_obeyed_by_the_terminal(tmp_path, capsys):
    """Every token of this model is a command to a terminal, or to a browser."""
    words = ["<script>", "\x1b[31m", "\u202eback", "\x9b2J", "[bold]", "nul\0"]
    word_model(word_tokenizer(words)).save(tmp_path / "model")
    assert main(["sample", str(tmp_path / "model"), "--num", "8", "--temperature", "50", "--trace"]) == 0
    text = capsys.readouterr().out
    assert "\\x1b[31m" in text
    assert "[bold]" in text
    assert main(["sample", str(tmp_path / "model"), "--num", "8", "--temperature", "50", "--json"]) == 0
    data = capsys.readouterr().out
    for printed in (text, data):
        assert not set(printed) & set("\x1b\u202e\x9b\0")
    assert any("\x1b[31m" in row["text"] for row in json.loads(data)["samples"])
    assert main(["sample", str(tmp_path / "nowhere\x1b[31m")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_every_option_reaches_the_sampler(checkpoints, capsys):
    options = split(
        "--num 2 --length 9 --steps 3 --temperature 0.7 --top-p 0.9 --top-k 50 --seed 4 --grid cosine --greedy-last "
        "--corrector 0.2 --batch-size 1 --json"
    )
    data = json.loads(run(capsys, checkpoints / "several", *options))
    expected = load(checkpoints / "several").sample(
        2, 9, 3, 0.7, 4, top_p=0.9, top_k=50, grid="cosine", greedy_last=True, corrector=0.2
    )
    assert [row["ids"] for row in data["samples"]] == expected.ids.tolist()
    assert [row["text"] for row in data["samples"]] == expected.texts
    assert data["nfe"] == expected.nfe == 3
    assert data["settings"]["sampling"]["top_k"] == 50
    confident = split("--order confidence --block-length 4 --threshold 0.5 --steps 8 --json")
    data = json.loads(run(capsys, checkpoints / "one", *confident))
    assert data["nfe"] <= 8


def test_advice_is_followed_unless_an_option_says_otherwise(tmp_path, capsys):
    shown_tales_model(SamplingAdvice(order="rewrite", temperature=0, steps=3), length=16).save(tmp_path / "model")
    model = load(tmp_path / "model")
    for options, expected in (
        ("", model.sample(2)),
        ("--temperature 1", model.sample(2, temperature=1)),
        ("--order left_to_right --steps 5", model.sample(2, steps=5, order="left_to_right", temperature=0)),
        ("--grid cosine", model.sample(2, steps=3, temperature=0, order="ancestral", grid="cosine")),
    ):
        data = json.loads(run(capsys, tmp_path / "model", "--num", "2", "--json", *split(options)))
        assert [row["ids"] for row in data["samples"]] == expected.ids.tolist()
        assert expected.sampling is not None
        used = data["settings"]["sampling"]
        assert [used[name] for name in ("order", "temperature", "steps")] == [
            *(expected.sampling.order, expected.sampling.temperature, expected.sampling.steps)
        ]


def test_a_grid_of_times(checkpoints, capsys):
    data = json.loads(run(capsys, checkpoints / "one", "--grid", "1", "0.4", "0", "--json", "--trace"))
    assert data["samples"][0]["trace"]["times"] == [1.0, 0.4, 0.0]
    assert len(data["samples"][0]["trace"]["states"]) == 3


def test_prompt_and_infill(checkpoints, capsys):
    out = run(capsys, checkpoints / "several", "--prompt", "Otto loved to", "--num", 2)
    assert all("loved to" in line for line in out.splitlines())
    out = run(capsys, checkpoints / "several", "--infill", "Otto [MASK] to [MASK].", "--num", 1)
    assert " to " in out
    assert out.rstrip().endswith(".")


def test_several_prompts_and_texts(checkpoints, capsys):
    """An option that is given again adds a text; its value may look like anything but an option."""
    model = load(checkpoints / "several")
    prompts = ["Otto loved to", "Lily"]
    options = ["--prompt", prompts[0], "--num", "2", f"--prompt={prompts[1]}", "--new-tokens", "3", "--json"]
    assert main(["sample", *options, str(checkpoints / "several")]) == 0  # the checkpoint may come last
    printed = capsys.readouterr()
    made = model.complete(prompts, num=2, new_tokens=3)
    data = json.loads(printed.out)
    assert [row["text"] for row in data["samples"]] == made.texts
    assert [len(row["ids"]) for row in data["samples"]] == [6, 6, 4, 4]
    assert data["settings"]["prompt"] == prompts
    assert printed.err.startswith(f"4 texts of up to 6 tokens by {made.nfe} network calls")
    data = json.loads(run(capsys, *options, "--trace", checkpoints / "several"))
    assert [{len(ids) for ids in row["trace"]["states"]} for row in data["samples"]] == [{6}, {6}, {4}, {4}]
    texts = ["Otto [MASK] to", "[MASK]."]
    data = json.loads(
        run(capsys, checkpoints / "several", "--infill", texts[0], "--infill", texts[1], "--num", 1, "--json")
    )
    assert [row["text"] for row in data["samples"]] == model.infill(texts).texts


def test_the_trace_reads_without_colour(checkpoints, capsys):
    out = run(capsys, checkpoints / "several", "--num", 1, "--trace", "--length", 8, "--steps", 3)
    rows = [line for line in out.splitlines() if line.startswith("t=")]
    assert len(rows) % 4 == 0  # as many tables as the width asks for, of four states each
    assert "◇" in rows[0] or "◆" in rows[0]
    assert "◇" not in rows[3]
    assert "◆" not in rows[3]
    assert "\x1b" not in out
    assert "◆ mask of the final token  ◇ another mask" in out
    assert "◇ another token" in run(capsys, checkpoints / "uniform", "--num", 1, "--trace", "--length", 4)
    assert "◇ not made yet" in run(capsys, checkpoints / "causal", "--num", 1, "--trace", "--length", 4)
    assert "another mask" not in run(capsys, checkpoints / "one", "--num", 1, "--trace", "--length", 4)


def test_the_kinds_have_colours_of_their_own(checkpoints, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = run(capsys, checkpoints / "several", "--num", 1, "--trace", "--length", 8)
    legend = out.splitlines()[-1]
    assert len({part.split("m")[0] for part in legend.split("\x1b[")[1:] if not part.startswith("0m")}) == 3


def test_out(checkpoints, tmp_path, capsys):
    path = tmp_path / "new" / "texts.txt"
    assert run(capsys, checkpoints / "one", "--num", 2, "--trace", "--out", path) == ""
    assert path.read_text(encoding="utf-8").startswith("[1] ")
    assert main(["sample", str(checkpoints / "one"), "--out", str(path)]) == 2
    assert "exists already; choose another place or remove it" in capsys.readouterr().err


def test_out_appears_whole_or_not_at_all(checkpoints, tmp_path, monkeypatch, capsys):
    def fail(model, trace, number, console):
        console.print("half")
        raise OSError("disk full")

    monkeypatch.setattr("multimdm.cli.trace_grid.print_trace", fail)
    assert main(["sample", str(checkpoints / "one"), "--trace", "--out", str(tmp_path / "texts.txt")]) == 2
    assert "disk full" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_device(checkpoints, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    plain = run(capsys, checkpoints / "one", "--num", 1)
    assert run(capsys, checkpoints / "one", "--num", 1, "--device", "cpu") == plain
    assert main(["sample", str(tmp_path / "nowhere"), "--device", "cuda"]) == 2
    assert "cuda is not available" in capsys.readouterr().err


def test_without_a_tokenizer_there_are_ids(checkpoints, capsys):
    assert main(["sample", str(checkpoints / "bare")]) == 2
    assert "has no tokenizer to make text of the ids" in capsys.readouterr().err
    data = json.loads(run(capsys, checkpoints / "bare", "--json", "--num", 1, "--length", 3))
    assert list(data["samples"][0]) == ["ids"]
    assert torch.tensor(data["samples"][0]["ids"]).shape == (3,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "steps must be an integer of at least 1; got 0"),
        (["--length", "17"], "length must be at most 16, for which the network was made; got 17"),
        (["--num", "0"], "--num must be at least 1; got 0"),
        (["--seed", "-1"], "--seed must be at least 0; got -1"),
        (["--temperature", "-1"], "temperature must be 0 (the most probable token) or a finite number"),
        (["--top-p", "0"], "top_p must lie in (0, 1]"),
        (["--grid", "1", "0.5"], "grid must fall from 1 to 0"),
        (["--infill", "Otto loved"], "text must have a [MASK]"),
        (["--infill", "[MASK]", "--prompt", "Otto"], "--prompt and --infill exclude each other"),
        (["--infill", "[MASK]", "--length", "4"], "--length must be left out with --infill"),
        (["--prompt", "Otto loved to read", "--length", "2"], "prompt must fit into the length of 2"),
        (["--bos"], "--bos needs --prompt or --infill"),
        (["--max-new-tokens", "5"], "there is no option --max-new-tokens; here it is --new-tokens, or length, which"),
        (["--num_return_sequences=5"], "there is no option --num_return_sequences; here it is --num\n"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(arguments, message, checkpoints, tmp_path, capsys):
    assert main(["sample", str(checkpoints / "several"), *arguments, "--out", str(tmp_path / "out.txt")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.txt").exists()


def test_no_such_checkpoint(tmp_path, capsys):
    assert main(["sample", str(tmp_path / "nowhere"), "--out", str(tmp_path / "new" / "a.txt")]) == 2
    assert "nowhere is not a checkpoint directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["sample", "evaluate", "pareto"])
def test_help_does_not_wait_for_torch(command):
    code = (
        "import sys\n"
        "from multimdm.cli.main import main\n"
        f"try: main(['{command}', '--help'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"
