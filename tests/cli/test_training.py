"""`multimdm pretrain`, `adapt` and `distill` as they are typed."""

import json

import pytest
import torch
import yaml

import multimdm
from multimdm.cli.main import main
from multimdm.cli.training import check_start, parsed
from multimdm.models import DiT
from multimdm.process import MultiMask
from support.runs import metrics, tiny, tiny_distillation, tiny_starts, write_recipe


@pytest.fixture
def recipe(tmp_path):
    return str(write_recipe(tmp_path / "tiny.yaml", system="mdlm"))


def test_pretrain_then_adapt_then_resume(recipe, tmp_path, capfd):
    out = str(tmp_path / "mdlm")
    assert main(["pretrain", recipe, "--out", out, "--train.steps", "6"]) == 0
    printed = capfd.readouterr()
    assert "validation NELBO" in printed.out
    assert "the entropy is 1.0359" in printed.out
    data = {name: value for name, value in tiny().items() if name not in ("system", "network")}
    adapt = tmp_path / "cont.yaml"
    adapt.write_text(yaml.safe_dump({"init": "elsewhere", **data}))
    arguments = ["adapt", str(adapt), "--init", f"{out}/model", "--out", str(tmp_path / "cont")]
    assert main(arguments) == 0
    before, after = multimdm.load(f"{out}/model"), multimdm.load(tmp_path / "cont" / "model")
    assert after.process is not None
    assert isinstance(after.network, DiT)
    assert isinstance(before.network, DiT)
    assert (after.process.num_masks, after.network.config.time_gate) == (5, True)
    assert [step["command"] for step in after.lineage] == ["pretrain", "adapt"]
    assert after.lineage[1]["recipe"]["init"] == f"{out}/model"
    assert before.network.config.conditioning == "none"
    capfd.readouterr()
    assert main(arguments) == 0
    assert "going on from" in capfd.readouterr().err


def test_a_dry_run_tells_what_it_takes_and_trains_nothing(recipe, tmp_path, capsys):
    out = tmp_path / "run"
    command = ["pretrain", recipe, "--out", str(out), "--dry-run", "--ranks", "2"]
    assert main([*command, "--gpu", "h100"]) == 0
    shown = capsys.readouterr().out
    assert "384 tokens per step on 2 ranks: 192 each, 4 sequences at once" in shown
    assert "on 2 h100s: fits into 80 GB" in shown
    assert "assumed and not measured" in shown
    for part in ("weights", "gradients", "optimiser", "moving average", "exchange between ranks", "activations"):
        assert f"  {part} " in shown
    assert not out.exists()
    assert main([*command, "--train.precision", "float32"]) == 0
    assert "h100" not in capsys.readouterr().out
    assert main([*command, "--gpu", "abacus"]) == 2
    assert "--gpu must be one of b200, h200, h100" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["adapt", "distill"])
def test_what_continues_a_checkpoint_has_a_dry_run_too(command, tmp_path, capsys):
    start = tiny_starts(tmp_path)["mdlm"]
    shared = {name: tiny()[name] for name in ("data", "train", "log")}
    data = {
        "adapt": {**shared, "init": str(start), "process": {"num_masks": 7}},
        "distill": tiny_distillation(start),
    }[command]
    recipe = tmp_path / "continued.yaml"
    recipe.write_text(yaml.safe_dump(data), encoding="utf-8")
    out = tmp_path / "run"
    assert main([command, str(recipe), "--out", str(out), "--dry-run", "--ranks", "2", "--gpu", "a100"]) == 0
    shown = capsys.readouterr().out
    assert "384 tokens per step on 2 ranks: 192 each, 4 sequences at once" in shown
    assert "on 2 a100s: fits into 80 GB" in shown
    assert ("  teacher " in shown) == (command == "distill")
    assert not out.exists()


