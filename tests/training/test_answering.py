"""Jobs on prompts and answers: which are refused, and what the model is told."""

import json

import pytest

from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.training.couple_jobs import couple_job
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import CoupleRecipe
from support.runs import tiny_job


@pytest.fixture(scope="module")
def sums(tmp_path_factory) -> str:
    """Prepared pairs."""
    folder = tmp_path_factory.mktemp("sums")
    lines = (json.dumps({"prompt": f"{a}+{a}=", "answer": str(a + a)}) for a in range(20))
    (folder / "sums.jsonl").write_text("\n".join(lines))
    options = PrepareOptions(
        sources=(str(folder / "sums.jsonl"),), layout="pairs", tokenizer="chars", length=12, valid_last=4
    )
    prepare(options, folder / "out")
    return str(folder / "out")


def test_the_model_is_told_how_its_prompts_are_written(sums):
    for system in ("mdlm", "multimdm", "duo", "ar"):
        advice = tiny_job(system=system, data={"kind": "prepared", "path": sums}).model.advice
        assert advice is not None
        assert advice.prompts == "bos"


@pytest.mark.parametrize(("system", "others"), [("candi", {}), ("duo", {"relaxation": {}})])
def test_what_would_noise_prompts_is_refused(system, others, sums):
    with pytest.raises(ValueError, match="data of --layout pairs are for masked, multi-mask and autoregressive models"):
        tiny_job(system=system, data={"kind": "prepared", "path": sums}, **others)


def test_quantile_noise_is_refused(sums, tmp_path):
    """It holds the numbers of whole texts."""
    tiny_job(system="ar", data={"kind": "prepared", "path": sums}).model.save(tmp_path / "ar")
    recipe = {"init": str(tmp_path / "ar"), "data": {"kind": "prepared", "path": sums}, "process": {"num_masks": 8}}
    with pytest.raises(ValueError, match="data of --layout pairs are for masked, multi-mask and autoregressive models"):
        couple_job(parse_recipe(recipe, CoupleRecipe, "test"), "test")


def test_the_ends_of_answers_are_always_learnt(sums):
    with pytest.raises(ValueError, match=r"data\.learn_padding must be left out"):
        tiny_job(data={"kind": "prepared", "path": sums, "learn_padding": False})
