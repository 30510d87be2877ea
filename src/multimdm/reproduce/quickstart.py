"""The quickstart: a comparison of one seed that is told as a story, from what models write to all that it rests on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from multimdm._checks import require
from multimdm._files import write_text
from multimdm.evaluation.store import write_json
from multimdm.report.pareto_figure import save_fronts
from multimdm.report.quickstart_report import Done, Story, figures, quickstart_report
from multimdm.report.style import save
from multimdm.reproduce.comparison import Comparison
from multimdm.reproduce.models import recipe_of
from multimdm.reproduce.stages import Stage, measuring_seconds, training_seconds


@dataclass(frozen=True)
class Quickstart(Comparison):
    """What `multimdm quickstart` runs."""

    def check(self) -> None:
        """Refuse what the story cannot tell."""
        super().check()
        seeds, models, limits = len(self.seeds), len(self.spec.models), len(self.spec.limits)
        require(seeds == 1, f"{self.name} is told of one seed; got {seeds}: give --seeds 1")
        require(
            (models, limits) == (5, 2) and len(self.scale.settings.judges) == 1,
            f"{self.name} must have five models (with one mask and with many; both distilled; with quantile noise), "
            f"two limits (the perfect network, the teacher) and one judge; it has {models} and {limits}",
        )

    def stages(self) -> list[Stage]:
        """All training, then all measuring."""
        return sorted(super().stages(), key=lambda stage: not stage.trains)

    @cached_property
    def story(self) -> Story:
        """What came out, when all stages are done."""
        (seed,), (judge,) = self.seeds, self.scale.settings.judges
        *evaluations, perfect, autoregressive = (one[judge] for (one,) in self.collected().values())
        runs = {run.name: run for model in self._trained_models() for run in self.scale.chain(model)}
        recipes = {name: recipe_of(run, self.scale, seed, self.folders) for name, run in runs.items()}
        done = [
            Done(name, run.says or run.command, recipes[name].train.steps, training_seconds(self.folders, name, seed))
            for name, run in runs.items()
        ]
        measured = f"{len(evaluations)} models and their limits at K = {', '.join(map(str, self.steps))}"
        seconds = sum(measuring_seconds(one, self.folders) for label in self.models for one in self.measuring(label))
        return Story(
            evaluations=evaluations,
            perfect=perfect,
            autoregressive=autoregressive,
            steps=self.steps,
            stages=[*done, Done("measure", measured, None, seconds)],
            trained={
                self.folders.run(name, seed): sum(recipe.train.steps for recipe in self.recipes(name)[:-1])
                for name, recipe in recipes.items()
                if recipe.log.validate_every > 0
            },
            distilled={
                label: self.folders.run(run, seed)
                for label, run in self.models.items()
                if run in runs and runs[run].command == "distill"
            },
            batch=recipes[next(iter(recipes))].train.batch_size,
            seed=seed,
        )

    def write(self) -> Path:
        """The page, its pictures and all figures; returns the directory."""
        out, story = self.folders.results(self.name), self.story
        out.mkdir(parents=True, exist_ok=True)
        drawn = figures(story)
        for name, (figure, _) in drawn.items():
            save(figure, out / f"{name}.png")
        save_fronts(story.evaluations, story.steps, out)
        measured = (*story.evaluations, story.perfect, story.autoregressive)
        write_json(out / "results.json", [evaluation.as_data() for evaluation in measured])
        write_text(out / "report.html", quickstart_report(story, drawn))
        return out

    def _trained_models(self) -> list[str]:
        return [model for model in self.models.values() if model in self.scale.runs]
