import csv
import io
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from multimdm.evaluation.alignment import Aligned, Trial
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.mask_reading import MaskReading
from multimdm.evaluation.mauve import Mauve
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.real_text import RealFigures
from multimdm.evaluation.recall import Recall
from multimdm.evaluation.shortfall import AtTime, Shortfall
from multimdm.evaluation.trajectory import Trajectory
from multimdm.report.beside_gen_ppl import distance_sections, weak_judge_text
from multimdm.report.columns import FIELDS, all_samples, csv_row
from multimdm.report.evaluation_report import report
from multimdm.report.formats import full_text, interval_text, perplexity_text, ratio_digits, value_text
from multimdm.report.listings import LIKELIHOOD_RATIOS, MASKS, MAUVES, RECALLS, recall_by_temperature
from multimdm.report.markdown import inline, markdown_text
from multimdm.report.page import page
from multimdm.report.pareto_figure import COLOURS, at_step, curves_at, fronts, pareto_figure
from multimdm.report.style import save
from multimdm.report.tables import (
    Comparison,
    by_judge,
    comparison_section,
    csv_text,
    entropy_aligned,
    temperature_aligned,
)
from multimdm.report.terminal import print_evaluation
from multimdm.report.trajectory_figure import trajectory_picture
from support.measurements import made_up
from support.present import present

_EMPTY = ("area", "base", "br", "col", "hr", "img", "input", "link", "meta")


