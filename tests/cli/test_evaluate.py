import json
import os
import signal

import pytest

from multimdm.cli.main import main
from multimdm.pipeline import Model
from multimdm.samplers import SamplingAdvice
from support.shortening import with_options
from support.tiny_judges import save_tiny_gpt2
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model, word_model, word_tokenizer


@pytest.fixture
def checkpoint(tmp_path):
    tales_model().save(tmp_path / "tiny" / "model")
    return str(tmp_path / "tiny" / "model")


@pytest.fixture
def calls(monkeypatch):
    """Every call of `Model.sample`."""
    asked, original = [], Model.sample
    monkeypatch.setattr(Model, "sample", lambda self, **named: asked.append(named) or original(self, **named))
    return asked


def _left_with(command: list[str]) -> int | str | None:
    """The code of the program, however it ends."""
    try:
        return main(command)
    except SystemExit as left:
        return left.code


FEW = ["--steps", "1", "2", "--num", "6", "--sequences", "8"]


def test_tables_are_printed(checkpoint, capsys):
    assert main(["evaluate", checkpoint, *FEW, "--nelbo"]) == 0
    out, err = capsys.readouterr()
    for wanted in ("GenPPL", "judge tales", "entropy", "NELBO", "exact entropy 1.0359", "real text (tales)"):
        assert wanted in out
    assert "K = 2, tau = 1" in err


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_asked_to_stop_it_keeps_what_is_measured_and_goes_on(
    name, code, checkpoint, tmp_path, calls, monkeypatch, capfd
):
    """The request comes in the middle of the second sampling, which is finished and not done again."""
    command = ["evaluate", checkpoint, *FEW, "--temperatures", "0.7", "1.0", "--out", str(tmp_path / "out")]
    counted = Model.sample

    def asked(self, **named):
        if len(calls) == 1:
            os.kill(os.getpid(), getattr(signal, name))
        return counted(self, **named)

    monkeypatch.setattr(Model, "sample", asked)
    assert _left_with(command) == code
    said = capfd.readouterr().err
    assert "stopping: the measurement at hand is finished and kept first; a second signal stops at once" in said
    assert "kept 3 of 5 measurements; the same command goes on" in said  # that of real text is the first
    assert "evaluate: stopped" not in said
    assert not (tmp_path / "out" / "results.json").exists()
    monkeypatch.setattr(Model, "sample", counted)
    assert main(command) == 0
    assert len(calls) == 4
    assert main([*command[:-1], str(tmp_path / "whole")]) == 0
    ours, theirs = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("out", "whole"))
    assert ours == theirs


def test_where_nothing_is_kept_it_stops_at_once_and_says_so(checkpoint, monkeypatch, capsys):
    def asked(self, **named):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("it went on")

    monkeypatch.setattr(Model, "sample", asked)
    assert _left_with(["evaluate", checkpoint, *FEW]) == 143
    assert "evaluate: stopped; with --out, the same command goes on from what was measured" in capsys.readouterr().err


