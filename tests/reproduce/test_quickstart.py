"""The quickstart with a budget of seconds: every stage runs, a stopped one goes on, equal seeds give equal numbers."""

import json
import re
import signal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from multimdm import load
from multimdm.cli.main import main
from multimdm.evaluation.subject import Subject
from multimdm.report.quickstart_report import Story, in_one_sentence
from multimdm.reproduce import measuring, running
from multimdm.reproduce.models import Folders, recipe_of
from multimdm.reproduce.running import Request, open_experiment, run_all
from multimdm.reproduce.scale import read_scale
from multimdm.training import loop
from support.runs import asking, weights
from support.tiny_quickstart import TINY, tiny_quickstart
from support.tiny_reproduction import write_yaml


def run(out: Path, seed: int) -> Story:
    experiment = tiny_quickstart(out, seed)
    run_all(experiment)
    return experiment.story


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("quickstart")
    return out, run(out, seed=1)


def test_it_leaves_a_report_and_pictures(finished):
    out, story = finished
    names = {path.name for path in out.iterdir() if path.is_file()}
    pictures = {f"{name}.png" for name in ("quality", "validity", "variety", "losses", "distillation", "trajectory")}
    assert names >= pictures | {"pareto-K1.png", "pareto-K4.png", "report.html", "results.json"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not _addresses(page), "the page must stand alone"
    for word in ("MultiMDM distilled", "10 × 4 stories", "one training seed (1)", "Stories in a few calls"):
        assert word in page
    assert in_one_sentence(story).startswith("In 4 network calls the model with quantile noise writes stories of ")
    assert in_one_sentence(story) in page.replace("&nbsp;", " ")
    assert all(done.seconds > 0 for done in story.stages)


def test_the_report_opens_with_what_models_write(finished):
    """One sentence, a table of contents whose links lead somewhere, then texts of every model with marked words."""
    out, story = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    links = re.findall(r'<li><a href="#([^"]+)">', page)
    assert len(links) == 7
    assert all(page.count(f'id="{link}"') == 1 for link in links)
    first, _, rest = page.partition('id="how-good-it-is-beside-the-limits"')
    assert first.count('<section class="side">') == len(story.evaluations)
    assert first.count("<b>1 call: GenPPL") == first.count("<b>4 calls: GenPPL") == len(story.evaluations)
    assert "<mark>" in first  # five steps of training make no story
    assert rest.count("<details>") == 3
    assert "<table" not in first


def test_the_limits_are_measured_too(finished):
    out, story = finished
    labels = [each["label"] for each in json.loads((out / "results.json").read_text(encoding="utf-8"))]
    assert labels[-2:] == ["perfect network", "AR"]
    assert story.autoregressive.aligned[0].measurement.nfe == 48
    best = story.perfect.aligned[-1].measurement.gen_ppl
    assert best is not None
    assert all(one.aligned[-1].measurement.gen_ppl.value > best.value for one in story.evaluations)


@pytest.mark.parametrize("name", ["quickstart", "quickstart-fast"])
def test_the_branches_have_equal_budgets(name, tmp_path):
    scale = read_scale(name)
    steps = {run.name: recipe_of(run, scale, 0, Folders(tmp_path)).train.steps for run in scale.runs.values()}
    for one, other in (("mdlm", "multimdm"), ("mdlm-distilled", "multimdm-distilled")):
        assert steps[one] == steps[other]
    branch = sum(steps[name] for name in ("mdlm-start", "multimdm", "multimdm-distilled"))
    assert steps["ar"] + steps["quantile"] == branch


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("quantile", r"equally many sequences in all; they saw: .*quantile noise 84"),
        ("mdlm", r"equally many sequences of training; they saw: .*MultiMDM 60"),
    ],
)
def test_a_branch_with_more_steps_is_refused(model, message, tmp_path):
    runs = {**TINY["runs"], model: {"set": {"train.steps": 15}}}
    scale = write_yaml(tmp_path / "tiny.yaml", {**TINY, "runs": runs})
    with pytest.raises(ValueError, match=message):
        open_experiment(Request("quickstart", scale, 1, tmp_path / "out"))


def test_the_story_is_told_of_one_seed(tmp_path):
    with pytest.raises(ValueError, match="quickstart is told of one seed; got 2"):
        open_experiment(Request("quickstart", "quickstart", 2, tmp_path))


def test_what_the_stages_make(finished):
    out, _ = finished
    names = ("mdlm", "multimdm", "mdlm-distilled", "multimdm-distilled", "quantile")
    made = {name: load(out / name / "model") for name in names}
    assert [model.process.num_masks for model in made.values() if model.process] == [1, 20, 1, 20, 256]
    assert made["quantile"].process.tied_noise  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert [step["command"] for step in made["quantile"].lineage] == ["pretrain", "couple"]
    assert [step["command"] for step in made["multimdm-distilled"].lineage] == ["pretrain", "adapt", "distill"]