class Checker(HTMLParser):
    """Checks that elements are nested and closed, and collects what is referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, {name: value or "" for name, value in attrs}))
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def estimate(value: float) -> Estimate:
    return Estimate(value, value * 0.9, value * 1.1)


def measurement(steps: int, temperature: float, gen_ppl: float | None = 20.0, entropy: float = 3.0) -> Measurement:
    return made_up(
        steps,
        estimate(0.5),
        temperature=temperature,
        gen_ppl=None if gen_ppl is None else estimate(gen_ppl),
        entropy=estimate(entropy),
        pooled_entropy=estimate(entropy + 1),
        token_distance=estimate(0.4),
        pair_distance=estimate(0.6),
        texts=("A <b>tale</b> & more.", ""),
    )


def evaluation(label: str = "one", factor: float = 1.0, reached: bool = True) -> Evaluation:
    points = [measurement(K, tau, factor * 100 / K * tau, 2 + tau) for K in (2, 4) for tau in (0.8, 1.0, 1.2)]
    trial = Trial(0.9, estimate(3.1))
    return Evaluation(
        label=label,
        path=f"runs/{label}",
        description="masked diffusion; 1 block",
        fingerprint="0" * 64,
        judge="tales",
        drawing={"num": 8, "length": 48, "seed": 0, "batch_size": 64, "law": {"top_p": 1.0, "steps": None}},
        real=RealFigures("tales", 100, estimate(3.2), estimate(4.5), "tales", 10, estimate(2.8)),
        nelbo=Nelbo(1.5, 0.2, 0.01, 10, 480),
        nats_per_token=1.0359,
        recalls=(Recall(1.0, estimate(2.5), 4, 2048), Recall(0.75, estimate(2.7), 4, 2048)),
        measurements=tuple(points),
        aligned=tuple(Aligned(3.1, reached, (trial,), measurement(K, 0.9, factor * 90 / K, 3.1)) for K in (2, 4)),
        trajectories=(Trajectory(2, (1.0, 0.0), (("1", "0"), ("<i>", "cat")), ((1, 2), (0, 0)), True),),
    )


def markdown(comparison: Comparison, judge: str) -> str:
    return markdown_text(comparison_section(comparison, by_judge(judge)))


def distances_text(comparison: Comparison) -> str:
    return markdown_text(distance_sections(comparison))


def mask_reading_markdown(evaluations: list[Evaluation]) -> str:
    return markdown_text(MASKS.section(evaluations))


def recall_table(evaluations: list[Evaluation]) -> str:
    return markdown_text(recall_by_temperature(evaluations))


PAIR = [evaluation("one"), evaluation("two", 0.5, reached=False)]


def test_the_likelihood_ratio_says_which_way_samples_differ():
    """GenPPL of the samples over that of real text, 2.8: too high is wrong, and too low is no praise."""
    ppls = {1: 28.0, 2: 2.8, 4: 1.4}
    points = tuple(measurement(K, 1.0, ppl) for K, ppl in ppls.items())
    judged = replace(evaluation(), judge="captions-ar", measurements=points, aligned=())
    rows = LIKELIHOOD_RATIOS.rows(judged)
    assert [(K, tau, ratio.split()[0]) for K, tau, ratio, _ in rows] == [
        ("1", "1", "10"),
        ("2", "1", "1.0"),
        ("4", "1", "0.50"),
    ]
    assert [words for *_, words in rows] == [
        "less probable than real text",
        "as probable as real text",
        "more probable than real text: too predictable",
    ]
    assert "Likelihood ratio by the judge" in report([judged], (1, 2, 4), "One")


def test_there_is_no_likelihood_ratio_by_the_law_itself_or_without_real_text():
    assert LIKELIHOOD_RATIOS.rows(evaluation()) == []
    judged = replace(evaluation(), judge="captions-ar")
    assert [tau for _, tau, *_ in LIKELIHOOD_RATIOS.rows(judged)].count("0.9 aligned") == 2
    assert LIKELIHOOD_RATIOS.rows(replace(judged, real=None)) == []


def test_without_an_interval_a_likelihood_ratio_decides_nothing():
    alone = replace(measurement(1, 1.0, 28.0), gen_ppl=Estimate(28.0))
    judged = replace(evaluation(), judge="captions-ar", measurements=(alone,), aligned=())
    assert [words for *_, words in LIKELIHOOD_RATIOS.rows(judged)] == ["–"]


def test_samples_as_the_model_is_to_be_drawn_are_listed_once_and_not_called_aligned():
    point = measurement(2, 1.0, 28.0)
    one = replace(evaluation(), measurements=(point,), aligned=(Aligned(None, True, (), point),))
    assert all_samples(one) == [(point, "")]


def test_the_same_mauve_of_every_k_is_listed_once():
    one = Mauve(32, 1.0, "judge", 256, estimate(0.9), 0.94)
    judged = replace(evaluation(), mauves=(one, replace(one), replace(one, steps=4)))
    assert len(MAUVES.rows(judged)) == 2


def test_the_page_is_whole_and_stands_alone():
    text = report(PAIR, (2, 4), "A & B")
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.references
    assert all(reference.startswith("data:image/png;base64,") for reference in checker.references)
    assert "http:" not in text
    assert "https:" not in text
    assert not checker.tags & {"script", "link", "iframe"}
    assert "url(" not in text
    assert "@import" not in text


def pictures_of(page: str) -> list[str]:
    """What the pictures show, for those who do not see them."""
    checker = Checker()
    checker.feed(page)
    return [attributes["alt"] for tag, attributes in checker.attributes if tag == "img"]


def test_one_temperature_at_several_calls_has_its_curves():
    """What `evaluate --report` makes without further options: no sweep, no alignment, but K."""
    points = tuple(measurement(K, 1.0, 100 / K, 3.0) for K in (4, 8, 16))
    plain = replace(evaluation("plain"), measurements=points, aligned=())
    page = report([plain], (4, 8, 16), "A")
    assert "Against the number of calls" in page
    shown = pictures_of(page)
    assert len(shown) == 2
    for name, alternative in zip(("GenPPL", "entropy"), shown, strict=True):
        assert alternative.startswith(f"{name} against K at τ = 1, one line each for plain.")
    assert "Trajectories" in page
    unjudged = replace(plain, measurements=tuple(replace(m, gen_ppl=None) for m in points))
    assert [alternative.split()[0] for alternative in pictures_of(report([unjudged], (4, 8, 16), "A"))] == ["entropy"]
    single = replace(plain, measurements=points[:1])
    assert pictures_of(report([single], (4,), "A")) == []
    assert sum("at matched entropy" in alternative for alternative in pictures_of(report(PAIR, (2, 4), "A"))) == 2


def test_the_page_shows_everything():
    text = report(PAIR, (2, 4), "A & B")
    for wanted in (
        "A &amp; B",
        "judge: tales",
        "Entropy-aligned",
        "Temperature-aligned",
        "A &lt;b&gt;tale&lt;/b&gt; &amp; more.",
        "&lt;i&gt;",
        "1.7000 ± 0.0100",
        "1.0359 nats per token",
        f"{full_text(estimate(2.7))} nats per token at temperature 0.75 (4 texts, 2,048 noise strings)",
        "†",
        "prefers-color-scheme: dark",
    ):
        assert wanted in text
    assert "<b>tale</b>" not in text
    assert text.count("<img") == 2 + 2  # against K, and one picture per K


def test_masks_that_are_not_read_are_no_test_of_the_method(capsys):
    read = replace(evaluation("read"), mask_reading=MaskReading(1.7, 2.2, 0.01, 512))
    ignored = replace(evaluation("ignored"), mask_reading=MaskReading(1.751, 1.766, 0.001, 512))
    not_tested = "the network hardly reads its masks: what many masks can do was not tested"
    for text in (report([read, ignored, evaluation()], (2, 4), "Masks"), mask_reading_markdown([read, ignored])):
        assert "0.5000 ± 0.0100" in text
        assert "0.0150 ± 0.0010" in text
        assert text.count(not_tested) == 1
        assert text.count("the masks are read") == 1
    assert mask_reading_markdown([evaluation()]) == ""
    assert "What masks tell" not in report([evaluation()], (2, 4), "No masks")
    others = replace(evaluation("others"), mask_reading=MaskReading(1.3, 1.42, 0.01, 512, own_by_rule=True))
    assert "the masks of other positions are read" in mask_reading_markdown([others])
    print_evaluation(ignored)
    assert not_tested in " ".join(capsys.readouterr().out.split())


def test_where_a_network_loses(capsys):
    by_time = (AtTime(1.0, estimate(0.123)), AtTime(0.5, estimate(0.456)))
    lost = (
        Shortfall("data", None, None, 512, estimate(0.3), by_time),
        Shortfall("sampler", 2, 0.9, 128, estimate(0.7), by_time),
    )
    one = replace(evaluation(), shortfalls=lost)
    print_evaluation(one)
    for text in (report([one], (2, 4), "Losses"), " ".join(capsys.readouterr().out.split())):
        for wanted in (
            "512 noised texts",
            "128 samples, K = 2, τ = 0.9",
            full_text(estimate(0.7)),
            "1.00: 0.123, 0.50: 0.456",
        ):
            assert wanted in text


def test_a_page_without_judge_samples_or_steps():
    bare = replace(evaluation(), judge=None, measurements=(), aligned=(), trajectories=(), real=None)
    text = report([bare], (), "NELBO alone")
    assert "no judge" in text
    assert "<img" not in text
    points = tuple(measurement(4, tau, None) for tau in (1.0, 0.5))
    text = report([replace(bare, measurements=points)], (4,), "Entropy alone")
    assert "<img" not in text
    assert "–" in text


def test_tables():
    aligned, fixed = present(entropy_aligned(PAIR, (2, 4))), present(temperature_aligned(PAIR, (2, 4)))
    assert aligned.best(0) == set()  # the other is at another entropy: there is nothing to compare
    assert fixed.best(0) == {"two"}
    assert aligned.marked
    assert not fixed.marked
    text = markdown(aligned, "tales")
    assert "| one | 45.00 [40.50, 49.50], H = 3.100, τ = 0.9 |" in text
    assert "| two | 22.50† [20.25, 24.75]" in text
    assert "closest attainable" in text
    assert "judge `tales`" in text
    assert "**25.00**" in markdown(fixed, "tales")
    rows = list(csv.DictReader(io.StringIO(csv_text(aligned))))
    assert [(row["model"], row["steps"], row["reached"]) for row in rows] == [
        ("one", "2", "True"),
        ("one", "4", "True"),
        ("two", "2", "False"),
        ("two", "4", "False"),
    ]
    assert float(rows[0]["gen_ppl"]) == 45.0


def autoregressive() -> Evaluation:
    """Better than all others, by 48 calls whatever K."""
    points = tuple(measurement(48, tau, 2.0 * tau) for _ in (2, 4) for tau in (0.8, 1.0, 1.2))
    return replace(evaluation("ar"), measurements=points, aligned=())


def test_what_takes_more_calls_says_so_and_is_not_ranked():
    models = [*PAIR, autoregressive()]
    table = present(temperature_aligned(models, (2, 4)))
    assert table.best(0) == table.best(1) == {"two"}
    assert table.unranked
    text = markdown(table, "tales")
    assert text.count("| 2.000 (48 calls) [1.800, 2.200], H = ") == 2
    assert "it is not ranked" in text
    page = report(models, (2, 4), "Three")
    assert page.count("2.000 (48 calls)<small>[1.800, 2.200]") == 2
    assert "it is not ranked" in page
    assert list(curves_at(models, (2, 4), 4)) == ["one", "two", "ar (48 calls)"]
    assert list(fronts([models[2]], (2, 4))["ar"]) == ["K = 2 (48 calls)", "K = 4 (48 calls)"]


def test_what_cannot_be_told_from_the_best_is_bold_too():
    models = [evaluation("one"), evaluation("two", 0.5), evaluation("three", 0.55)]
    table = present(temperature_aligned(models, (2, 4)))
    assert table.best(0) == {"two", "three"}  # 25 and 27.5, ten per cent each
    assert present(temperature_aligned(models[1:], (2, 4))).best(0) == set()
    alone = present(temperature_aligned(models[:1], (2, 4)))
    assert alone.best(0) == set()


def test_every_figure_has_its_interval(capsys):
    row: dict[str, Any] = dict(zip(FIELDS, csv_row(2, PAIR[0].measurements[0]), strict=True))
    figures = ("gen_ppl", "entropy", "distinct_1", "distinct_3", "duplicates", "valid_sentences", "valid_stories")
    for name in (*figures, "token_distance", "pair_distance"):
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    assert (row["token_chance"], row["pair_chance"], row["num"]) == (0.25, 0.3, 8)
    many = tuple(replace(m, duplicates=estimate(0.25), distinct=(estimate(0.7),) * 3) for m in PAIR[0].measurements)
    changed = replace(PAIR[0], measurements=many)
    page = report([changed], (2, 4), "One")
    assert "25.0%<small>[22.5%, 27.5%]</small>" in page
    assert page.count("0.70<small>[0.63, 0.77]</small>") == 3 * len(many)
    print_evaluation(changed)
    out = capsys.readouterr().out
    assert out.count("0.70 [0.63, 0.77]") == 3 * len(many)
    assert "[22.5%, 27.5%]" in out


def elsewhere(evaluation: Evaluation) -> Evaluation:
    """The same on other data than Tales."""

    def moved(m: Measurement) -> Measurement:
        names = (
            "valid_sentences",
            "valid_stories",
            *("token_distance", "token_chance", "pair_distance", "pair_chance"),
        )
        return replace(m, **dict.fromkeys(names))

    aligned = tuple(replace(one, measurement=moved(one.measurement)) for one in evaluation.aligned)
    return replace(evaluation, measurements=tuple(map(moved, evaluation.measurements)), aligned=aligned)


def test_distances_are_shown_beside_chance(capsys):
    chance = "8 real stories are 0.250 (tokens) and 0.300 (pairs) from it by chance alone."
    text = distances_text(present(entropy_aligned(PAIR, (2, 4))))
    assert text.startswith("### Distance from the source, entropy-aligned\n")
    assert chance in text
    cell = "0.400 [0.360, 0.440], 0.600 [0.540, 0.660]"
    assert f"| one | {cell} | {cell} |\n| two | {cell}† | {cell}† |" in text
    assert "closest attainable" in text
    three = [*PAIR, autoregressive()]
    assert f"| ar | {cell} (48 calls) |" in distances_text(present(temperature_aligned(three, (2, 4))))
    assert "| ar | – | – |" in distances_text(present(entropy_aligned(three, (2, 4))))
    page = report(three, (2, 4), "Three")
    assert page.count(chance) == 3  # with both comparisons, and with all measurements
    assert "0.400, 0.600†<small>[0.360, 0.440], [0.540, 0.660]</small>" in page
    assert "0.400<small>[0.360, 0.440]</small>" in page
    print_evaluation(PAIR[0])
    out = capsys.readouterr().out
    assert chance in out
    assert "distance " in out


def test_other_data_have_no_distances(capsys):
    others = [elsewhere(one) for one in PAIR]
    assert distances_text(present(entropy_aligned(others, (2, 4)))) == ""
    print_evaluation(others[0])
    for text in (report(others, (2, 4), "Two"), capsys.readouterr().out):
        assert "by chance" not in text
        assert "token distance" not in text


def test_missing_real_text_is_told(capsys):
    without = replace(evaluation(), real=None)
    print_evaluation(without)
    assert "No held-out text was given (--data)" in " ".join(capsys.readouterr().out.split())
    assert "No held-out text was given (--data)" in report([without], (2, 4), "One")
    assert "No held-out text" not in report(PAIR, (2, 4), "Two")
    print_evaluation(replace(without, measurements=(), aligned=()))  # nothing was sampled, nothing is missing
    assert "No held-out text" not in capsys.readouterr().out


def test_no_judge_is_told(capsys):
    points = tuple(replace(measurement(4, 1.0, None), judge=None) for _ in range(1))
    print_evaluation(replace(evaluation(), judge=None, measurements=points, aligned=()))
    out = capsys.readouterr().out
    assert "no judge, so no GenPPL" in out
    assert "judge None" not in out


def test_states_are_told_by_signs():
    text = report(PAIR, (2, 4), "Two")
    assert '<span class="k1">◆1</span> <span class="k2">◇0</span>' in text
    assert '<span class="k0">&lt;i&gt;</span>' in text
    assert "◆ mask of the final token" in text
    assert "◇ another mask" in text
    one_mask = Trajectory(1, (1.0, 0.0), (("", ""), ("a", "cat")), ((1, 1), (0, 0)), False)
    assert '<span class="k1">◆</span>' in page("", "", [trajectory_picture(one_mask)])


def test_the_page_can_be_read_without_eyes_or_mouse():
    checker = Checker()
    checker.feed(report(PAIR, (2, 4), "Two"))
    found = checker.attributes
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in found if tag == "th")
    areas = [attributes for _, attributes in found if attributes.get("class") == "scroll"]
    assert areas
    assert all(area["tabindex"] == "0" and area["role"] == "region" and area["aria-label"] for area in areas)
    texts = [attributes["alt"] for tag, attributes in found if tag == "img"]
    assert len(texts) == 4
    for K, text in zip((2, 4), texts[2:], strict=True):
        assert text.startswith(f"K = {K}: GenPPL against sample entropy")
        assert "one, two" in text


def test_no_table_without_its_measurements():
    bare = replace(evaluation(), aligned=(), measurements=(measurement(2, 0.5),))
    assert entropy_aligned([bare], (2,)) is None
    assert temperature_aligned([bare], (2,)) is None


def test_points_of_one_number_of_steps():
    assert [m.steps for m in at_step(PAIR[0], (2, 4), 4)] == [4, 4, 4]
    same = replace(PAIR[0], measurements=(measurement(48, 1.0), measurement(48, 1.0)))  # an autoregressive model
    assert len(at_step(same, (2, 4), 4)) == 1


def test_the_figure_has_a_curve_for_each_model():
    curves = {e.label: at_step(e, (2, 4), 2) for e in PAIR}
    (axes,) = pareto_figure(curves, PAIR[0].real, "K = 2").axes
    legend = present(axes.get_legend())
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two", "real text, GenPPL 2.800"]
    filled = [line for line in axes.lines if to_hex(line.get_markerfacecolor()) == COLOURS[0]]
    circles = [np.asarray(line.get_xdata()).tolist() for line in filled if line.get_marker() == "o"]
    assert circles == [[3.0], []]  # tau = 1, and the sign in the legend
    assert axes.get_yscale() == "log"
    assert "tales" in axes.get_ylabel()


def test_names_are_no_formulas(tmp_path):
    """A dollar sign is one, and what begins with an underscore is shown."""
    names = ["$\\frac$", "a $5 and $6", "_hidden"]
    figure = pareto_figure({name: [measurement(2, 1.0)] for name in names}, None, "$\\frac$")
    save(figure, tmp_path / "a.png")
    legend = present(figure.axes[0].get_legend())
    assert [text.get_text() for text in legend.get_texts()] == names
    assert len(legend.legend_handles) == 3


@pytest.mark.parametrize("points", [[], [measurement(2, 1.0, None)]])
def test_a_curve_without_points(points):
    assert pareto_figure({"empty": points}, None, "K = 2").axes


def test_numbers_as_text():
    assert [perplexity_text(x) for x in (2.8284, 193.64, 1926.5, 16)] == ["2.828", "193.6", "1,926", "16.00"]
    assert full_text(Estimate(1.0, 0.5, 1.5)) == "1.000 [0.500, 1.500]"
    assert full_text(Estimate(1.0)) == "1.000"
    assert value_text(None) == "–"
    assert interval_text(None) == ""


def test_the_terminal_shows_everything(capsys):
    print_evaluation(PAIR[1])
    text = capsys.readouterr().out
    for wanted in ("two", "GenPPL", "aligned †", "closest attainable", "judge tales", "1.7000 ± 0.0100", "1.0359"):
        assert wanted in text
    assert (
        "real text (tales): entropy 3.200 [2.880, 3.520], pooled 4.500 [4.050, 4.950], GenPPL 2.800 [2.520, 3.080]"
        in text
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0392, "0.039"), (0.2, "0.20"), (1.0, "1.0"), (1.04, "1.0"), (18.2, "18"), (99.4, "99"), (99.6, "100")],
)
def test_ratios_have_two_digits(value, text):
    assert ratio_digits(value) == text


def test_recall_at_an_entropy_that_was_not_reached_is_marked():
    one = replace(PAIR[1], aligned=(replace(PAIR[1].aligned[0], measurement=measurement(1, 0.9)),))
    (at_one,), (aligned,) = RECALLS.rows(one)
    assert "†" not in at_one
    assert "at temperature 0.75† (" in aligned
    text = recall_table([PAIR[0], one])
    assert f"| two | {full_text(estimate(2.5))} | {full_text(estimate(2.7))}, τ = 0.75† |" in text
    assert f"| one | {full_text(estimate(2.5))} | {full_text(estimate(2.7))}, τ = 0.75 |" in text
    assert "closest attainable" in text
    assert recall_table([replace(PAIR[0], recalls=())]) == ""


def judged(samples: float, real: float, judge: str = "gpt2", entropy: float = 3.3) -> Evaluation:
    """Samples at K = 4 and real text with these perplexities; intervals of estimates are 10% to either side."""
    whole = evaluation()
    figures = RealFigures("text", 100, estimate(3.2), estimate(4.5), judge, 10, estimate(real))
    points = (measurement(4, 1.0, samples, entropy),)
    return replace(whole, judge=judge, real=figures, measurements=points, aligned=())


def test_a_judge_that_cannot_tell_samples_from_text_is_called_weak(capsys, monkeypatch):
    real = estimate(30.0)
    assert real.high is not None
    for samples, weak in ((real.high + 0.01, False), (real.high, True), (30.0, True), (10.0, True)):
        one = judged(samples, 30.0)
        text = report([one], (4,), "A")
        assert ('<p class="warning" role="alert">' in text) is weak
        print_evaluation(one)
        assert ("cannot tell samples from real text" in " ".join(capsys.readouterr().out.split())) is weak
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_evaluation(judged(10.0, 30.0))
    printed = capsys.readouterr().out
    assert "\x1b[1;31mThe judge gpt2 cannot tell samples from real text" in printed
    assert "take a stronger judge" in " ".join(printed.split())


def test_the_exact_judge_is_not_weak_and_variety_is_minded():
    assert weak_judge_text(judged(10.0, 30.0, judge="tales")) is None
    assert weak_judge_text(replace(judged(10.0, 30.0), real=None)) is None
    low = weak_judge_text(judged(10.0, 30.0, entropy=1.0))
    assert low is not None
    assert low.endswith("some of these samples are less varied than real text.")
    assert "at K = 4, tau 1" in low


def test_the_loss_of_an_autoregressive_model_is_no_nelbo(capsys):
    exact = replace(evaluation(), nelbo=Nelbo(1.5, 0.0, 0.01, 10, 480, exact=True))
    print_evaluation(exact)
    printed = " ".join(capsys.readouterr().out.split())
    assert "negative log-likelihood 1.5000 ± 0.0100 nats per token" in printed
    assert "perplexity 4.482" in printed
    assert "NELBO" not in printed
    alone = report([exact], (2, 4), "A")
    assert "negative log-likelihood (nats per token)" in alone
    assert "NELBO" not in alone
    assert "NELBO, or negative log-likelihood (nats per token)" in report([exact, evaluation()], (2, 4), "A")
    assert "NELBO (nats per token)" in report([evaluation()], (2, 4), "A")


HOSTILE = "<script>alert(1)</script> \x1b[31mred \u202eback \0nul \x9b2J [bold]x[/bold]"


def test_texts_are_never_markup(capsys):
    one = evaluation(HOSTILE)
    point = replace(one.measurements[0], texts=(HOSTILE,))
    words = Trajectory(2, (1.0, 0.0), (("1",), (HOSTILE,)), ((1,), (0,)), True)
    hostile = replace(one, description=HOSTILE, path=HOSTILE, measurements=(point,), trajectories=(words,))
    text = report([hostile], (2, 4), HOSTILE)
    checker = Checker()
    checker.feed(text)
    assert "script" not in checker.tags
    print_evaluation(hostile)
    printed = capsys.readouterr().out
    assert "[bold]x[/bold]" in printed
    for character in "\x1b\u202e\0\x9b":
        assert character not in text
        assert character not in printed
    assert "\\x1b[31mred" in printed
    assert inline(f"a\n{HOSTILE}").startswith("a &lt;script&gt;")
