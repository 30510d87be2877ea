"""A specification: which models a table or figure of the paper compares, and what the paper printed."""

from dataclasses import field
from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from multimdm.samplers.settings import Order
from multimdm.training.recipes import read_recipe
from multimdm.training.settings import STRICT, NonNegativeFloat, Positive
from multimdm.training.shipped import find_file

Kind = Literal["comparison", "conditional_entropy", "harness", "quickstart"]
Rule = Literal["stages", "total"]
Published = dict[str, tuple[float, ...]]
"""Label of a model -> GenPPL at each K, or per cent at each number of tokens per step."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class HarnessSettings:
    """Benchmarks of adapted models and of the base that they are adapters of."""

    base: str
    """What the base is called in the table."""
    tasks: tuple[str, ...]
    tps: tuple[Positive, ...] = (1, 2, 4)
    """Tokens per step."""
    gen_length: Positive | None = None
    """New tokens per answer; what each task asks for unless given."""
    block_length: Positive | None = None
    limit: Positive | None = None
    """Only the first so many items of each task."""
    examples: int | None = None
    """Worked examples before each item, in place of the task's own number."""
    include: str | None = None
    """Directory with task files of one's own."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Drawn:
    """A model of the scale, drawn in a way of its own."""

    model: str
    order: Order | None = None
    """The order of reveal; as the checkpoint advises unless given."""
    temperature: NonNegativeFloat | None = None
    """tau; as the checkpoint advises unless given, else 1."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Spec:
    """One table, figure or study."""

    title: str
    shows: str
    """Which tables and figures of the paper, by their labels."""
    kind: Kind = "comparison"
    """comparison: models by K. conditional_entropy: the study of Fig. conditional_entropy, which trains nothing.
    harness: benchmarks at 1, 2 and 4 tokens per step. quickstart: a comparison that is told as a story."""
    models: dict[str, str | Drawn] = field(default_factory=dict)
    """Label -> name of the model in the scale, with how it is drawn if that is to be said. Of a comparison on Tales
    also perfect models by their names (perfect:M=20,rho=0.5): what is lost without a network's mistakes."""
    limits: dict[str, str | Drawn] = field(default_factory=dict)
    """Label -> model beside which a quickstart shows the others, whatever its budget; it is drawn once."""
    match_entropy: bool = True
    """Whether a comparison matches the entropy of samples by temperature. Else each model is drawn once, as its label
    or its checkpoint says."""
    held_out: bool = True
    """Whether a comparison measures held-out text too: its NELBO and its recall in one step."""
    trajectories: bool = False
    """Whether a comparison keeps the way from noise to text of one sample at each K."""
    samples: Positive | None = None
    """Samples per measurement, instead of the scale's own number."""
    reference: str | None = None
    """Label of the model that the others are compared with seed by seed; the first unless given."""
    beside: dict[str, str] = field(default_factory=dict)
    """Label -> the model that this one is compared with, where it is not the reference."""
    equal: Rule | dict[Rule, tuple[str, ...]] = "stages"
    """What must be equal for all models, or rule -> labels of those for which it must. stages: the sequences of
    training, and those of distillation among the distilled. total: all sequences together."""
    steps: dict[str, tuple[Positive, ...]] = field(default_factory=dict)
    """Scale -> K, where they are not those of the scale."""
    published: dict[str, dict[str, Published]] = field(default_factory=dict)
    """Scale -> entropy-aligned or temperature-aligned -> what the paper printed."""
    harness: HarnessSettings | None = None
    """Settings of the kind harness."""

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        if (self.kind != "conditional_entropy") != bool(self.models):
            raise ValueError(f"models must be given unless the kind is conditional_entropy; the kind is {self.kind}")
        if (self.kind == "harness") != (self.harness is not None):
            raise ValueError(f"the section harness is for the kind harness, and needed there; the kind is {self.kind}")
        tables = self.harness.tasks if self.harness is not None else ("entropy-aligned", "temperature-aligned")
        labels = {*self.models, *([self.harness.base] if self.harness is not None else [])}
        if (self.kind == "quickstart") != bool(self.limits):
            raise ValueError(f"limits are for the kind quickstart, and needed there; the kind is {self.kind}")
        if both := [label for label in self.limits if label in self.models]:
            raise ValueError(f"a label must be that of a model or of a limit; '{both[0]}' is both")
        for label in (label for rule_labels in self.rules.values() for label in rule_labels):
            if label not in self.models:
                raise ValueError(f"equal must name labels of models; there is no '{label}'")
        if self.match_entropy and any(one.order or one.temperature is not None for one in self.drawn.values()):
            raise ValueError("order and temperature of models need match_entropy: false; temperatures would differ")
        if self.reference is not None and self.reference not in self.models:
            raise ValueError(f"reference must be the label of a model; there is no '{self.reference}'")
        for label, other in self.beside.items():
            if label not in self.models or other not in self.models or label == other:
                raise ValueError(f"beside must name two models; got '{label}' beside '{other}'")
        for scale, published in self.published.items():
            for table, rows in published.items():
                if table not in tables:
                    raise ValueError(f"published.{scale}: there is no table '{table}'; tables are {', '.join(tables)}")
                for label in rows:
                    if label not in labels:
                        raise ValueError(f"published.{scale}.{table}: there is no model with the label '{label}'")
        return self

    @property
    def drawn(self) -> dict[str, Drawn]:
        """Label -> model, all said; limits come last."""
        named = {**self.models, **self.limits}
        return {label: Drawn(model=one) if isinstance(one, str) else one for label, one in named.items()}

    @property
    def rules(self) -> dict[Rule, tuple[str, ...]]:
        """Rule -> labels of the models that must have equal budgets by it."""
        return self.equal if isinstance(self.equal, dict) else {self.equal: tuple(self.models)}


def read_spec(name: str) -> tuple[str, Spec]:
    """Its name and contents, from a file or by the name of one that comes with the package."""
    path: Path = find_file(name, "specification", "paper")
    return path.stem, read_recipe(path, Spec)
