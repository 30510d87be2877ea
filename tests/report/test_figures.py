import csv

import pytest
from matplotlib.colors import to_hex

from multimdm.evaluation.conditional_entropy import Point
from multimdm.report.entropy_figure import entropy_figure, points_csv
from multimdm.report.forward_figure import forward_figure, forward_trajectories
from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, save


def test_csv_columns_and_rows():
    text = points_csv([Point(0.5, "uniform gaussian", 1.3, 0.01)])
    assert list(csv.DictReader(text.splitlines())) == [
        {"time": "0.5", "curve": "uniform gaussian", "value": "1.3", "standard_error": "0.01"}
    ]


def test_every_curve_is_drawn():
    names = ["uniform unconditioned", "uniform gumbel", "masked unconditioned, once masked", "multimask M=5 gumbel"]
    points = [Point(t, name, t, 0.1 * t) for name in names for t in (0.0, 1.0)]
    left, right = entropy_figure(points, "title").axes
    assert (len(left.lines), len(right.lines)) == (3, 1)
    assert right.get_legend_handles_labels()[1] == ["M = 5"]


def test_trajectories_show_what_the_processes_do():
    uniform, masked, several = forward_trajectories("it was the best of times", num_masks=3, seed=0)
    for trajectory in (uniform, masked, several):
        assert [text for text, _ in trajectory.cells[0]] == ["it", "was", "the", "best", "of", "times"]
        assert {colour for _, colour in trajectory.cells[0]} == {CLEAN}
    assert {text for text, _ in masked.cells[-1]} == {"[M]"}
    assert {colour for _, colour in several.cells[-1]} <= {DESIGNATED, CORRUPTED}
    for before, after in zip(several.cells, several.cells[1:], strict=False):
        for (_, earlier), (_, later) in zip(before, after, strict=True):
            assert earlier == CLEAN or later != CLEAN  # what is masked stays masked


def test_forward_figure_is_a_picture(tmp_path):
    figure = forward_figure(forward_trajectories("a b c", num_masks=2, seed=0))
    assert len(figure.axes) == 3
    assert to_hex(figure.axes[0].patches[0].get_facecolor()) == CLEAN
    save(figure, tmp_path / "forward.png")
    assert (tmp_path / "forward.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_picture_leaves_nothing(tmp_path, monkeypatch):
    figure = forward_figure(forward_trajectories("a b c", num_masks=2, seed=0))

    def fail(path, **named):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save(figure, tmp_path / "forward.png")
    assert list(tmp_path.iterdir()) == []
