"""The conditional-entropy study (Fig. conditional_entropy): nothing is trained, and all scales are one."""

from dataclasses import dataclass
from pathlib import Path

from multimdm._files import write_text
from multimdm.evaluation.conditional_entropy import Study, run
from multimdm.report.entropy_figure import entropy_figure, points_csv, study_title
from multimdm.report.style import save
from multimdm.reproduce.models import Folders
from multimdm.reproduce.stages import Stage
from multimdm.training.overall import Overall

_COST = 300.0


@dataclass(frozen=True)
class EntropyStudy:
    """The study that `multimdm entropy` makes."""

    name: str
    folders: Folders
    study: Study

    def check(self) -> None:
        """There is nothing to be wrong."""

    def stages(self) -> list[Stage]:
        """One stage: the draws."""
        file = self.folders.results(self.name) / "entropy.csv"

        def go(overall: Overall) -> None:
            overall.begin(self.name, "conditional entropy")
            finished = 0

            def watch(draws: int) -> None:
                nonlocal finished
                finished += draws
                overall.done(min(1.0, finished / self.study.samples), "")

            points = list(run(self.study, watch))
            file.parent.mkdir(parents=True, exist_ok=True)
            save(entropy_figure(points, study_title(self.study)), file.with_suffix(".png"))
            write_text(file, points_csv(points))

        return [Stage(self.name, (), _COST, file.exists, go, runs_network=False)]

    def write(self) -> Path:
        """The stage has written it."""
        return self.folders.results(self.name)
