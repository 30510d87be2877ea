"""Models on tasks at several numbers of tokens per step, and the table of it."""

import json

import pytest

from multimdm.evaluation.harness import lm, running
from multimdm.evaluation.harness.running import HarnessPlan, run_plan
from multimdm.evaluation.harness.scores import Score, Scored
from multimdm.evaluation.store import Store
from multimdm.pipeline.answers import Answering, answer
from multimdm.report.harness_table import as_data, markdown, print_scores
from support.addition import sums, write_task
from support.tiny_llada import chat_tokenizer, tiny_llada, write_llada


def test_two_models_at_four_speeds_and_nothing_twice(tmp_path, monkeypatch):
    paths = [
        str(write_llada(tmp_path / name, tiny_llada(seed), chat_tokenizer())) for name, seed in (("one", 0), ("two", 1))
    ]
    include = write_task(tmp_path / "tasks", sums(6, 0), 8)
    plan = HarnessPlan(("addition",), include=str(include), limit=5)
    scores = run_plan(plan, paths, Store(tmp_path / "results"))
    assert [(s.model, s.tps, s.score.calls) for s in scores] == [
        (name, tps, 8 // tps) for name in ("one", "two") for tps in (1, 2, 4, 8)
    ]
    assert {s.score.items for s in scores} == {5}
    assert max(s.score.tokens for s in scores) > 0
    assert all(s.score.tokens_per_forward <= s.tps for s in scores), "at most what is made"
    monkeypatch.setattr(running, "measure_task", lambda *_: pytest.fail("it is measured again"))
    assert run_plan(plan, paths, Store(tmp_path / "results")) == scores
    with pytest.raises(pytest.fail.Exception, match="it is measured again"):  # other weights may answer otherwise
        run_plan(plan, paths, Store(tmp_path / "results"), precision="bfloat16")


def test_models_are_told_apart(tmp_path):
    with pytest.raises(ValueError, match="models must have different names; got run, run"):
        run_plan(HarnessPlan(("gsm8k",)), ["one/run/model", "two/run/model"], Store())


def test_prompts_as_conversations(tmp_path, monkeypatch):
    """The template's special tokens reach the network as such."""
    include = write_task(tmp_path / "tasks", [("1+1=", "2")], 4)
    plan = HarnessPlan(("addition",), tps=(1,), include=str(include), chat=True)
    template = "{{ bos_token }}{{ messages[0].content }}<|eot_id|>"
    write_llada(tmp_path / "chatty", tiny_llada(), chat_tokenizer(template))
    asked = []
    monkeypatch.setattr(lm, "answer", lambda *arguments: asked.append(arguments[1]) or answer(*arguments))
    run_plan(plan, [str(tmp_path / "chatty")], Store())
    assert asked == [[[0, *chat_tokenizer().encode("1+1="), 2]]]
    write_llada(tmp_path / "plain", tiny_llada(), chat_tokenizer())
    with pytest.raises(ValueError, match="has no chat template"):
        run_plan(plan, [str(tmp_path / "plain")], Store())


def score(right: int, items: int = 20, calls: int = 8, tokens: int = 160) -> Score:
    return Score.of([True] * right + [False] * (items - right), 8, calls, tokens)


def test_intervals_are_binomial():
    half = score(10)
    assert (half.share.value, half.right, half.items) == (0.5, 10, 20)
    assert half.share.low == pytest.approx(0.2993, abs=1e-4)  # Wilson's, from tables
    assert half.share.high == pytest.approx(0.7007, abs=1e-4)
    none = score(0)
    assert none.share.low == pytest.approx(0.0)
    assert none.share.high == pytest.approx(0.1611, abs=1e-4)


def test_the_table(capsys):
    scores = [
        Scored("GSM8K", "base", 1, score(10)),
        Scored("GSM8K", "base", 2, score(9, calls=4, tokens=120)),
        Scored("GSM8K", "adapted", 1, score(11)),
    ]
    lines = markdown(scores).splitlines()
    assert lines[0] == "| task | model | TPS 1 | TPS 2 | AUP |"
    # w(50) 50 = 50 exp(-3 * 5 / 55) = 38.065, w(45) 45 = 45 exp(-3 * 10 / 55) = 26.082, from t = 1 to 1.5
    wanted = "50.0 [29.9, 70.1] n=20 c=8 t=1.00 | 45.0 [25.8, 65.8] n=20 c=4 t=1.50 | 66.0 |"
    assert lines[2] == f"| GSM8K | base | {wanted}"
    assert lines[3].endswith("| – | – |"), "one speed has no curve"
    print_scores(scores)
    assert "66.0" in capsys.readouterr().out
    first, _, last = json.loads(json.dumps(as_data(scores)))
    assert (first["right"], first["tokens_per_forward"]) == (10, 1.0)
    assert first["accuracy_under_parallelism"] == pytest.approx(50 + 0.25 * (38.0653 + 26.0819), abs=1e-3)
    assert last["accuracy_under_parallelism"] is None


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (HarnessPlan(("gsm9k",)), "there is no task 'gsm9k'; there are math500, gsm8k, humaneval, mbpp"),
        (HarnessPlan(("humaneval",)), "humaneval is judged by running programs .*: allow it with --run-code"),
        (HarnessPlan(("gsm8k",), data="/nowhere"), "/nowhere lacks gsm8k/train.jsonl"),
        (HarnessPlan(("gsm8k", "gsm8k")), "tasks must be different ones"),
        (HarnessPlan(()), "tasks and tps must each have at least one"),
        (
            HarnessPlan(("gsm8k",), tps=(3,), own_length=False, answering=Answering(gen_length=8)),
            "gen_length must be divisible by tps; got 8 and 3",
        ),
        (HarnessPlan(("gsm8k",), tps=(3,)), "gen_length must be divisible by tps; got 256 and 3"),
        (
            HarnessPlan(("math500",), answering=Answering(block_length=48)),
            "gen_length must be divisible by block_length; got 512 and 48",
        ),
        (HarnessPlan(("gsm8k",), answering=Answering(steps=4)), "steps are given by tps"),
    ],
)
def test_bad_plans(plan, message):
    with pytest.raises(ValueError, match=message):
        run_plan(plan, ["nowhere"], Store())