def test_a_dry_run_without_the_data(recipe, capsys):
    elsewhere = ["--data.kind", "prepared", "--data.path", "nowhere", "--dry-run"]
    assert main(["pretrain", recipe, *elsewhere]) == 2
    assert "--assumed-texts 50257 1024" in capsys.readouterr().err
    assert main(["pretrain", recipe, *elsewhere, "--assumed-texts", "300", "20"]) == 0
    assert "160 tokens per step on 1 rank: 160 each, 8 sequences at once" in capsys.readouterr().out
    assert main(["distill", "tales-distill-gumbel", "--init", "nowhere", "--dry-run"]) == 2
    assert "init nowhere is not here" in capsys.readouterr().err


def test_at_step_zero_the_adapted_model_is_the_masked_one(recipe, tmp_path):
    """The loss of the first step is that of the masked model on the multi-mask process: reconstruction alone."""
    from multimdm.training.building import adapt_job
    from multimdm.training.recipes import parse_recipe
    from multimdm.training.schema import AdaptRecipe

    out = tmp_path / "mdlm"
    assert main(["pretrain", recipe, "--out", str(out)]) == 0
    data = {name: value for name, value in tiny().items() if name not in ("system", "network")}
    job = adapt_job(parse_recipe({"init": str(out / "model"), **data}, AdaptRecipe, "test"), "cont")
    old = multimdm.load(out / "model").network
    x_0 = job.source.valid(0, 8).ids
    t = torch.linspace(0.1, 0.9, 8, dtype=torch.float64)
    process = job.model.process
    assert isinstance(process, MultiMask)
    x_t = process.corrupt(x_0, t)
    single = torch.where(x_t >= 404, 404, x_t)
    with torch.no_grad():
        torch.testing.assert_close(job.model.network.eval()(x_t, t), old(single, t), rtol=1e-5, atol=1e-5)


