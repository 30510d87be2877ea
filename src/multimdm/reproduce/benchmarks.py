"""Benchmarks of adapted models beside their base (Tab. llada), at several numbers of tokens per step."""

from dataclasses import dataclass, replace
from pathlib import Path

from multimdm._checks import require
from multimdm._files import write_text
from multimdm.evaluation.harness.running import HarnessPlan, run_plan
from multimdm.evaluation.harness.scores import Scored
from multimdm.evaluation.settings import label_of
from multimdm.evaluation.store import Store, write_json
from multimdm.pipeline.answers import Answering
from multimdm.pipeline.ranks import sharing
from multimdm.report.harness_table import as_data, markdown
from multimdm.report.markdown import markdown_table
from multimdm.reproduce.experiment import ModelExperiment
from multimdm.reproduce.models import recipe_of
from multimdm.reproduce.spec import HarnessSettings
from multimdm.reproduce.stages import Stage, training_name
from multimdm.training.overall import Overall
from multimdm.training.schema import AdaptRecipe

_COST = 1000.0


@dataclass(frozen=True)
class Benchmarks(ModelExperiment):
    """Adapted models and their base, by tokens per step."""

    items: str | None = None
    """Directory with the items of the benchmarks; the Hub without it."""
    run_code: bool = False
    """Whether programs that the models write may be run."""

    @property
    def settings(self) -> HarnessSettings:
        """The harness settings of the specification."""
        assert self.spec.harness is not None
        return self.spec.harness

    def check(self) -> None:
        """Everything that can be wrong before a model is trained."""
        self._plan(0).check()
        self._base()

    def stages(self) -> list[Stage]:
        """Training, then one stage per seed for all tasks."""
        found = self.preparing()
        for seed in self.seeds:
            for model in self.models.values():
                found |= self.training(model, seed)
            stage = self._measuring(seed)
            found[stage.name] = stage
        return list(found.values())

    def write(self) -> Path:
        """The table of every seed, and what the paper printed."""
        out = self.folders.results(self.name)
        out.mkdir(parents=True, exist_ok=True)
        texts = []
        for seed in self.seeds:
            scores = self._scores(seed, None)
            write_json(out / f"seed-{seed}.json", as_data(scores))
            texts += [f"## {self.spec.title}, seed {seed}", "", f"{self.spec.shows}; scale {self.scale.title}", ""]
            texts += [markdown(scores), ""]
        published = self.spec.published.get(self.scale.name, {})
        for task, rows in published.items():
            printed = [[label, *(f"{value:g}" for value in values)] for label, values in rows.items()]
            header = ["model", *(f"TPS {tps}" for tps in self.settings.tps)]
            texts += [f"In the paper, {task}:", "", *markdown_table(header, printed), ""]
        write_text(out / "tables.md", "\n".join(texts))
        return out

    def _measuring(self, seed: int) -> Stage:
        file = self.folders.points / "done" / f"{self.name}-seed{seed}.json"
        name = f"benchmarks-{self.name}-seed{seed}"

        def go(overall: Overall) -> None:
            overall.begin(name, f"benchmarks, seed {seed}")
            with sharing() as ranks:
                scores = self._scores(seed, overall)
            if not ranks.is_main:
                return
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, as_data(scores))

        needs = tuple(training_name(model, seed) for model in self.models.values())
        return Stage(name, needs, _COST, file.exists, go)

    def _scores(self, seed: int, overall: Overall | None) -> list[Scored]:
        """What is in the store is not computed again."""
        models = {self._base(): self.settings.base}
        models |= {str(self.folders.model(run, seed)): label for label, run in self.models.items()}
        say = overall.say if overall is not None else lambda _: None
        found = run_plan(self._plan(seed), tuple(models), Store(self.folders.points), report=say)
        labels = {label_of(path): label for path, label in models.items()}
        return [replace(scored, model=labels[scored.model]) for scored in found]

    def _plan(self, seed: int) -> HarnessPlan:
        own, answering = self.settings, Answering(block_length=self.settings.block_length)
        if own.gen_length is not None:
            answering = replace(answering, gen_length=own.gen_length)
        return HarnessPlan(
            tasks=own.tasks,
            tps=own.tps,
            answering=answering,
            own_length=own.gen_length is None,
            data=self.items,
            include=own.include,
            limit=own.limit,
            examples=own.examples,
            run_code=self.run_code,
            seed=seed,
        )

    def _base(self) -> str:
        """The checkpoint that all models are adapters of."""
        found = set()
        for model in self.models.values():
            recipe = recipe_of(self.scale.run(model, self.name), self.scale, 0, self.folders)
            require(
                isinstance(recipe, AdaptRecipe),
                f"{self.name}: models must be made by adapt; '{model}' has the recipe of another command",
            )
            assert isinstance(recipe, AdaptRecipe)
            found.add(recipe.init)
        require(
            len(found) == 1, f"{self.name}: all models must be adapters of one base; got {', '.join(sorted(found))}"
        )
        return found.pop()
