"""What the quickstart trains: a masked model, continued with one mask and with many, and both distilled.

The two branches have equal budgets at every stage, so that the number of masks is what differs. A third one goes beyond
the paper: as many steps as each of the others has in all, on quantile noise, the training of its teacher included.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from multimdm.objectives import ConsistencySettings, Ramp
from multimdm.training.building import adapt_job, distill_job, pretrain_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.job import Job
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe
from multimdm.training.settings import LogSettings, NetworkSettings, ProcessChoice, TrainSettings

MASKS = 20
BUCKETS = 256
"""Masks of quantile noise: buckets of [0, 1)."""


@dataclass(frozen=True)
class Budget:
    """How much is done of everything."""

    pretrain: int
    """Steps of the masked model from random weights."""
    continued: int
    """Steps of each branch after that."""
    distilled: int
    """Steps of the distillation of each branch; a multiple of the five rounds."""
    teacher: int
    """Steps of the autoregressive model, by whose numbers quantile noise draws."""
    samples: int
    """Stories per measurement."""
    steps: tuple[int, ...] = (1, 2, 4, 8, 16)
    """K."""
    temperatures: tuple[float, ...] = (0.8, 1.0, 1.2)
    """Of the perplexity-entropy curves."""
    checkpoint_every: int = 100
    batch: int = 32
    """Stories per step, in every stage."""
    validation: int = 256
    """Stories per validation."""

    @property
    def total(self) -> int:
        """Steps of a branch in all, and of quantile noise with its teacher."""
        return self.pretrain + self.continued + self.distilled


FULL = Budget(pretrain=1200, continued=500, distilled=300, teacher=500, samples=64)
FAST = Budget(
    pretrain=200,
    continued=80,
    distilled=40,
    teacher=80,
    samples=24,
    steps=(1, 2, 4),
    temperatures=(0.8, 1.0),
    checkpoint_every=40,
)


@dataclass(frozen=True)
class Stage:
    """One training run."""

    name: str
    """Of its directory."""
    label: str
    """In figures and tables."""
    says: str
    """What it is, in a line."""
    steps: int
    cost: float
    """Of a step, beside one of masked pretraining: for the estimate of the time left."""
    job: Callable[[Path], Job] = field(repr=False)
    """Given the directory of all stages."""


def stages(budget: Budget, seed: int) -> list[Stage]:
    """In the order in which they are run."""

    def train(steps: int, rate: float, **more: object) -> TrainSettings:
        common = {"steps": steps, "batch_size": budget.batch, "learning_rate": rate, "warmup": min(100, steps // 10)}
        return TrainSettings(**{**common, "ema": 0.995, "seed": seed, **more})  # pyright: ignore[reportArgumentType]

    log = LogSettings(
        every=25,
        validate_every=max(100, budget.pretrain // 4),
        validation_sequences=budget.validation,
        validation_draws=2,
        sample_every=0,
        checkpoint_every=budget.checkpoint_every,
        keep=1,
        tensorboard=False,
    )
    quiet_log = LogSettings(**{**vars(log), "validate_every": 0})
    network = NetworkSettings(size="tiny", dropout=0.0, absolute_positions=True, embedding_std=1.0, copying_start=True)

    def pretrain(folder: Path) -> Job:
        recipe = PretrainRecipe(
            system="mdlm", network=network, train=train(budget.pretrain, 2e-3, decay="cosine", final_rate=0.3), log=log
        )
        return pretrain_job(recipe, "mdlm-start")

    def adapt(name: str, masks: int) -> Callable[[Path], Job]:
        def job(folder: Path) -> Job:
            recipe = AdaptRecipe(
                init=str(folder / "mdlm-start" / "model"),
                process=ProcessChoice(num_masks=masks),
                conditioning="none" if masks == 1 else "sigma",
                identification=Ramp(end=0.5),
                train=train(budget.continued, 1e-3, decay="cosine"),
                log=log,
            )
            return adapt_job(recipe, name)

        return job

    def teach(folder: Path) -> Job:
        recipe = PretrainRecipe(
            system="ar", network=network, train=train(budget.teacher, 2e-3, decay="cosine"), log=quiet_log
        )
        return pretrain_job(recipe, "ar")

    def couple(folder: Path) -> Job:
        recipe = CoupleRecipe(
            init=str(folder / "ar" / "model"),
            process=ProcessChoice(num_masks=BUCKETS, rho=1000.0),
            at_one=0.35,
            surest=0.35,
            prompts=0.1,
            weight="even",
            train=train(budget.total - budget.teacher, 2e-3, decay="cosine"),
            log=quiet_log,
        )
        return couple_job(recipe, "quantile")

    def distil(name: str, init: str) -> Callable[[Path], Job]:
        def job(folder: Path) -> Job:
            recipe = DistillRecipe(
                init=str(folder / init / "model"),
                consistency=ConsistencySettings(delta=2.0**-6, rounds=5, teacher="rounds"),
                train=train(budget.distilled, 5e-4, ema=0.98),
                log=quiet_log,
            )
            return distill_job(recipe, name)

        return job

    steps = budget.continued
    return [
        Stage("mdlm-start", "start", "masked diffusion from random weights", budget.pretrain, 1.0, pretrain),
        Stage("mdlm", "MDLM", "continued with one mask: the control", steps, 1.0, adapt("mdlm", 1)),
        Stage("multimdm", "MultiMDM", f"continued with {MASKS} masks", steps, 1.15, adapt("multimdm", MASKS)),
        Stage(
            "mdlm-distilled",
            "MDLM distilled",
            "the control, distilled along shared-Gumbel paths",
            budget.distilled,
            1.5,
            distil("mdlm-distilled", "mdlm"),
        ),
        Stage(
            "multimdm-distilled",
            "MultiMDM distilled",
            "the multi-mask model, distilled along shared-Gumbel paths",
            budget.distilled,
            1.6,
            distil("multimdm-distilled", "multimdm"),
        ),
        Stage("ar", "AR", "an autoregressive model, the teacher of quantile noise", budget.teacher, 0.9, teach),
        Stage(
            "quantile",
            "quantile noise",
            "beyond the paper: noise that holds the numbers by which the teacher would draw the text",
            budget.total - budget.teacher,
            1.3,
            couple,
        ),
    ]
