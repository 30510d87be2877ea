"""A comparison of models, from its specification to tables, figures and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multimdm._files import read_json, write_text
from multimdm.evaluation.judges import Judges
from multimdm.evaluation.over_seeds import over_seeds, ratios_over_seeds
from multimdm.evaluation.perfect_models import is_perfect
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.store import write_json
from multimdm.report.pareto_figure import save_fronts
from multimdm.report.reproduction_report import (
    Reproduction,
    Trained,
    quality_figure,
    reproduction_report,
    validity_figure,
)
from multimdm.report.study_file import NAME, TABLES, study_text, write_study
from multimdm.report.style import save
from multimdm.report.tables import aligned_tables, csv_text
from multimdm.reproduce.at_scale import AtScale
from multimdm.reproduce.budgets import budget, check_equal
from multimdm.reproduce.measuring import Measuring
from multimdm.reproduce.recipes import chain_of_recipes
from multimdm.reproduce.stages import FINISHED, Stage, measuring_stage
from multimdm.training.schema import TrainingRecipe

_RULES = {
    "stages": "All models saw equally many sequences in training, and the distilled ones in distillation.",
    "total": "All models saw equally many sequences in all, distillation included.",
}


@dataclass(frozen=True)
class Comparison(AtScale):
    """Models by K."""

    @property
    def steps(self) -> tuple[int, ...]:
        """K."""
        return self.spec.steps.get(self.scale.name, self.scale.settings.steps)

    def check(self) -> None:
        """Refuse what is wrong before any work: models that are not there, recipes, budgets."""
        trained = {label: run for label, run in self.models.items() if not is_perfect(run)}
        check_equal({label: budget(self._recipes(run)) for label, run in trained.items()}, self.spec.equal)
        for tables in self.spec.published.get(self.scale.name, {}).values():
            for label, values in tables.items():
                if len(values) != len(self.steps):
                    raise ValueError(
                        f"{self.name}: published.{self.scale.name} has {len(values)} figures for {label}; there are "
                        f"{len(self.steps)} numbers of steps"
                    )

    def stages(self) -> list[Stage]:
        """In an order in which they can be done."""
        found = self.preparing()
        for measuring in (one for label in self.models for one in self._measuring(label)):
            for model, seed in measuring.models:
                found |= self.training(model, seed)
            stage = measuring_stage(measuring, self.places)
            found[stage.name] = stage
        return list(found.values())

    def write(self) -> Path:
        """Everything, for every judge; returns the directory."""
        out = self.places.results(self.name)
        out.mkdir(parents=True, exist_ok=True)
        judges = Judges()
        collected = {
            label: [one.collected(self.places, label, judges) for one in self._measuring(label)]
            for label in self.models
        }
        results = []
        for judge in self.scale.settings.judges:
            each = {label: [one[judge] for one in seeds] for label, seeds in collected.items()}
            result = self._result(judge, each)
            folder = out if judge == self.scale.settings.judges[0] else out / judge
            folder.mkdir(exist_ok=True)
            _write(folder, result, [evaluation for seeds in each.values() for evaluation in seeds])
            results.append(result)
        write_study(out / NAME, results)
        write_text(out / TABLES, study_text(results))
        return out

    def _measuring(self, label: str) -> list[Measuring]:
        spec, drawn = self.spec, self.spec.drawn[label]
        samples = spec.samples or self.scale.settings.samples
        return [
            Measuring(
                self.scale,
                self.models[label],
                seed,
                self.steps,
                samples,
                spec.match_entropy,
                drawn.order,
                drawn.temperature,
            )
            for seed in range(self.seeds)
        ]

    def _recipes(self, run: str) -> list[TrainingRecipe]:
        return chain_of_recipes(run, self.scale, 0, self.places)

    def _result(self, judge: str, each: Mapping[str, Sequence[Evaluation]]) -> Reproduction:
        """`each`: label -> all seeds by themselves."""
        names = {one.model: label for label, one in self.spec.drawn.items()}
        evaluations = [over_seeds(seeds) for seeds in each.values()]
        wanted = self.spec.reference
        reference = wanted if wanted is not None and wanted in each else next(iter(each))
        others = {label: seeds for label, seeds in each.items() if label != reference} if self.seeds > 1 else {}
        return Reproduction(
            title=self.spec.title,
            shows=self.spec.shows,
            scale=self.scale.title,
            about=self.scale.settings.about,
            equal=_RULES[self.spec.equal],
            seeds=self.seeds,
            judge=evaluations[0].judge or judge,
            evaluations=evaluations,
            reference=reference,
            ratios={label: ratios_over_seeds(seeds, each[reference]) for label, seeds in others.items()},
            steps=self.steps,
            trained=[self._trained(label, run) for label, run in self.models.items()],
            published=self.spec.published.get(self.scale.name, {}),
            absent={names[run]: why for run, why in self.scale.settings.absent.items() if run in names},
        )

    def _trained(self, label: str, run: str) -> Trained:
        if is_perfect(run):
            return Trained(label, "none: exact predictions", 0, 0, 0.0)
        chain, recipes = self.scale.chain(run), self._recipes(run)
        spent = budget(recipes)
        seconds = sum(
            read_json(self.places.run(one.name, seed) / FINISHED)["seconds"]
            for one in chain
            for seed in range(self.seeds)
        )
        stages = ", ".join(
            f"{one.command} {recipe.train.steps:,} × {recipe.train.batch_size}"
            for one, recipe in zip(chain, recipes, strict=True)
        )
        return Trained(label, stages, spent.training, spent.distillation, seconds / 60)


def _write(out: Path, result: Reproduction, each: Sequence[Evaluation]) -> None:
    """`each`: all seeds by themselves, for the record."""
    save(quality_figure(result), out / "quality.png")
    if (validity := validity_figure(result)) is not None:
        save(validity, out / "validity.png")
    save_fronts(result.evaluations, result.steps, out)
    for table in aligned_tables(result.evaluations, result.steps):
        write_text(out / f"{table.name}.csv", csv_text(table))
    write_json(out / "results.json", [evaluation.as_data() for evaluation in result.evaluations])
    write_json(out / "seeds.json", [evaluation.as_data() for evaluation in each])
    write_text(out / "report.html", reproduction_report(result))
