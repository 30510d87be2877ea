"""What `multimdm reproduce` runs: a specification at a scale, and the stages that lead to its models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from multimdm.evaluation.perfect_models import is_perfect
from multimdm.reproduce.models import Folders
from multimdm.reproduce.scale import Scale
from multimdm.reproduce.spec import Spec
from multimdm.reproduce.stages import Stage, preparing_stage, training_stage


@runtime_checkable
class Experiment(Protocol):
    """A specification at a scale."""

    @property
    def folders(self) -> Folders:
        """Where everything is kept."""
        ...

    def check(self) -> None:
        """Refuse what is wrong before anything is done."""
        ...

    def stages(self) -> list[Stage]:
        """The stages, in an order in which they can be done."""
        ...

    def write(self) -> Path:
        """Tables and figures, when all stages are done; returns their directory."""
        ...


@dataclass(frozen=True)
class ModelExperiment:
    """What all experiments on trained models share."""

    name: str
    spec: Spec
    scale: Scale
    seeds: tuple[int, ...]
    folders: Folders
    text: tuple[Path, ...] = ()
    """Files of the user's own text, for a scale that wants it."""

    @property
    def models(self) -> dict[str, str]:
        """Label -> model, of those that the scale has, and of perfect ones, which need no training."""
        return {
            label: one.model if is_perfect(one.model) else self.scale.run(one.model, self.name).name
            for label, one in self.spec.drawn.items()
            if one.model not in self.scale.settings.absent
        }

    def preparing(self) -> dict[str, Stage]:
        """Name -> stage, of what comes before all training."""
        if self.scale.settings.prepare is None:
            return {}
        stage = preparing_stage(self.scale, self.folders, self.text)
        return {stage.name: stage}

    def training(self, model: str, seed: int) -> dict[str, Stage]:
        """Name -> stage, of all runs that lead to a model."""
        stages = [training_stage(run, self.scale, seed, self.folders) for run in self.scale.chain(model, self.name)]
        return {stage.name: stage for stage in stages}
