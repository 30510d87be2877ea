"""MAUVE by its laws: 1 for equal laws, near 0 for laws apart, less for what is missing as for what is too much."""

import json

import numpy as np
import pytest
import torch

from multimdm.cli.main import main
from multimdm.evaluation.judges import make_judge
from multimdm.evaluation.judges.base import Reader
from multimdm.evaluation.mauve import area, mauve, mauve_of
from support.tiny_models import TALES, causal_tales_model, tales_model


def normal(num: int, seed: int, shift: float = 0.0, width: float = 1.0) -> np.ndarray:
    return width * np.random.default_rng(seed).normal(size=(num, 4)) + shift


def test_the_area_by_hand():
    """Equal laws have 1. Of laws apart the curve is ((1-λ)^5, λ^5), under which lies 5 B(6, 5) = 1/252."""
    p, q = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.3, 0.7])
    assert area(p, p) == pytest.approx(1.0)
    assert area(p, q) == pytest.approx(1 / 252, abs=2e-3)


def test_the_area_is_symmetric_and_falls_with_the_distance():
    laws = [np.array([0.5 + d, 0.5 - d]) for d in (0.0, 0.1, 0.2, 0.4, 0.5)]
    areas = [area(laws[0], law) for law in laws]
    assert areas == sorted(areas, reverse=True)
    assert len(set(areas)) == len(areas)
    for law in laws:
        assert area(law, laws[0]) == pytest.approx(area(laws[0], law))


def test_equal_laws_are_near_and_others_far():
    real = normal(400, 0)
    same, shifted, narrow = (
        mauve_of(one, real, 0) for one in (normal(400, 1), normal(400, 2, shift=2.0), normal(400, 3, width=0.1))
    )
    assert same > 0.9
    assert shifted < 0.3
    assert narrow < 0.3  # all of it is possible, and most of the rest is missing


def test_the_interval_holds_the_value_and_narrows():
    few, many = (mauve(normal(num, 4, shift=0.5), normal(num, 5), halves=12) for num in (60, 480))
    for one in (few, many):
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.value <= one.high
    assert many.width < few.width


def test_features_of_an_autoregressive_judge(tmp_path):
    """One vector per text; padding is no part of it, and an earlier word is."""
    causal_tales_model().save(tmp_path / "judge")
    reader = make_judge(str(tmp_path / "judge"), tales_model())
    assert isinstance(reader, Reader)
    ids = TALES.sample(3, torch.Generator().manual_seed(0))
    features = reader.features(ids)
    assert features.shape == (3, 32)
    valid = torch.ones_like(ids, dtype=torch.bool)
    valid[:, 30:] = False
    changed = ids.clone()
    changed[:, 40] = 7
    torch.testing.assert_close(reader.features(ids, valid), reader.features(changed, valid))
    changed[:, 3] = 9
    assert not torch.allclose(reader.features(ids, valid), reader.features(changed, valid))
    alone = torch.cat([reader.features(row[None]) for row in ids])
    torch.testing.assert_close(features, alone)


def test_the_command(tmp_path, capsys):
    causal_tales_model().save(tmp_path / "judge")
    tales_model().save(tmp_path / "model")
    arguments = ["evaluate", str(tmp_path / "model"), "--steps", "2", "--num", "20", "--mauve", str(tmp_path / "judge")]
    assert main([*arguments, "--judge", "none", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["mauves"]
    assert found["steps"] == 2
    assert 0 <= found["value"]["low"] <= found["value"]["value"] <= found["value"]["high"] <= 1
    assert found["value"]["value"] < found["real"]  # random weights beside stories
    assert main([*arguments, "--align-entropy", "corpus", "--json"]) == 0
    of_all = json.loads(capsys.readouterr().out)
    (aligned,) = of_all["aligned"]
    taus = [one["temperature"] for one in of_all["mauves"]]
    assert taus == [1.0, aligned["measurement"]["temperature"]]
    assert main(["evaluate", str(tmp_path / "model"), "--steps", "2", "--mauve", "tales"]) == 2
    assert "--mauve needs a network that has features" in capsys.readouterr().err
