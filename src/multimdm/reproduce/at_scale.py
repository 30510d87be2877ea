"""What every specification that trains models has, and the stages that lead to them."""

from dataclasses import dataclass
from pathlib import Path

from multimdm.evaluation.perfect_models import is_perfect
from multimdm.reproduce.places import Places
from multimdm.reproduce.scale import Scale
from multimdm.reproduce.spec import Spec
from multimdm.reproduce.stages import Stage, preparing_stage, training_stage


@dataclass(frozen=True)
class AtScale:
    """A specification at a scale, with seeds 0, 1, ... and a place."""

    name: str
    spec: Spec
    scale: Scale
    seeds: int
    places: Places
    text: tuple[Path, ...] = ()
    """Of the user's own, for a scale that wants it."""

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
        stage = preparing_stage(self.scale, self.places, self.text)
        return {stage.name: stage}

    def training(self, model: str, seed: int) -> dict[str, Stage]:
        """Name -> stage, of all runs that lead to a model."""
        stages = [training_stage(run, self.scale, seed, self.places) for run in self.scale.chain(model, self.name)]
        return {stage.name: stage for stage in stages}