def test_results_report_and_nothing_twice(checkpoint, tmp_path, calls, capsys):
    command = ["evaluate", checkpoint, *FEW, "--nelbo", "--align-entropy", "corpus", "--report"]
    command += ["--temperatures", "0.7", "1.0", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    drawn = len(calls)
    assert drawn >= 2 * (2 + 1 + 1)  # two temperatures, an alignment and a trajectory at each K
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["label"] == "tiny"
    assert [(m["steps"], m["temperature"]) for m in results["measurements"]] == [(1, 0.7), (1, 1.0), (2, 0.7), (2, 1.0)]
    assert [m["nfe"] for m in results["measurements"]] == [1, 1, 2, 2]
    for m in results["measurements"]:
        assert m["gen_ppl"]["low"] <= m["gen_ppl"]["value"] <= m["gen_ppl"]["high"]
        assert m["judge"] == "tales"
    assert {one["target"] for one in results["aligned"]} == {results["real"]["entropy"]["value"]}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http:" not in page
    assert "https:" not in page
    capsys.readouterr()

    assert main([*command, "--json"]) == 0
    assert len(calls) == drawn  # the second run samples nothing
    assert json.loads(capsys.readouterr().out) == results
    assert main(with_options(command, ["--temperatures", "0.7", "1.0", "0.9"])) == 0
    assert len(calls) == drawn + 2  # and a new temperature costs only itself


def test_what_texts_hold_is_not_obeyed(tmp_path, capsys):
    """JSON by itself escapes neither marks of direction nor the controls from 0x7f on."""
    words = ["\x1b[31m", "\u202eback", "\x9b2J", "\x7f", "nul\0"]
    word_model(word_tokenizer(words)).save(tmp_path / "model")
    command = ["evaluate", str(tmp_path / "model"), "--judge", "none", "--steps", "1", "--num", "8"]
    assert main([*command, "--temperature", "50", "--json", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    files = [file.read_text(encoding="utf-8") for file in (tmp_path / "out").rglob("*.json")]
    assert len(files) > 1
    for text in (printed, *files):
        assert not set(text) & set("\x1b\u202e\x9b\x7f\0")
    texts = " ".join(text for point in json.loads(printed)["measurements"] for text in point["texts"])
    assert {"\u202e", "\x9b"} <= set(texts)


def test_other_weights_are_measured_anew(checkpoint, tmp_path, calls):
    command = ["evaluate", checkpoint, "--steps", "1", "--num", "2", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    tales_model(seed=1).save(checkpoint, replace=True)
    assert main(command) == 0
    assert len(calls) == 2


def test_advice_is_followed_recorded_and_part_of_what_results_depend_on(tmp_path, calls):
    path, out = str(tmp_path / "model"), tmp_path / "out"
    command = ["evaluate", path, "--steps", "2", "--num", "2", "--out", str(out)]

    def measured(advice: SamplingAdvice | None, *options: str) -> list:
        """Order and temperature in results.json, and as `Model.sample` was asked for them; None if it was not."""
        shown_tales_model(advice).save(path, replace=True)
        calls.clear()
        assert main([*command, *options]) == 0
        results = json.loads((out / "results.json").read_text())
        (figures,) = results["measurements"]
        asked = [(one["sampling"].order, one["sampling"].temperature) for one in calls]
        return [(results["drawing"]["law"]["order"], figures["temperature"]), *asked]

    assert measured(None) == [("ancestral", 1.0)] * 2
    advice = SamplingAdvice(order="confidence", temperature=0)
    assert measured(advice) == [("confidence", 0.0)] * 2
    assert measured(advice) == [("confidence", 0.0)]  # remembered
    assert measured(SamplingAdvice(order="rewrite", temperature=0)) == [("rewrite", 0.0)] * 2
    assert measured(advice, "--temperature", "1", "--order", "left_to_right") == [("left_to_right", 1.0)] * 2
    assert measured(advice, "--order", "confidence", "--temperature", "0") == [("confidence", 0.0)]  # as advised


def test_nelbo_alone_samples_nothing(checkpoint, calls, capsys):
    assert main(["evaluate", checkpoint, "--nelbo", "--sequences", "4", "--steps"]) == 0
    assert calls == []
    assert "NELBO" in capsys.readouterr().out


def test_recall_at_temperature_one_and_at_that_of_aligned_samples_of_one_step(checkpoint, tmp_path, calls, capsys):
    command = ["evaluate", checkpoint, *FEW, "--recall", "--strings", "16", "--align-entropy", "corpus", "--report"]
    command += ["--out", str(tmp_path / "out")]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "recall" in err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    at_one, aligned = results["recalls"]
    assert (at_one["temperature"], at_one["sequences"], at_one["strings"]) == (1.0, 8, 16)
    assert aligned["temperature"] == results["aligned"][0]["measurement"]["temperature"]
    assert at_one["nats"]["low"] < at_one["nats"]["value"] < at_one["nats"]["high"]
    said = f"{at_one['nats']['value']:.3f} [{at_one['nats']['low']:.3f}, {at_one['nats']['high']:.3f}] nats per token"
    assert f"recall in one step {said} at temperature 1 (8 texts, 16 noise strings)" in " ".join(out.split())
    assert said in (tmp_path / "out" / "report.html").read_text()

    calls.clear()
    assert main(["evaluate", checkpoint, "--recall", "--strings", "16", "--sequences", "8", "--json", "--steps"]) == 0
    assert calls == [], "recall alone samples nothing"
    assert json.loads(capsys.readouterr().out)["recalls"] == [at_one]


def test_recall_is_for_models_that_can_write_in_one_step(tmp_path, capsys):
    causal_tales_model().save(tmp_path / "ar")
    assert main(["evaluate", str(tmp_path / "ar"), "--recall", "--num", "2"]) == 2
    assert "--recall is for models of a discrete process, which can write in one step; ar is none: autoregressive" in (
        " ".join(capsys.readouterr().err.split())
    )


def test_an_autoregressive_model_has_one_number_of_steps(tmp_path, capsys):
    causal_tales_model().save(tmp_path / "ar")
    assert main(["evaluate", str(tmp_path / "ar"), "--steps", "1", "2", "--num", "2", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(m["steps"], m["nfe"]) for m in results["measurements"]] == [(48, 48)]


def test_blocks_and_thresholds_can_be_measured(checkpoint, capsys):
    law = ["--order", "confidence", "--block-length", "24", "--threshold", "0.9"]
    assert main(["evaluate", checkpoint, "--steps", "4", "--num", "4", *law, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["drawing"]["law"]["block_length"] == 24
    assert results["measurements"][0]["nfe"] <= 4


def test_the_device(checkpoint, calls, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["evaluate", checkpoint, "--steps", "1", "--num", "2", "--device", "cpu"]) == 0
    calls.clear()
    assert main(["evaluate", checkpoint, "--device", "cuda"]) == 2
    assert "cuda is not available" in capsys.readouterr().err
    assert calls == []


def test_settings_that_do_not_fit_are_refused(tmp_path, calls, capsys):
    causal_tales_model().save(tmp_path / "ar")
    out = tmp_path / "out"
    assert main(["evaluate", str(tmp_path / "ar"), "--corrector", "0.1", "--out", str(out)]) == 2
    message = capsys.readouterr().err
    assert "ar: order, corrector, grid, greedy_last and temperature_on are for diffusion models" in message
    assert calls == []
    assert not out.exists()


def test_missing_real_text_is_told(tmp_path, capsys):
    word_model(word_tokenizer([*"abcdefgh"])).save(tmp_path / "words")
    command = ["evaluate", str(tmp_path / "words"), "--judge", "none", *FEW, "--out", str(tmp_path / "out"), "--report"]
    assert main(command) == 0
    assert "No held-out text was given (--data)" in capsys.readouterr().out
    assert "No held-out text was given (--data)" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert main(command[:-1]) == 0
    assert not (tmp_path / "out" / "report.html").exists()  # it would be that of an earlier run


def test_a_hugging_face_judge(tmp_path, capsys):
    save_tiny_gpt2(tmp_path / "gpt2", [*"abcdefgh"])
    word_model(word_tokenizer([*"abcdefgh"])).save(tmp_path / "words")
    assert main(["evaluate", str(tmp_path / "words"), "--judge", str(tmp_path / "gpt2"), *FEW, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["judge"] == "gpt2"
    assert results["real"] is None
    assert all(m["gen_ppl"]["value"] > 1 for m in results["measurements"])
    assert all(m["valid_stories"] is None for m in results["measurements"])


def test_without_a_judge(checkpoint, capsys):
    assert main(["evaluate", checkpoint, "--judge", "none", "--steps", "1", "--num", "2", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["measurements"][0]["gen_ppl"] is None
    assert results["measurements"][0]["entropy"]["value"] > 0


def test_the_perfect_network_is_measured_like_a_checkpoint(tmp_path, calls, capsys):
    command = ["evaluate", "perfect:M=3,rho=0.5", "--steps", "1", "--num", "3", "--nelbo", "--sequences", "6"]
    command += ["--against-perfect", "--out", str(tmp_path), "--report"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "multi-mask diffusion, M = 3, rho = 0.5; exact predictions in place of a network" in out
    assert "what masks tell:" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["mask_reading"]["difference"] == pytest.approx(
        results["mask_reading"]["random"] - results["nelbo"]["total"]
    )
    assert [(one["states"], one["steps"]) for one in results["shortfalls"]] == [("data", None), ("sampler", 1)]
    assert all(one["nats"]["value"] == pytest.approx(0, abs=1e-12) for one in results["shortfalls"])
    page = (tmp_path / "report.html").read_text()
    assert "What masks tell" in page
    assert "Where the network loses" in page
    drawn = len(calls)
    assert main(command) == 0
    assert len(calls) == drawn, "its name and settings say whether it was measured before"


def test_where_a_network_loses_alone(checkpoint, capsys):
    assert main(["evaluate", checkpoint, "--steps", "--against-perfect", "--sequences", "4", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["shortfalls"]
    assert found["states"] == "data"
    assert found["nats"]["value"] > 1


def test_what_has_no_perfect_network_is_refused(tmp_path, calls, capsys):
    causal_tales_model().save(tmp_path / "causal")
    assert main(["evaluate", str(tmp_path / "causal"), "--against-perfect"]) == 2
    assert "--against-perfect is for models of Tales with masks or uniform states" in capsys.readouterr().err
    assert main(["evaluate", "perfect:masks=3"]) == 2
    assert "'masks=3' is none of M=20" in capsys.readouterr().err
    assert calls == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "steps must be"),
        (["--steps", "2", "2"], "--steps must be different numbers; got 2 2"),
        (["--steps"], "--steps must have a number"),
        (["--temperatures"], "--temperatures must have a number"),
        (["--num", "0"], "num must be an integer of at least 1; got 0"),
        (["--temperature", "-1"], "temperature must be"),
        (["--temperature", "1", "--temperatures", "1"], "exclude each other"),
        (["--align-entropy", "much"], "--align-entropy must be a number of nats, corpus, or none; got 'much'"),
        (["--nelbo", "--sequences", "0"], "--sequences must be at least 1; got 0"),
        (["--recall", "--strings", "0"], "--strings must be at least 1; got 0"),
        (["--report"], "--report needs --out"),
        (["--against-perfect", "--order", "confidence", "--guidance", "1"], "leave --guidance out"),
        (["--length", "49"], "length must be at most 48"),
        (["--judge", "./nowhere"], "judge './nowhere' cannot be found"),
        (["--data", "./nowhere", "--nelbo"], "nowhere"),
        (["--device", "gpu"], "device must be auto, cpu, mps, cuda or cuda:NUMBER; got 'gpu'"),
        (["--order", "confidence", "--block-length", "4"], "tiny: steps must be at least the number of blocks, 12"),
    ],
)
def test_bad_input_is_refused_before_any_sampling(arguments, message, checkpoint, calls, capsys):
    assert main(["evaluate", checkpoint, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert calls == []


def test_models_that_do_not_fit_are_refused(tmp_path, calls, capsys):
    model = word_model(word_tokenizer(["a", "b"]))
    model.save(tmp_path / "words")
    for arguments, message in [
        ([], "--judge is needed for GenPPL"),
        (["--judge", "tales"], "tales can be used only with a model of Tales"),
        (["--judge", "none", "--align-entropy", "corpus"], "--data is needed for --align-entropy corpus"),
        (["--judge", "none", "--nelbo"], "--data is needed for --nelbo"),
        (["--judge", "none", "--recall"], "--data is needed for --recall"),
    ]:
        assert main(["evaluate", str(tmp_path / "words"), *arguments]) == 2
        assert message in capsys.readouterr().err
    model.tokenizer = None
    model.save(tmp_path / "mute")
    assert main(["evaluate", str(tmp_path / "mute"), "--judge", "gpt2"]) == 2
    assert "no tokenizer" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    assert "is not a checkpoint directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert calls == []


def test_likelihoods(tmp_path, capsys):
    tales_model(num_masks=1).save(tmp_path / "one")
    command = ["evaluate", str(tmp_path / "one"), *FEW, "--judge", "none", "--likelihood", "confidence"]
    assert main([*command, "--out", str(tmp_path / "out"), "--report"]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())["likelihoods"]
    shown = capsys.readouterr().out
    assert "exact likelihood, the most certain first, K = 2, τ = 1: " in shown
    assert f"; the source itself gives these texts {found[0]['source']:.4f}" in " ".join(shown.split())
    assert [(one["steps"], one["order"], one["sequences"]) for one in found] == [(K, "confidence", 8) for K in (1, 2)]
    assert "Exact likelihood under samplers" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("masks", "options", "message"),
    [
        (3, [], "--likelihood is for models with one mask, whose noise is not tied to the text;"),
        (1, ["--temperature", "0"], "--likelihood needs a --temperature above 0"),
        (1, ["--steps", "--nelbo"], "--likelihood needs --steps"),
    ],
)
def test_likelihoods_that_there_are_not(masks, options, message, tmp_path, capsys):
    tales_model(num_masks=masks).save(tmp_path / "model")
    command = ["evaluate", str(tmp_path / "model"), *FEW, "--likelihood", "left_to_right"]
    assert main(with_options(command, options)) == 2
    assert message in capsys.readouterr().err
