"""A column is stated once: every figure of samples is in files, on pages and in the terminal."""

from dataclasses import fields, replace
from typing import get_args, get_type_hints

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.report.columns import FIELDS, FIGURES, csv_row, shown_figures

HALF = Estimate(0.5, 0.4, 0.6)
NAMES = [name for name, kind in get_type_hints(Measurement).items() if Estimate in (kind, *get_args(kind))]


def measurement() -> Measurement:
    """With every figure that there is."""
    values = dict.fromkeys((one.name for one in fields(Measurement)), 1)
    chances = {name: 0.25 for name in values if name.endswith("_chance")}
    figures = {name: HALF for name in NAMES}
    return Measurement(**{**values, **chances, **figures, "judge": None, "texts": (), "distinct": (HALF,) * 3})  # pyright: ignore[reportArgumentType]


def test_every_figure_has_a_column():
    assert {"gen_ppl", "duplicates", "subject_pair_distance"} <= set(NAMES)
    wanted = {*NAMES, "distinct_1", "distinct_2", "distinct_3"} - {"distinct"}
    assert {figure.name for figure in FIGURES} == wanted
    assert all(figure.get(measurement()) == HALF for figure in FIGURES)


def test_files_have_value_and_interval_of_each():
    row = dict(zip(FIELDS, csv_row(4, measurement()), strict=True))
    assert all((row[f.name], row[f"{f.name}_low"], row[f"{f.name}_high"]) == (0.5, 0.4, 0.6) for f in FIGURES)
    assert {row[name] for name in FIELDS if name.endswith("_chance")} == {0.25}
    assert sum(name.endswith("_chance") for name in FIELDS) == 4
    assert (row["steps"], row["judge"]) == (4, "")


def test_tables_show_what_is_there():
    whole = measurement()
    assert set(shown_figures([whole])) == set(FIGURES)
    bare = replace(whole, **{figure.name: None for figure in FIGURES if figure.optional}, gen_ppl=None)
    left = {figure.name for figure in shown_figures([bare])}
    assert left == {figure.name for figure in FIGURES if not figure.optional}
    assert "gen_ppl" in left  # that there was no judge is to be seen
    assert set(shown_figures([bare, whole])) == set(FIGURES)
