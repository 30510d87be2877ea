"""The loop in one process: it learns, resumes bit for bit, refuses what it must, and stops at nonsense."""

import dataclasses
import json
import math
from typing import Any, cast

import pytest
import torch

from multimdm import load
from multimdm.data import Tales
from multimdm.objectives import Sums
from multimdm.process import Hybrid, MultiMask, Uniform
from multimdm.training.loop import train
from multimdm.training.records import validation_loss
from multimdm.training.sources import Source
from support.roots import Roots
from support.runs import metrics, tiny_job, weights


def run(out, resume="auto", **sections):
    return train(tiny_job(out.name, **sections), out, resume, quiet=True)


@pytest.mark.parametrize("system", ["mdlm", "duo", "multimdm", "candi", "ar"])
def test_every_system_learns_and_can_be_loaded(system, tmp_path):
    sections = {
        "system": system,
        "train": {"steps": 40, "learning_rate": 0.03},
        "identification": {"end": 0.2, "start": 0},
    }
    if system == "duo":
        sections["relaxation"] = {"share": 0.5}
    sections["log"] = {"sample_every": 40, "samples": 2, "sample_steps": 3, "validate_every": 0, "validation_draws": 4}
    outcome = run(tmp_path / "run", **sections)
    assert outcome.nelbo is not None
    assert outcome.nelbo.total < math.log(404) - 0.5
    (valid,) = metrics(tmp_path / "run", "valid")
    assert valid["entropy"] == pytest.approx(Tales().entropy_per_token)
    assert valid["perplexity"] == pytest.approx(math.exp(validation_loss(valid)))
    model = load(outcome.model)
    assert model.tokenizer is not None
    assert model.tokenizer.name == "tales"
    assert model.lineage[0]["command"] == "pretrain"
    assert model.lineage[0]["steps"] == 40
    assert outcome.nelbo.bound == valid["bound"] == (system != "candi")
    kinds = {"mdlm": MultiMask, "multimdm": MultiMask, "duo": Uniform, "candi": Hybrid, "ar": type(None)}
    assert kinds[system] is type(model.process)
    (sampled,) = metrics(tmp_path / "run", "sample")
    assert len(sampled["texts"]) == 2


