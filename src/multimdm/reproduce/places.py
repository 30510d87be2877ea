"""Where everything of a scale is kept. Specifications share models and measurements: a model has one place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Below the directory of one scale."""

    root: Path

    @property
    def data(self) -> Path:
        """What was prepared from the user's text."""
        return self.root / "data"

    @property
    def points(self) -> Path:
        """Measurements."""
        return self.root / "points"

    @property
    def locks(self) -> Path:
        """One file for each stage, held by the process that works on it."""
        return self.root / "locks"

    def run(self, name: str, seed: int) -> Path:
        """Of a model in training."""
        return self.root / f"seed-{seed}" / name

    def model(self, name: str, seed: int) -> Path:
        """Of a trained model."""
        return self.run(name, seed) / "model"

    def results(self, spec: str) -> Path:
        """Tables, figures and the report of a specification."""
        return self.root / "results" / spec
