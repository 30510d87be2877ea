"""How samples are drawn for measurements. Imports no torch."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath

from multimdm.samplers.advice import SamplingAdvice, resolve
from multimdm.samplers.settings import Sampling, SamplingRules


@dataclass(frozen=True)
class Drawing:
    """What all measurements of a comparison share; K and tau are theirs alone."""

    num: int = 128
    """Samples per measurement, as in the paper."""
    length: int | None = None
    """Tokens per sample; the longest that the network is made for unless given."""
    seed: int = 0
    """The same for all K and tau: common random numbers."""
    batch_size: int = 64
    """Sequences that go through the network together; changes no result."""
    law: SamplingRules = field(default_factory=SamplingRules)
    """The rest of what is drawn; what it leaves open is as the checkpoint advises."""

    def resolved(self, advice: SamplingAdvice | None) -> "Drawing":
        """The drawing with all that its law leaves open filled in, so that results can tell what was drawn."""
        sampling = resolve(Sampling(**vars(self.law)), advice)
        law = {one.name: getattr(sampling, one.name) for one in fields(SamplingRules)}
        return replace(self, law=SamplingRules(**law))

    def temperature(self, advice: SamplingAdvice | None) -> float:
        """tau where none is given: as advised, else 1."""
        tau = resolve(Sampling(**vars(self.law)), advice).temperature
        assert tau is not None
        return float(tau)

    def sampling(self, steps: int, temperature: float | int) -> Sampling:
        """The law of the samples at K and tau, checked."""
        sampling = Sampling(**{**vars(self.law), "steps": steps, "temperature": temperature})
        sampling.check()
        return sampling

    def check(self) -> None:
        """Raise a ValueError that names the field and its value."""
        wanted = (("num", self.num, 1), ("seed", self.seed, 0), ("batch_size", self.batch_size, 1))
        for name, value, least in (*wanted, *([("length", self.length, 1)] if self.length is not None else [])):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}")
        # With its own K, since a list of times fits no other.
        Sampling(**vars(self.law)).check()


def label_of(path: str) -> str:
    """The last part of a path; runs keep their model in a folder of that name, which tells nothing."""
    place = Path(path).resolve() if Path(path).exists() else PurePosixPath(path)
    return place.parent.name if place.name == "model" and place.parent.name else place.name or path