def test_parts_of_a_step_share_the_root_of_candis_noise(tmp_path):
    """One for each of three steps, and one for the validation at the end."""
    with Roots() as roots:
        run(tmp_path / "run", system="candi", train={"steps": 3, "batch_size": 8, "micro_batch": 2})
    assert roots.made == 4


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    run(tmp_path / "whole")
    with pytest.raises(_StopError):
        train(_stopping(tiny_job("run"), after=8), tmp_path / "run", quiet=True)
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-00000003", "step-00000006"]
    run(tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    for kind in ("train", "valid"):
        assert metrics(tmp_path / "run", kind) == metrics(tmp_path / "whole", kind)


def test_a_finished_run_is_left_as_it_is(tmp_path):
    first = run(tmp_path / "run")
    before, records = weights(tmp_path / "run"), metrics(tmp_path / "run", "valid")
    again = run(tmp_path / "run")
    assert weights(tmp_path / "run") == before
    assert metrics(tmp_path / "run", "valid") == records
    assert again.nelbo == first.nelbo


def test_accumulation_does_not_change_the_losses(tmp_path):
    sections: Any = {"network": {"dropout": 0.0}}
    run(tmp_path / "whole", **sections)
    run(tmp_path / "parts", train={"micro_batch": 2}, **sections)
    for one, other in zip(metrics(tmp_path / "whole"), metrics(tmp_path / "parts"), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.filterwarnings("default")  # torch.compile meets warnings of torch's own
@pytest.mark.parametrize(
    "option",
    ["recompute", pytest.param("compile", marks=pytest.mark.unchecked)],  # it cannot see through the checks of types
)
def test_recomputing_and_compiling_do_not_change_the_losses(option, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "compile", _compiled_without_a_compiler)
    sections: Any = {"network": {"dropout": 0.0}, "log": {"validate_every": 0}}
    run(tmp_path / "plain", **sections)
    run(tmp_path / "other", train={option: True}, **sections)
    for one, other in zip(metrics(tmp_path / "plain"), metrics(tmp_path / "other"), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_bfloat16_on_request(tmp_path):
    outcome = run(tmp_path / "run", train={"precision": "bfloat16"})
    assert outcome.nelbo is not None
    assert math.isfinite(outcome.nelbo.total)
    assert next(load(outcome.model).network.parameters()).dtype == torch.float32


def test_without_an_average_the_weights_are_saved(tmp_path):
    outcome = run(tmp_path / "run", train={"ema": 0.0})
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000012"
    state = load(checkpoint / "model").network.state_dict()
    from safetensors.torch import load_file

    tensors = load_file(checkpoint / "training.safetensors")
    assert all(torch.equal(tensors[f"weights.{n}"], x) for n, x in state.items() if f"weights.{n}" in tensors)
    assert load(outcome.model).network.state_dict().keys() == state.keys()


def test_padding_counts_for_nothing(tmp_path):
    """Losses are per token that is not padding, over the global batch."""
    whole = tiny_job("whole")
    padded = tiny_job("padded")
    padded.source = cast(Source, _Padded(padded.source))
    train(whole, tmp_path / "whole", quiet=True)
    train(padded, tmp_path / "padded", quiet=True)
    one, other = metrics(tmp_path / "whole")[0], metrics(tmp_path / "padded")[0]
    assert other["loss"] != one["loss"]
    assert other["loss"] == pytest.approx(one["loss"], rel=0.5)


# ------------------------------------------------------------------- refusals


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path):
    job = tiny_job("run")
    job.objective = _nan_after(job.objective, 7)
    with pytest.raises(ValueError, match=r"not a number in step 8 \(sequences 56 to 63 of the run\).*step-00000006"):
        train(job, tmp_path / "run", quiet=True)
    assert [r["step"] for r in metrics(tmp_path / "run")] == list(range(1, 8))
    run(tmp_path / "run")  # from the last good checkpoint, with a sound objective
    run(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"train": {"learning_rate": 0.02}}, "was made with train.learning_rate = 0.01, not 0.02"),
        ({"train": {"steps": 24}}, "was made with train.steps = 12, not 24"),
        ({"network": {"hidden_dim": 32}}, "was made with network.hidden_dim = 16, not 32"),
        ({"process": {"num_masks": 6}}, "was made with process.num_masks = 5, not 6"),
    ],
)
def test_another_recipe_is_not_the_same_run(sections, message, tmp_path):
    run(tmp_path / "run")
    before = weights(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", **sections)
    assert weights(tmp_path / "run") == before


def test_how_the_work_is_done_may_change(tmp_path):
    constant = {"decay": "constant"}
    run(tmp_path / "run", train=constant, identification={"start": 0.0, "end": 0.0})
    more = run(
        tmp_path / "run",
        train={**constant, "steps": 14, "micro_batch": 4, "recompute": True},
        identification={"start": 0.0, "end": 0.0},
        log={"every": 2},
    )
    assert load(more.model).lineage[0]["steps"] == 14


def test_a_branch_sets_later_checkpoints_aside(tmp_path):
    run(tmp_path / "run")
    before = weights(tmp_path / "run")
    run(tmp_path / "run", resume=str(tmp_path / "run" / "checkpoints" / "step-00000009"))
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["aside-step-00000012", "step-00000009", "step-00000012"]
    assert weights(tmp_path / "run") == before


def test_a_checkpoint_of_an_older_version_lacks_keys(tmp_path):
    """A key that did not exist then has its default."""
    run(tmp_path / "run")
    about = tmp_path / "run" / "checkpoints" / "step-00000012" / "training.json"
    content = json.loads(about.read_text())
    del content["recipe"]["network"]["absolute_positions"]
    about.write_text(json.dumps(content))
    run(tmp_path / "run")


def test_other_data_are_not_the_same_run(tmp_path):
    run(tmp_path / "run")
    job = tiny_job("run")
    job.source = cast(Source, _Renamed(job.source))
    with pytest.raises(ValueError, match="was made with other data than are now at tales"):
        train(job, tmp_path / "run", quiet=True)


def test_another_assignment_is_not_the_same_run(tmp_path):
    run(tmp_path / "run")
    job = tiny_job("run")
    assert isinstance(job.model.process, MultiMask)
    job.model.process = MultiMask(404, 5, job.model.process.schedule, job.model.process.assignment.flip(0))
    with pytest.raises(ValueError, match="another process or assignment of tokens to masks"):
        train(job, tmp_path / "run", quiet=True)


def test_never_needs_a_place_without_checkpoints(tmp_path):
    run(tmp_path / "run", resume="never")
    with pytest.raises(ValueError, match="holds the checkpoints of an earlier run; go on with --resume auto"):
        run(tmp_path / "run", resume="never")


def test_a_given_checkpoint(tmp_path):
    run(tmp_path / "run")
    run(tmp_path / "branch", resume=str(tmp_path / "run" / "checkpoints" / "step-00000009"))
    assert weights(tmp_path / "branch") == weights(tmp_path / "run")
    with pytest.raises(ValueError, match="is missing"):
        run(tmp_path / "other", resume=str(tmp_path / "nowhere"))


def test_a_checkpoint_of_another_shape(tmp_path):
    run(tmp_path / "run")
    job = tiny_job("run", network={"hidden_dim": 32})
    job.recipe = tiny_job("run").recipe  # the recipe is the same; the network is not
    with pytest.raises(ValueError, match="holds another network"):
        train(job, tmp_path / "run", quiet=True)


def test_the_recipe_is_beside_the_run(tmp_path):
    from multimdm.training.recipes import read_recipe
    from multimdm.training.schema import PretrainRecipe

    job = tiny_job("run")
    train(job, tmp_path / "run", quiet=True)
    assert read_recipe(tmp_path / "run" / "recipe.yaml", PretrainRecipe) == job.recipe


# -------------------------------------------------------------------- helpers


class _StopError(Exception):
    pass


def _stopping(job, after):
    """Stop like a pulled plug, in the middle of a step."""
    inner = job.objective

    class Stopping:
        calls = 0

        def __call__(self, network, batch):
            self.calls += 1
            if self.calls > after:
                raise _StopError
            return inner(network, batch)

    return dataclasses.replace(job, objective=Stopping())


def _nan_after(inner, steps):
    calls = 0

    def objective(network, batch):
        nonlocal calls
        calls += 1
        loss, terms, *_ = inner(network, batch)
        return Sums(loss * (math.nan if calls > steps else 1.0), terms)

    return objective


@Source.register
class _Renamed:
    """A source with another fingerprint."""

    fingerprint = "other"

    def __init__(self, source) -> None:
        self._source = source

    def __getattr__(self, name):
        return getattr(self._source, name)


@Source.register
class _Padded:
    """A source whose sequences end early."""

    def __init__(self, source) -> None:
        self._source = source

    def __getattr__(self, name):
        return getattr(self._source, name)

    def train(self, first, num):
        example = self._source.train(first, num)
        valid = torch.arange(48) < torch.arange(20, 20 + num)[:, None]
        return type(example)(torch.where(valid, example.ids, 0), valid)


def _compiled_without_a_compiler(module, **options):
    module._compiled_call_impl = torch.compile(module._call_impl, backend="aot_eager", **options)


def test_records_are_json(tmp_path):
    run(tmp_path / "run")
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["step"] >= 0
