"""What a comparison found: figures of single seeds become means, tables, figures and a page.

Seeds may come from machines that share no files: each writes a `study.json`, and `merge` makes one study of several.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from multimdm._checks import require
from multimdm._files import write_text
from multimdm.evaluation.over_seeds import over_seeds, ratios_over_seeds
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.store import write_json
from multimdm.report.pareto_figure import save_fronts
from multimdm.report.reproduction_report import (
    STUDY,
    TABLES,
    Reproduction,
    Trained,
    quality_figure,
    read_study,
    reproduction_report,
    study_text,
    validity_figure,
    write_study,
)
from multimdm.report.style import save
from multimdm.report.tables import aligned_tables, csv_text


def with_figures(result: Reproduction, each: Mapping[str, Sequence[Evaluation]], seeds: Sequence[int]) -> Reproduction:
    """A study with these figures. `each`: label -> the evaluations of all seeds, in their order."""
    others = {label: one for label, one in each.items() if label != result.other(label)} if len(seeds) > 1 else {}
    return replace(
        result,
        seeds=len(seeds),
        seed_numbers=tuple(seeds),
        each=each,
        evaluations=[over_seeds(one) for one in each.values()],
        ratios={label: ratios_over_seeds(one, each[result.other(label)]) for label, one in others.items()},
    )


def write_results(out: Path, results: Sequence[Reproduction], judges: Sequence[str]) -> Path:
    """Everything, for every judge. The folder of the first is `out` itself; those of others have their names."""
    for number, (judge, result) in enumerate(zip(judges, results, strict=True)):
        _write(out if number == 0 else out / judge, result)
    write_study(out / STUDY, results)
    write_text(out / TABLES, study_text(results))
    return out


def _write(out: Path, result: Reproduction) -> None:
    out.mkdir(parents=True, exist_ok=True)
    save(quality_figure(result), out / "quality.png")
    if (validity := validity_figure(result)) is not None:
        save(validity, out / "validity.png")
    save_fronts(result.evaluations, result.steps, out)
    for table in aligned_tables(result.evaluations, result.steps):
        write_text(out / f"{table.name}.csv", csv_text(table))
    write_json(out / "results.json", [evaluation.as_data() for evaluation in result.evaluations])
    write_json(out / "seeds.json", [evaluation.as_data() for seeds in result.each.values() for evaluation in seeds])
    write_text(out / "report.html", reproduction_report(result))


def merge(files: Sequence[Path]) -> list[Reproduction]:
    """One study of several, for every judge; all must be of one specification, scale and budget, and of other seeds."""
    require(len(files) > 1, f"--merge takes at least two studies; got {len(files)}")
    studies = {file: read_study(file) for file in files}
    require(len(studies) == len(files), "--merge takes every study once")
    for file, study in studies.items():
        require(
            all(result.each for result in study),
            f"{file} has no figures of single seeds: an older version wrote it; run its command again, which only "
            "writes it anew",
        )
    for (one, ours), (other, theirs) in combinations(studies.items(), 2):
        _check_alike(one, ours, other, theirs)
        if shared := sorted({*ours[0].seed_numbers} & {*theirs[0].seed_numbers}):
            raise ValueError(f"{one} and {other} both have seed {shared[0]}; every study must have seeds of its own")
    return [_merged(results) for results in zip(*studies.values(), strict=True)]


def _check_alike(one: Path, ours: Sequence[Reproduction], other: Path, theirs: Sequence[Reproduction]) -> None:
    judges = [[result.judge for result in study] for study in (ours, theirs)]
    require(judges[0] == judges[1], f"{other} has other judges than {one}: {judges[1]}, not {judges[0]}")
    for our, their in zip(map(_common, ours), map(_common, theirs), strict=True):
        for what in our | their:
            if our.get(what) != their.get(what):
                raise ValueError(
                    f"{other} cannot be merged with {one}: {what} is {their.get(what)!r}, not {our.get(what)!r}"
                )


def _common(result: Reproduction) -> dict[str, Any]:
    """What seeds of one study have in common, in the words of an error; the first difference says most."""
    found: dict[str, Any] = {
        "the specification": f"{result.title} ({result.shows})",
        "the scale": f"{result.scale}: {result.about}",
        "the rule of equal budgets": result.equal,
        "the list of models": list(result.each),
        "K": list(result.steps),
        "the reference": result.reference,
        "what is compared with another model than the reference": dict(result.beside),
        "what is left out": dict(result.absent),
        "what the paper printed": {name: _plain(rows) for name, rows in result.published.items()},
    }
    for one in result.trained:
        found[f"the budget of {one.label}"] = (one.stages, one.training, one.distillation)
        found[f"the fingerprint of the recipes of {one.label}"] = one.recipes
    for label, evaluations in result.each.items():
        first = evaluations[0]
        found[f"the drawing of {label}"] = {key: value for key, value in first.drawing.items() if key != "seed"}
        real = None if first.real is None else asdict(replace(first.real, name=""))  # a path on one machine
        found[f"the real text beside {label}, or what {result.judge} says of it"] = real
    return found


def _plain(rows: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {label: list(values) for label, values in rows.items()}


def _merged(results: Sequence[Reproduction]) -> Reproduction:
    """The results of one judge joined, with the seeds in their order."""
    first = results[0]
    seeds = sorted(seed for result in results for seed in result.seed_numbers)
    each = {label: _in_order(results, label) for label in first.each}
    trained = [_spent_by_all(same) for same in zip(*(result.trained for result in results), strict=True)]
    return with_figures(replace(first, trained=trained), each, seeds)


def _in_order(results: Iterable[Reproduction], label: str) -> list[Evaluation]:
    """The evaluations of a model by seed; real text is called what the first study calls it."""
    by_seed = {
        seed: evaluation
        for result in results
        for seed, evaluation in zip(result.seed_numbers, result.each[label], strict=True)
    }
    found = [by_seed[seed] for seed in sorted(by_seed)]
    real = found[0].real
    return [replace(evaluation, real=real) for evaluation in found]


def _spent_by_all(same: Sequence[Trained]) -> Trained:
    return replace(same[0], minutes=sum(one.minutes for one in same))
