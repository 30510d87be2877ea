"""A specification from beginning to end, with models that learn nothing."""

import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from multimdm.cli.main import main
from multimdm.data.tales import Tales
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.subject import Subject
from multimdm.report.formats import full_text, perplexity_text, ratio_digits
from multimdm.report.reproduction_report import read_study, study_text
from multimdm.reproduce.models import Folders, recipe_of
from multimdm.reproduce.running import Request, open_experiment, run_all, run_stage
from multimdm.reproduce.scale import Execution, read_scale
from multimdm.reproduce.stages import Stage
from multimdm.reproduce.workers import locked, slurm_script
from multimdm.training import loop
from support.runs import asking
from support.tiny_reproduction import SCALE, SPEC, tiny_files, write_yaml


def command(folder: Path, *more: str, labels: tuple[str, ...] = ()) -> list[str]:
    spec, scale = tiny_files(folder, *labels)
    return ["reproduce", spec, "--scale", scale, "--out", str(folder / "out"), *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    assert main(command(folder, "--seeds", "2")) == 0
    return folder


def _times(folder: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and "lock" not in path.name
    }


def test_it_leaves_tables_figures_and_a_page(finished):
    out = finished / "out" / "tiny" / "results" / "masks"
    names = {path.name for path in out.iterdir()}
    assert names >= {"report.html", "tables.md", "results.json", "seeds.json", "quality.png", "validity.png"}
    assert names >= {"pareto-K1.png", "pareto-K2.png", "entropy-aligned.csv", "temperature-aligned.csv"}
    text = (out / "tables.md").read_text(encoding="utf-8")
    assert "| MDLM | pretrain 3 × 2, adapt 2 × 2 | 10 | – |" in text
    assert "| distilled | pretrain 3 × 2, adapt 2 × 2, distill 5 × 2 | 10 | 10 |" in text
    assert "over 2 training seeds" in text
    assert "| MDLM | 12.50 | 3.250 |" in text, "what the paper printed at this scale"
    assert "| MDLM | 7.0" not in text, "what it printed at another"
    assert study_text(read_study(out / "study.json")) == text, "the tables can be made again of the figures"
    figures = json.loads((out / "results.json").read_text(encoding="utf-8"))[0]
    last = figures["aligned"][-1]["measurement"]
    assert f"- MDLM, K = 2: {last['texts'][0]}\n" in text
    assert f", {100 * last['valid_sentences']['value']:.1f}% |\n" in text
    short = f"{perplexity_text(last['gen_ppl']['value'])}; {last['pooled_entropy']['value']:.2f}; "
    distances = f"{last['token_distance']['value']:.2f}, {last['pair_distance']['value']:.2f}"
    assert f" | {short}{distances}; {100 * last['valid_stories']['value']:.1f}%" in text
    tokens, pairs = (full_text(Estimate(**last[name])) for name in ("token_distance", "pair_distance"))
    assert f" | {tokens}, {pairs}" in text
    assert f"real stories are {last['token_chance']:.3f} (tokens) and {last['pair_chance']:.3f} (pairs)" in text
    assert f"| MDLM | {figures['nelbo']['total']:.3f} ± " in text
    at_one, aligned = figures["recalls"]
    assert f"| MDLM | {full_text(Estimate(**at_one['nats']))} | {full_text(Estimate(**aligned['nats']))}, τ = " in text
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "brackets Student&#39;s 95% intervals over 2 training seeds" in page
    seeds = json.loads((out / "seeds.json").read_text(encoding="utf-8"))
    assert len(seeds) == 4 * 2
    perplexities = [one["aligned"][0]["measurement"]["gen_ppl"]["value"] for one in seeds[:4]]
    ratio = math.sqrt(perplexities[2] * perplexities[3] / perplexities[0] / perplexities[1])
    title = "GenPPL by tales as a multiple of that of MDLM"
    assert f"### {title}" in text
    assert f"| MultiMDM | {ratio_digits(ratio)} [" in text
    assert title in page


def test_means_are_those_of_the_seeds(finished):
    out = finished / "out" / "tiny" / "results" / "masks"
    both, each = (json.loads((out / name).read_text(encoding="utf-8")) for name in ("results.json", "seeds.json"))
    one, other = (e["measurements"][0]["entropy"]["value"] for e in each[:2])
    assert both[0]["measurements"][0]["entropy"]["value"] == pytest.approx((one + other) / 2)
    assert one != other, "seeds must differ"


def test_models_are_trained_once_and_shared(finished):
    assert {path.name for path in (finished / "out" / "tiny" / "seed-0").iterdir()} == {
        *("start", "one", "many", "straight", "many-distilled")
    }


def test_run_twice_it_changes_nothing(finished):
    kept = finished / "out" / "tiny"
    before = {name: time for name, time in _times(kept).items() if "/results/" not in name}
    results = {path: path.read_bytes() for path in (kept / "results" / "masks").glob("*.[cj]s*")}
    assert main(command(finished, "--seeds", "2")) == 0
    assert {name: time for name, time in _times(kept).items() if "/results/" not in name} == before
    assert {path: path.read_bytes() for path in (kept / "results" / "masks").glob("*.[cj]s*")} == results


def test_stopped_it_goes_on(finished, tmp_path, monkeypatch, capfd):
    """Stopped in the middle of a run, and while it measures, it ends with the very numbers of one that was not."""
    steps, real = 0, loop._Run._one_step

    def until_the_sixth(run):
        nonlocal steps
        steps += 1
        if steps > 6:
            raise KeyboardInterrupt
        return real(run)

    monkeypatch.setattr(loop._Run, "_one_step", until_the_sixth)
    assert main(command(tmp_path)) == 130
    assert "reproduce: stopped; the same command goes on" in capfd.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(Subject, "measured", asking(Subject.measured, signal.SIGINT))
    assert main(command(tmp_path)) == 130
    said = capfd.readouterr().err
    assert re.search(r"kept \d+ of \d+ measurements; the same command goes on", said)
    assert "reproduce: stopped" not in said
    monkeypatch.undo()
    assert main(command(tmp_path)) == 0
    ours, theirs = (
        json.loads((folder / "out/tiny/results/masks/seeds.json").read_text(encoding="utf-8"))
        for folder in (tmp_path, finished)
    )
    assert [one["aligned"] for one in ours] == [one["aligned"] for one in theirs[::2]]


def test_longer_runs_are_others_and_kept_beside(tmp_path, capsys):
    assert main(command(tmp_path, "--longer", "3", labels=("MDLM",))) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tiny-x3"}
    text = (tmp_path / "out" / "tiny-x3" / "results" / "masks" / "tables.md").read_text(encoding="utf-8")
    assert "scale tiny with 3 times its steps" in text
    assert "| MDLM | pretrain 9 × 2, adapt 6 × 2 | 30 | – |" in text
    capsys.readouterr()
    assert main(command(tmp_path, "--list", labels=("MDLM",))) == 0
    assert "done" not in capsys.readouterr().out


def test_a_run_with_other_settings_is_not_taken_for_ours(finished, tmp_path):
    changed = json.loads(json.dumps(SCALE))
    for run in ("start", "straight"):
        changed["runs"][run]["set"]["train.learning_rate"] = 0.5
    spec, _ = tiny_files(tmp_path)
    scale = write_yaml(tmp_path / "tiny.yaml", changed)
    request = Request(spec, scale, 1, finished / "out")
    with pytest.raises(
        ValueError, match=r"start was trained with other settings: train.learning_rate was 0.002 and is 0.5"
    ):
        run_all(open_experiment(request))


def test_how_the_work_is_done_makes_no_other_run(finished, tmp_path):
    """It changes nothing that is learnt: what was trained is taken for trained, and stages get it."""
    spec, scale = tiny_files(finished)
    execution = Execution(micro_batch=1, precision="bfloat16", compile=True)
    experiment = open_experiment(Request(spec, scale, 2, finished / "out", execution=execution))
    assert all(stage.done() for stage in experiment.stages())
    scale = replace(read_scale(scale), execution=execution)
    recipes = [recipe_of(run, scale, 0, Folders(tmp_path)) for run in scale.runs.values()]
    assert {(each.train.micro_batch, each.train.precision, each.train.compile) for each in recipes} == {
        (1, "bfloat16", True)
    }


def test_what_is_not_said_of_the_work_is_as_the_recipe_says(tmp_path):
    _, scale = tiny_files(tmp_path)
    plain = read_scale(scale)
    recipe = recipe_of(next(iter(plain.runs.values())), plain, 0, Folders(tmp_path))
    assert Execution().of(recipe.train) == recipe.train


def test_list_and_single_stages(tmp_path, capsys):
    assert main(command(tmp_path, "--list")) == 0
    listed = capsys.readouterr().out.split()
    assert listed[:2] == ["start-seed0", "one-seed0"]
    assert main(command(tmp_path, "--stage", "one-seed0")) == 2
    assert "the stage 'one-seed0' needs others first: start-seed0" in capsys.readouterr().err
    assert main(command(tmp_path, "--stage", "start-seed0")) == 0
    capsys.readouterr()
    assert main(command(tmp_path, "--list")) == 0
    assert capsys.readouterr().out.splitlines()[0] == "done  start-seed0"
    assert main(command(tmp_path, "--stage", "nothing")) == 2
    assert "there is no stage 'nothing'; there are: start-seed0" in capsys.readouterr().err


def test_a_stage_that_another_process_works_on_is_left_to_it(tmp_path):
    spec, scale = tiny_files(tmp_path)
    experiment = open_experiment(Request(spec, scale, 1, tmp_path / "out"))
    with locked(experiment.folders.locks / "start-seed0.lock") as free:
        assert free
        with pytest.raises(ValueError, match="another process works on the stage 'start-seed0'"):
            run_stage(experiment, "start-seed0")
    run_stage(experiment, "start-seed0")


def test_two_processes_share_the_work(tmp_path):
    """Every stage is done once, by one of them, and both end with the results."""
    arguments = [sys.executable, "-m", "multimdm", *command(tmp_path, labels=("MDLM", "MultiMDM"))]
    processes = [
        subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    trained = [path.parent for path in (tmp_path / "out" / "tiny").rglob("metrics.jsonl")]
    assert len(trained) == 3
    for run in trained:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert sum(json.loads(line)["kind"] == "start" for line in lines) == 1, f"{run} was begun twice"


def test_slurm_jobs_wait_for_what_they_need(tmp_path):
    """With an sbatch that does the job at once, and refuses one that does not wait for what it needs."""
    script = tmp_path / "jobs.sh"
    assert main(command(tmp_path, "--slurm", str(script), labels=("MDLM",))) == 0
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/bash\n"
        f"cd {tmp_path}; count=$(($(cat count 2>/dev/null || echo 0) + 1)); echo $count > count\n"
        "echo ${*%%& pid*} >> jobs.txt\n"
        'for last; do :; done; bash -c "${last#--wrap=}" >> log.txt 2>&1 || exit 1; echo $count\n',
        encoding="utf-8",
    )
    fake.chmod(0o755)
    shim = fake.with_name("multimdm")
    shim.write_text(f'#!/bin/bash\nexec {sys.executable} -m multimdm "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "SBATCH_OPTIONS": "--partition=p"}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + (tmp_path / "log.txt").read_text(encoding="utf-8")
    jobs = (tmp_path / "jobs.txt").read_text(encoding="utf-8").splitlines()
    numbers = {line.split("--job-name=")[1].split()[0]: str(n) for n, line in enumerate(jobs, start=1)}
    one = jobs[int(numbers["one-seed0"]) - 1]
    assert f"--dependency=afterok:{numbers['start-seed0']} --partition=p" in one
    assert "--dependency" not in jobs[int(numbers["start-seed0"]) - 1]
    assert (tmp_path / "out/tiny/results/masks/report.html").exists()


def test_a_job_whose_time_is_over_is_stopped_and_queued_again(tmp_path):
    """Slurm tells the shell of the job alone; the command must hear of it, and end before the shell does."""
    stage = Stage("one", (), 1.0, lambda: False, lambda overall: None)
    script = tmp_path / "jobs.sh"
    script.write_text(slurm_script([stage], ["work"]), encoding="utf-8")
    programs = {
        "sbatch": "[ -e job.sh ] || printf '%s' \"${@: -1}\" | tail -c +8 > job.sh; echo 1",  # after --wrap=
        "scontrol": 'echo "$@" > requeued',
        "work": "trap 'sleep 0.2; echo saved >> said; exit 143' TERM; sleep 0.5; echo ready >> said; sleep 60 & wait",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\ncd {tmp_path}\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    subprocess.run(["bash", str(script)], env=environment, check=True, timeout=60)
    job = subprocess.Popen(["sh", str(tmp_path / "job.sh")], env=environment, cwd=tmp_path)
    while not (tmp_path / "said").exists() and job.poll() is None:
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(timeout=60) == 143
    assert (tmp_path / "said").read_text(encoding="utf-8").split() == ["ready", "saved"]
    assert (tmp_path / "requeued").read_text(encoding="utf-8").split() == ["requeue", "17"]


def test_words_of_a_job_come_through_two_shells(tmp_path):
    words = ["work", "--text", "q/a$X `b` \\c \"d\" 'e'.txt"]
    stage = Stage("one", (), 1.0, lambda: False, lambda overall: None)
    script = tmp_path / "jobs.sh"
    script.write_text(slurm_script([stage], words), encoding="utf-8")
    programs = {
        "sbatch": 'last="${@: -1}"; sh -c "${last#--wrap=}" >&2; echo 1',
        "work": f'printf "%s\\n" "$@" >> {tmp_path}/said',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    subprocess.run(["bash", str(script)], env=environment, check=True, timeout=60)
    assert (tmp_path / "said").read_text(encoding="utf-8").splitlines() == [*words[1:], "--stage", "one", *words[1:]]


def test_every_job_that_runs_a_network_asks_for_a_gpu(tmp_path):
    """Training and measuring; neither the preparing of text nor the writing of tables."""
    spec, scale = tiny_files(tmp_path, "MDLM")
    stages = open_experiment(Request(spec, scale, 1, tmp_path / "out")).stages()
    data = Stage("data", (), 1.0, lambda: False, lambda overall: None, runs_network=False)
    script = tmp_path / "jobs.sh"
    script.write_text(slurm_script([data, *stages], ["multimdm", "reproduce"]), encoding="utf-8")
    fake = tmp_path / "sbatch"
    fake.write_text(f"#!/bin/bash\necho ${{*%%& pid*}} >> {tmp_path}/jobs.txt; echo 1\n", encoding="utf-8")
    fake.chmod(0o755)

    def wanting(**settings: str) -> dict[str, str]:
        (tmp_path / "jobs.txt").unlink(missing_ok=True)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **settings}
        subprocess.run(["bash", str(script)], env=environment, check=True, timeout=60)
        jobs = (tmp_path / "jobs.txt").read_text(encoding="utf-8")
        found = re.findall(r"--job-name=(\S+)(?:.*?--gres=(gpu:\d))?.*", jobs)
        return {name: gpus for name, gpus in found if gpus}

    trained, measured = (
        {stage.name for stage in stages if stage.trains == trains and stage.runs_network} for trains in (True, False)
    )
    assert len(trained) == 2
    assert len(measured) == 1
    assert wanting() == dict.fromkeys((*trained, *measured), "gpu:1")
    assert wanting(TRAIN_OPTIONS="--gres=gpu:8") == {
        **dict.fromkeys(trained, "gpu:8"),
        **dict.fromkeys(measured, "gpu:1"),
    }


@pytest.mark.parametrize("setting", ["judges", "mauve"])
def test_a_judge_that_cannot_be_opened_is_told_before_anything_is_trained(setting, tmp_path, monkeypatch, capsys):
    (tmp_path / "large.gguf").write_bytes(b"GGUF")
    judge = str(tmp_path / "large.gguf")
    settings: dict[str, Any] = {"judges": ["tales", judge]} if setting == "judges" else {"mauve": judge}
    spec, _ = tiny_files(tmp_path)
    scale = write_yaml(tmp_path / "judged.yaml", {**SCALE, **settings})
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *at: None if name == "gguf" else there(name, *at))
    assert main(["reproduce", spec, "--scale", scale, "--out", str(tmp_path / "out")]) == 2
    told = "".join(capsys.readouterr().err.split())
    assert f"judge '{judge}' needs gguf: pip install 'multimdm[eval]'".replace(" ", "") in told
    assert not (tmp_path / "out" / "judged" / "seed-0").exists()


def test_every_judge_has_tables_of_its_own(tmp_path, capsys):
    """The second is an autoregressive model that the scale trains; its features are those of MAUVE, too."""
    judge = {"like": "start", "recipe": "tales-ar"}
    judges = {**SCALE, "judges": ["tales", "reader"], "mauve": "reader", "runs": {**SCALE["runs"], "reader": judge}}
    models = {label: SPEC["models"][label] for label in ("MDLM", "MultiMDM")}
    beside = {"MDLM": "MultiMDM"}
    spec = write_yaml(tmp_path / "masks.yaml", {**SPEC, "models": models, "reference": "MultiMDM", "beside": beside})
    scale = write_yaml(tmp_path / "judged.yaml", judges)
    assert main(["reproduce", spec, "--scale", scale, "--out", str(tmp_path / "out"), "--seeds", "2"]) == 0
    out = tmp_path / "out" / "judged" / "results" / "masks"
    text = (out / "tables.md").read_text(encoding="utf-8")
    titles = [line for line in text.splitlines() if "as a multiple of that of MultiMDM" in line]
    assert len(titles) == 2
    assert "GenPPL by tales" in titles[0]
    assert "GenPPL by tales" not in titles[1]
    assert text.count("| MDLM, beside MultiMDM |") == 2
    figures = [json.loads((folder / "results.json").read_text(encoding="utf-8"))[0] for folder in (out, out / "reader")]
    first, second = (one["measurements"][0] for one in figures)
    assert first["gen_ppl"] != second["gen_ppl"]
    assert first["texts"] == second["texts"], "the same samples"
    assert figures[0]["recalls"] == figures[1]["recalls"]
    assert (out / "reader" / "report.html").exists()
    for part in ("### MAUVE", "MAUVE by "):
        assert text.count(part) == 2 * (1 if part.startswith("#") else 2 * 2 * 3), "models, K, and three temperatures"
    assert text.count("### Likelihood ratio by the judge") == 1, "the exact judge has distances instead"
    for folder in (out, out / "reader"):
        assert "MAUVE" in (folder / "report.html").read_text(encoding="utf-8")


def test_mauve_needs_a_network(tmp_path):
    with pytest.raises(ValueError, match="mauve must name a network that has features; tales has none"):
        read_scale(write_yaml(tmp_path / "tiny.yaml", {**SCALE, "mauve": "tales"}))


def test_a_perfect_model_is_a_line_that_needs_no_training(tmp_path, monkeypatch):
    # What it predicts is not the point here, and takes its time.
    monkeypatch.setattr(Tales, "leave_one_out", lambda self, evidence, epsilon: torch.zeros_like(evidence))
    spec = {**SPEC, "models": {"MDLM": "one", "perfect": "perfect:M=3"}, "match_entropy": False, "published": {}}
    files = write_yaml(tmp_path / "masks.yaml", spec), write_yaml(tmp_path / "tiny.yaml", SCALE)
    assert main(["reproduce", files[0], "--scale", files[1], "--out", str(tmp_path / "out")]) == 0
    out = tmp_path / "out" / "tiny"
    text = (out / "results" / "masks" / "tables.md").read_text(encoding="utf-8")
    assert "| perfect | none: exact predictions | 0 | – | 0.0 |" in text
    assert "### What masks tell" in text
    assert {path.name for path in (out / "seed-0").iterdir()} == {"start", "one"}
    assert (out / "points" / "done" / "measure-perfect-M=3-seed0-drawn-K1-2.json").exists()


def test_specifications_are_listed(capsys):
    assert main(["reproduce"]) == 0
    text = capsys.readouterr().out
    assert "text-gen-pretrain" in text
    assert "tales" in text


def test_bad_options_are_named(tmp_path, capsys):
    assert main(["reproduce", "text-gen-pretrian"]) == 2
    assert (
        "there is no specification file 'text-gen-pretrian'; did you mean 'text-gen-pretrain'?"
        in capsys.readouterr().err
    )
    assert main(["reproduce", "ablation", "--scale", "tale"]) == 2
    assert "there is no scale file 'tale'; did you mean 'tales'?" in capsys.readouterr().err
    for name in ("--seeds", "--longer"):
        assert main(["reproduce", "ablation", name, "0"]) == 2
        assert f"{name} must be at least 1; got 0" in capsys.readouterr().err
    assert main(["reproduce", "ablation", "--text", str(tmp_path / "no.txt")]) == 2
    assert "--text must name files" in capsys.readouterr().err
