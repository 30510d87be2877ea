"""A checkpoint under evaluation, and its results as far as they are known."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from multimdm.evaluation.alignment import Aligned, align_entropy
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.judges import Judge
from multimdm.evaluation.judges.base import Reader
from multimdm.evaluation.mask_reading import MaskReading, evaluate_mask_reading
from multimdm.evaluation.mauve import Mauve, measure_mauve
from multimdm.evaluation.measurement import Measurement, measure
from multimdm.evaluation.nelbo import Nelbo, evaluate_nelbo
from multimdm.evaluation.perfect_models import PerfectModel, is_perfect, open_perfect
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.quantile_models import (
    QuantileNoise,
    has_quantile_noise,
    one_step_bound,
    open_quantile_noise,
    recall_by_importance,
)
from multimdm.evaluation.real_text import RealFigures, RealText, describe_real
from multimdm.evaluation.recall import Recall, one_step_recall
from multimdm.evaluation.sampler_likelihood import SamplerLikelihood, StateOrder, evaluate_sampler_likelihood
from multimdm.evaluation.settings import Drawing, label_of
from multimdm.evaluation.shortfall import Shortfall, shortfall_of_sampler, shortfall_on_data
from multimdm.evaluation.store import Store
from multimdm.models.arithmetic import Precision
from multimdm.pipeline import Model, load
from multimdm.pipeline.about import kind_of, size_of
from multimdm.pipeline.files import fingerprint_of_checkpoint
from multimdm.pipeline.generation import check_fit, length_of
from multimdm.pipeline.hub import local_directory

Result = TypeVar("Result")
_STRINGS_OF_ALL = 32
"""A string from the prior serves all texts; one that a teacher proposes serves its own, so there are fewer of them."""


@dataclass(frozen=True)
class Subject:
    """A model that is measured; what was measured before, with equal weights and settings, is not done again."""

    label: str
    """What it is called in tables and figures."""
    path: str
    fingerprint: str
    model: Model
    judge: Judge | None
    drawing: Drawing
    store: Store
    quantile_noise: QuantileNoise | None = None
    """How the model's noise was tied to texts, with its teacher, if it was: for figures of held-out text."""
    given_temperature: float | None = None
    """Instead of the one that the checkpoint advises."""

    @classmethod
    def open(
        cls,
        path: str,
        label: str | None,
        drawing: Drawing,
        store: Store,
        device: str = "auto",
        precision: Precision = "auto",
    ) -> "Subject":
        """Load a checkpoint, or make a perfect model by its name; no judge yet, since judges are made for a model.

        What the drawing leaves open is as the checkpoint advises, from here on: results and requests name it.
        """
        if is_perfect(path):
            model = open_perfect(path)
            fingerprint = model.fingerprint
        else:
            directory = local_directory(path)
            model = load(directory, device, precision)
            # What was measured in another arithmetic is another result.
            fingerprint = fingerprint_of_checkpoint(directory) + ("" if precision == "auto" else f", {precision}")
        return cls(label or label_of(path), path, fingerprint, model, None, drawing.resolved(model.advice), store)

    @property
    def length(self) -> int:
        """The number of tokens of a sample."""
        return length_of(self.model, self.drawing.length)

    @property
    def temperature(self) -> float:
        """tau where none is given: as the checkpoint advises, else 1."""
        if self.given_temperature is not None:
            return self.given_temperature
        return self.drawing.temperature(self.model.advice)

    @property
    def description(self) -> str:
        """What kind of model it is."""
        size = self.model.size if isinstance(self.model, PerfectModel) else size_of(self.model.network)
        return f"{kind_of(self.model.process)}; {size}"

    def calls(self, steps: int) -> int:
        """Network calls per sample: K, or one per token if the model is autoregressive."""
        return steps if self.model.process is not None else self.length

    def check(self, steps: int) -> None:
        """Refuse settings that do not fit the model, before any work."""
        try:
            check_fit(self.model, self.length, self.drawing.sampling(self.calls(steps), 1.0))
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}") from None

    def measured(self, steps: int, temperature: float | int, progress: Progress = ignore) -> Measurement:
        """At K steps and temperature tau."""
        K, tau = self.calls(steps), float(temperature)
        return self.store.remembered(
            Measurement,
            self._measurement_request(K, tau),
            lambda: measure(self.model, self.judge, K, tau, self.drawing, progress),
        )

    def entropy(self, steps: int, temperature: float | int, progress: Progress = ignore) -> Estimate:
        """The entropy of samples at K and tau. No judge is asked; what was judged before is not drawn again."""
        K, tau = self.calls(steps), float(temperature)
        judged = self.store.known(Measurement, self._measurement_request(K, tau))
        return (judged or replace(self, judge=None).measured(K, tau, progress)).entropy

    def aligned(self, steps: int, target: float | int, progress: Progress = ignore) -> Aligned:
        """At K steps and the temperature that gives samples this entropy; every trial is remembered by itself."""
        K, H = self.calls(steps), float(target)
        return self.store.remembered(
            Aligned,
            self._request({"steps": K, "target": H, "judge": self._judge_fingerprint}),
            lambda: align_entropy(
                lambda tau: self.entropy(K, tau, progress), lambda tau: self.measured(K, tau, progress), H
            ),
        )

    def real(self, text: RealText, progress: Progress = ignore) -> RealFigures:
        """The same figures for real text."""
        depends_on = {"text": text.fingerprint, "judge": self._judge_fingerprint}
        return self.store.remembered(
            RealFigures, depends_on, lambda: describe_real(text, self.judge, progress=progress)
        )

    def nelbo(self, text: RealText, sequences: int, draws: int, progress: Progress = ignore) -> Nelbo:
        """The NELBO on real text."""
        seed, batch_size, noise = self.drawing.seed, self.drawing.batch_size, self.quantile_noise

        def compute() -> Nelbo:
            if noise is not None:
                return one_step_bound(self.model, noise, text, sequences, draws, seed, progress)
            return evaluate_nelbo(self.model, text, sequences, draws, seed, batch_size, progress)

        return self.store.remembered(Nelbo, {**self._held_out(text, sequences), "draws": draws, "seed": seed}, compute)

    def likelihood(
        self,
        text: RealText,
        order: StateOrder,
        steps: int,
        temperature: float | int,
        sequences: int,
        progress: Progress = ignore,
    ) -> SamplerLikelihood:
        """The exact likelihood of real text under a sampler whose order follows from the state."""
        tau, batch_size = float(temperature), self.drawing.batch_size
        return self.store.remembered(
            SamplerLikelihood,
            {**self._held_out(text, sequences), "order": order, "steps": steps, "temperature": tau},
            lambda: evaluate_sampler_likelihood(self.model, text, order, steps, tau, sequences, batch_size, progress),
        )

    def mask_reading(self, text: RealText, sequences: int, draws: int, progress: Progress = ignore) -> MaskReading:
        """What its masks tell it of real text."""
        seed, batch_size = self.drawing.seed, self.drawing.batch_size
        return self.store.remembered(
            MaskReading,
            {**self._held_out(text, sequences), "draws": draws, "seed": seed},
            lambda: evaluate_mask_reading(self.model, text, sequences, draws, seed, batch_size, progress),
        )

    def shortfall_on_data(self, text: RealText, sequences: int, progress: Progress = ignore) -> Shortfall:
        """How far its predictions are from the exact ones, where real text is noised."""
        seed, batch_size = self.drawing.seed, self.drawing.batch_size
        return self.store.remembered(
            Shortfall,
            {**self._held_out(text, sequences), "seed": seed},
            lambda: shortfall_on_data(self.model, text, sequences, seed, batch_size, progress),
        )

    def shortfall_of_sampler(self, steps: int, temperature: float | int, progress: Progress = ignore) -> Shortfall:
        """How far they are where it samples, at K steps and temperature tau."""
        tau = float(temperature)
        return self.store.remembered(
            Shortfall,
            self._request({"steps": steps, "temperature": tau}),
            lambda: shortfall_of_sampler(self.model, steps, tau, self.drawing, progress),
        )

    def recall(
        self, text: RealText, sequences: int, strings: int, temperature: float | int, progress: Progress = ignore
    ) -> Recall:
        """How probable real text is when it is written in one step."""
        seed, tau, noise = self.drawing.seed, float(temperature), self.quantile_noise
        strings = strings if noise is None else max(1, strings // _STRINGS_OF_ALL)

        def compute() -> Recall:
            if noise is not None:
                return recall_by_importance(self.model, noise, text, sequences, strings, tau, seed, progress)
            return one_step_recall(self.model, text, sequences, strings, tau, seed, progress)

        request = {**self._held_out(text, sequences), "strings": strings, "temperature": tau, "seed": seed}
        return self.store.remembered(Recall, request, compute)

    def _held_out(self, text: RealText, sequences: int) -> dict[str, Any]:
        """What a figure of held-out text depends on."""
        known = {"checkpoint": self.fingerprint, "text": text.fingerprint, "sequences": sequences}
        return known if self.quantile_noise is None else {**known, "teacher": self.quantile_noise.teacher.fingerprint}

    def mauve(
        self, reader: Reader, text: RealText, steps: int, temperature: float | int, progress: Progress = ignore
    ) -> Mauve:
        """MAUVE of samples at K steps and temperature tau, beside real text."""
        K, tau = self.calls(steps), float(temperature)
        request = {"steps": K, "temperature": tau, "reader": reader.fingerprint, "text": text.fingerprint}
        return self.store.remembered(
            Mauve,
            self._request(request),
            lambda: measure_mauve(self.model, reader, text, K, tau, self.drawing, progress),
        )

    def with_teacher(self, teacher: str | None = None) -> "Subject":
        """The subject with the teacher of its quantile noise: that of its lineage, or the one that is named."""
        if teacher is None and not has_quantile_noise(self.model):
            return self
        return replace(self, quantile_noise=open_quantile_noise(self.model, self.length, teacher))

    def remembered_picture(
        self, kind: type[Result], steps: int, temperature: float, compute: Callable[[], Result]
    ) -> Result:
        """Something else that depends on K, the temperature and the samples' settings alone."""
        request = self._request({"steps": self.calls(steps), "temperature": float(temperature)})
        return self.store.remembered(kind, request, compute)

    @property
    def _judge_fingerprint(self) -> str | None:
        return None if self.judge is None else self.judge.fingerprint

    def _measurement_request(self, K: int, tau: float) -> dict[str, Any]:
        return self._request({"steps": K, "temperature": tau, "judge": self._judge_fingerprint})

    def _request(self, depends_on: dict[str, Any]) -> dict[str, Any]:
        """What a result depends on."""
        drawing = {name: value for name, value in asdict(self.drawing).items() if name != "batch_size"}
        return {"checkpoint": self.fingerprint, "drawing": {**drawing, "length": self.length}, **depends_on}
