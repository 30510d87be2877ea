"""Every specification and scale that comes with the package: read, resolved and checked, nothing trained."""

from itertools import product

import pytest

from multimdm.reproduce.running import Request, open_experiment
from multimdm.reproduce.scale import read_scale
from multimdm.reproduce.spec import read_spec
from multimdm.training.shipped import shipped

SPECS, SCALES = sorted(shipped("paper")), sorted(shipped("paper/scales"))
ELSEWHERE = {
    *product(("ablation", "ablation-distilled", "assignments", "rho"), ("captions", "captions-long", "paper-lm1b")),
    *product(("distill-gumbel", "distill-sdtt"), ("paper-lm1b",)),
    *product(("quantile",), ("paper", "paper-lm1b")),
    *product(("quantile-ablation", "robust", "masks"), ("captions", "captions-long", "paper", "paper-lm1b")),
    *product(("quantile-text",), ("paper", "paper-lm1b", "tales")),
    *product(("llada",), ("captions", "captions-long", "paper-lm1b", "tales")),
    *product(("quickstart",), ("captions", "captions-long", "paper", "paper-lm1b", "tales")),
    *product({*SPECS} - {"quickstart", "conditional-entropy"}, ("quickstart", "quickstart-fast")),
    *product({*SPECS} - {"masks", "conditional-entropy"}, ("tales-long",)),
}
"""Specification and scale that do not go together."""


def request(spec, scale, tmp_path):
    return Request(spec, scale, 1 if spec == "quickstart" else 2, tmp_path / "out", run_code=True)


@pytest.mark.parametrize(("spec", "scale"), [pair for pair in product(SPECS, SCALES) if pair not in ELSEWHERE])
def test_it_can_be_run(spec, scale, tmp_path):
    """Models are there, recipes parse, budgets are equal, and stages come after what they need."""
    experiment = open_experiment(request(spec, scale, tmp_path))
    seen = set()
    for stage in experiment.stages():
        assert not stage.done()
        assert seen >= set(stage.needs)
        seen.add(stage.name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("spec", "scale"), sorted(ELSEWHERE))
def test_what_a_scale_lacks_is_named(spec, scale, tmp_path):
    with pytest.raises(ValueError, match=rf"the scale {scale} has no model '"):
        open_experiment(request(spec, scale, tmp_path))


@pytest.mark.parametrize("scale", ["paper", "paper-lm1b"])
def test_eight_gpus_have_a_part_each_when_they_measure(scale):
    settings = read_scale(scale).settings
    assert settings.samples >= 8 * settings.batch_size


def test_published_figures_are_those_of_scales_that_there_are():
    for name in SPECS:
        assert set(read_spec(name)[1].published) <= set(SCALES)


@pytest.mark.parametrize("scale", SCALES)
def test_reasons_for_absence_are_for_models_that_are_absent(scale):
    read = read_scale(scale)
    assert not set(read.settings.absent) & set(read.runs)
