"""The conditional-entropy study (Fig. conditional_entropy): nothing is trained, and all scales are one."""

from dataclasses import dataclass
from pathlib import Path

from multimdm.evaluation.conditional_entropy import Study, run
from multimdm.report.entropy_figure import save_entropy_figure, study_title, write_csv
from multimdm.reproduce.models import Folders
from multimdm.reproduce.stages import Stage
from multimdm.training.overall import Overall

_COST = 300.0


@dataclass(frozen=True)
class EntropyStudy:
    """As `multimdm entropy` makes it."""

    name: str
    folders: Folders
    study: Study

    def check(self) -> None:
        """There is nothing to be wrong."""

    def stages(self) -> list[Stage]:
        """The draws."""
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
            save_entropy_figure(points, study_title(self.study), file.with_suffix(".png"))
            write_csv(points, file)

        return [Stage(self.name, (), _COST, file.exists, go, runs_network=False)]

    def write(self) -> Path:
        """The stage has written it."""
        return self.folders.results(self.name)
