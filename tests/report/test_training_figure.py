"""Curves of runs."""

import pytest

from multimdm.report.training_figure import training_figure
from multimdm.training.loop import train
from multimdm.training.records import validation_loss
from support.runs import metrics, tiny_job


@pytest.mark.parametrize("system", ["multimdm", "ar"])
def test_the_curves_are_those_of_the_records(system, tmp_path):
    train(tiny_job("run", system=system), tmp_path / "run", quiet=True)
    figure = training_figure([tmp_path / "run"])
    (axes,) = figure.axes
    thin = axes.lines[0]
    expected = [
        record.get("reconstruction", 0) + record.get("identification", 0) + record.get("next_token", 0)
        for record in metrics(tmp_path / "run")
    ]
    assert list(thin.get_ydata()) == pytest.approx(expected)  # pyright: ignore[reportArgumentType]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    last = metrics(tmp_path / "run", "valid")[-1]
    assert set(labels) == {f"run, {validation_loss(last):.4f}", f"exact entropy, {last['entropy']:.4f}"}