def test_stopped_anywhere_it_goes_on(finished, tmp_path, monkeypatch, capfd):
    """Stopped in the second stage, politely and at once, then twice while it measures: the same numbers in the end."""
    out, _ = finished
    real = loop._Run._one_step
    asked = asking(real, signal.SIGINT)
    place = ("mdlm", 1)
    monkeypatch.setattr(loop._Run, "_one_step", lambda it: (asked if (it.job.name, it.step) == place else real)(it))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seed=1)
    assert "mdlm: saved step 2; the same command goes on" in capfd.readouterr().err
    monkeypatch.setattr(loop._Run, "_one_step", _interrupted(real, after=1))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seed=1)
    monkeypatch.undo()
    monkeypatch.setattr(Subject, "aligned", _interrupted(Subject.aligned, after=3))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seed=1)
    monkeypatch.undo()
    monkeypatch.setattr(Subject, "measured", asking(Subject.measured, signal.SIGTERM))
    with pytest.raises(SystemExit, match="143"):
        run(tmp_path, seed=1)
    assert re.search(r"kept \d+ of \d+ measurements; the same command goes on", capfd.readouterr().err)
    monkeypatch.undo()
    run(tmp_path, seed=1)
    for name in ("mdlm", "multimdm-distilled", "quantile"):
        assert weights(tmp_path / name) == weights(out / name)
    assert _numbers(tmp_path) == _numbers(out)


def test_again_it_trains_and_measures_nothing(finished, monkeypatch):
    out, _ = finished
    before = _numbers(out)
    monkeypatch.setattr(loop._Run, "_one_step", _interrupted(None, after=0))
    monkeypatch.setattr(measuring, "run_tasks", _interrupted(None, after=0))
    run(out, seed=1)
    assert _numbers(out) == before


def test_another_seed_needs_another_place(finished):
    out, _ = finished
    with pytest.raises(ValueError, match=r"train.seed was 1 and is 2.*--out"):
        run(out, seed=2)


def test_the_command(monkeypatch, tmp_path, capsys, finished):
    story = finished[1]
    asked = {}

    def instead(scale, out, seed):
        asked.update(scale=scale, out=out, seed=seed)
        return story

    monkeypatch.setattr(running, "run_quickstart", instead)
    assert main(["quickstart", "--fast", "--seed", "3", "--out", str(tmp_path)]) == 0
    assert asked == {"scale": "quickstart-fast", "out": tmp_path, "seed": 3}
    printed, said = capsys.readouterr()
    assert said == f"quickstart: everything is kept in {tmp_path}\n"
    assert f"multimdm sample {tmp_path}/quantile/model --steps 2" in printed
    assert f"multimdm sample {tmp_path}/mdlm/model --steps 2" in printed
    assert in_one_sentence(story) in printed
    assert main(["quickstart", "--out", str(tmp_path)]) == 0
    assert asked == {"scale": "quickstart", "out": tmp_path, "seed": 0}
    assert main(["quickstart", "--seed", "-1"]) == 2
    assert "--seed must be 0 or more; got -1" in capsys.readouterr().err


def test_ranks_of_a_launcher_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["quickstart", "--out", str(tmp_path)]) == 2
    assert "the quickstart is one process: start it without torchrun" in capsys.readouterr().err


def test_the_commands_it_names_work(finished, tmp_path, capsys):
    out, _ = finished
    assert main(["sample", str(out / "quantile" / "model"), "--steps", "2", "--num", "2", "--trace"]) == 0
    prompt = ["--prompt", "Lily raced to the harbor"]
    assert main(["sample", str(out / "quantile" / "model"), "--steps", "2", *prompt]) == 0
    assert main(["sample", str(out / "mdlm" / "model"), "--steps", "2"]) == 0
    arguments = ["--init", str(out / "multimdm" / "model"), "--out", str(tmp_path / "longer"), "--train.steps", "5"]
    arguments += ["--log.validation-sequences", "4", "--train.batch-size", "2"]
    assert main(["distill", "tales-distill-gumbel", *arguments]) == 0


def _interrupted(function, after):
    calls = 0

    def wrapped(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return wrapped


def _numbers(out):
    """Results without the paths of models, which differ between directories."""
    data = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return [{key: value for key, value in each.items() if key not in ("path", "fingerprint")} for each in data]


def _addresses(page):
    """What a browser would fetch."""
    found = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.extend(v for k, v in attrs if k in ("src", "href") and not str(v).startswith(("data:", "#")))

    Parser().feed(page)
    return found