def test_options_override_the_recipe(recipe, tmp_path):
    out = tmp_path / "run"
    options = ["--train.steps", "4", "--train.betas", "0.8", "0.9", "--network.num-blocks", "1", "--data.length", "50"]
    assert main(["pretrain", recipe, "--out", str(out), *options, "--log.tensorboard"]) == 0
    written = yaml.safe_load((out / "recipe.yaml").read_text())
    assert written["train"]["betas"] == [0.8, 0.9]
    assert (written["train"]["steps"], written["network"]["num_blocks"], written["data"]["length"]) == (4, 1, 50)
    assert [record["step"] for record in metrics(out)] == [1, 2, 3, 4]
    assert list((out / "tensorboard").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a recipe first: multimdm pretrain RECIPE"),
        (["--train.steps", "5"], "give a recipe first"),
        (["nowhere.yaml"], "there is no recipe file 'nowhere.yaml'"),
        (["RECIPE", "--data.kind", "prepared", "--data.path", "nowhere"], "nowhere"),
        (["RECIPE", "--network.hidden-dim", "15"], "hidden_dim must be a multiple of num_heads; got 15 and 2"),
        (["RECIPE", "--data.length", "20"], "length must be at least"),
        (["RECIPE", "--train.micro-batch", "3"], "train.micro_batch must divide the 8 sequences"),
        (["RECIPE", "--resume", "nowhere"], "nowhere"),
        (["RECIPE", "--log.wandb", "project"], "pip install wandb"),
    ],
)
def test_clear_errors(arguments, message, recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [recipe if argument == "RECIPE" else argument for argument in arguments]
    assert main(["pretrain", *arguments]) == 2
    error = capsys.readouterr().err
    *opening, complaint = error.splitlines()
    assert complaint.startswith("multimdm pretrain:")
    assert message in complaint
    assert len(opening) <= 1  # that data and network are being opened
    assert not list(tmp_path.glob("runs/*/checkpoints/*"))


@pytest.mark.parametrize("option", ["--train.stpes", "--trian.steps"])
def test_a_misspelt_option_names_the_nearest(option, recipe, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", recipe, option, "5"])
    assert stop.value.code == 2
    assert "--train.steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--train.learning-rate", "-1"], ["learning_rate", "greater than 0", "-1"]),
        (["--data.kind", "prepared"], ["prepared data need a path"]),
        (["--train.steps", "many"], ["--train.steps", "many"]),
    ],
)
def test_a_wrong_value_of_an_option(options, words, recipe, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", recipe, *options])
    assert stop.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert all(word in error for word in words), error


@pytest.mark.parametrize("command", ["pretrain", "adapt", "distill"])
def test_help_is_for_newcomers(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in ("Example: multimdm", "RECIPE", "--train.steps", "--resume", "--train.learning-rate"):
        assert word in text


def test_adapting_needs_a_model_with_one_mask_or_with_those_asked_for(tmp_path, capsys):
    multi = write_recipe(tmp_path / "multi.yaml")
    assert main(["pretrain", str(multi), "--out", str(tmp_path / "multi"), "--train.steps", "1"]) == 0
    data = {name: value for name, value in tiny().items() if name not in ("system", "network")}
    adapt = tmp_path / "cont.yaml"
    adapt.write_text(yaml.safe_dump({"init": str(tmp_path / "multi" / "model"), **data}))
    assert main(["adapt", str(adapt), "--process.num-masks", "2", "--out", str(tmp_path / "cont")]) == 2
    assert "process must have the masks of init, or be left out" in capsys.readouterr().err
    assert main(["adapt", str(adapt), "--init", str(tmp_path / "nowhere")]) == 2
    adapt.write_text(yaml.safe_dump(data))
    assert main(["adapt", str(adapt)]) == 2
    assert "init is missing" in capsys.readouterr().err


def test_own_text_in_two_commands(tmp_path, capsys, monkeypatch):
    """`captions-mdlm` as its comment says, at a tiny size."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "captions.txt").write_text("".join(f"a dog number {i} runs over the grass\n" for i in range(200)))
    prepare = ["captions.txt", "--tokenizer", "bpe:300", "--layout", "padded", "--length", "32"]
    assert main(["prepare", *prepare, "--valid-fraction", "0.1", "--out", "data/captions"]) == 0
    small = [
        "--network.hidden-dim",
        "16",
        "--network.num-blocks",
        "1",
        "--network.num-heads",
        "2",
        "--train.steps",
        "3",
    ]
    assert main(["pretrain", "captions-mdlm", *small, "--train.batch-size", "4"]) == 0
    assert "validation NELBO" in capsys.readouterr().out
    model = multimdm.load("runs/captions-mdlm/model")
    assert model.tokenizer is not None
    assert "dog" in model.tokenizer.decode(model.tokenizer.encode("a dog"))
    record = json.loads((tmp_path / "runs/captions-mdlm/metrics.jsonl").read_text().splitlines()[0])
    assert record["kind"] == "start"


def test_sections_that_may_be_left_out_can_be_overridden(capsys):
    """Not as subcommands: --relaxation.share and --consistency.visible-target are options like others."""
    duo = parsed("pretrain", ["tales-duo", "--relaxation.share", "0.25"])
    assert duo.relaxation.share == 0.25
    arguments = ["tales-distill-gumbel", "--consistency.visible-target", "skip", "--consistency.delta", "0.03125"]
    distilled = parsed("distill", arguments)
    assert (distilled.consistency.visible_target, distilled.consistency.delta) == ("skip", 0.03125)
    assert distilled.sdtt is None
    with pytest.raises(SystemExit):
        parsed("distill", [*arguments, "--consistency.rounds", "9"])
    assert "the step size would exceed 1" in capsys.readouterr().err


def test_names_on_the_hub_may_have_revisions_with_slashes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (None, "org/name", "org/name@main", "org/name@refs/pr/1"):
        check_start(name)
    with pytest.raises(ValueError, match="is not a checkpoint directory"):
        check_start("runs/tales-mdlm/model")


@pytest.mark.parametrize(
    ("command", "recipe", "remedy"),
    [
        ("couple", "tales-quantile", "multimdm pretrain tales-ar makes it"),
        ("distill", "tales-distill-gumbel", "multimdm adapt tales-multimdm-cont makes it"),
        ("couple", "owt-quantile", "the recipe's first lines say what makes it"),
    ],
)
def test_a_start_that_is_still_to_be_trained_is_named_at_once(command, recipe, remedy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, recipe]) == 2
    said = capsys.readouterr().err
    assert "is not a checkpoint directory" in said
    assert remedy in said
    assert list(tmp_path.iterdir()) == []
