"""How one sample came to be, step by step, as text: for pictures."""

from dataclasses import dataclass, replace
from functools import cache

from multimdm.evaluation.measurement import draw
from multimdm.evaluation.settings import Drawing
from multimdm.pipeline import Model

_MOST_STATES = 17
_MOST_POSITIONS = 64
"""More would not be looked at: of longer traces some steps are left out, of longer texts the end."""


@dataclass(frozen=True)
class Trajectory:
    """The states of the first sample, noise first."""

    steps: int
    times: tuple[float, ...]
    words: tuple[tuple[str, ...], ...]
    """The token at each time and position, or the number of the mask (nothing if there is but one)."""
    kinds: tuple[tuple[int, ...], ...]
    """CLEAN, DESIGNATED or OTHER of `multimdm.samplers.trace`."""
    several_masks: bool
    """Whether a mask can be another one than the designated."""
    temperature: float = 1.0


def trajectory(model: Model, steps: int, drawing: Drawing, temperature: float = 1.0) -> Trajectory | None:
    """The way of the first sample of the measurement with these settings. None without a process."""
    process = model.process
    if process is None:
        return None
    trace = draw(model, steps, temperature, replace(drawing, num=1), trace=True).trace
    if trace is None:
        return None
    kept = sorted({round(k * steps / min(steps, _MOST_STATES - 1)) for k in range(min(steps, _MOST_STATES - 1) + 1)})
    states = trace.states[kept, 0, :_MOST_POSITIONS].tolist()
    kinds = trace.kinds(process)[kept, 0, :_MOST_POSITIONS].tolist()
    V = process.vocab_size
    several = process.num_masks > 1

    @cache
    def word(state: int) -> str:
        if state >= V:
            return str(state - V) if several else ""
        return model.token_name(state)

    return Trajectory(
        steps=steps,
        times=tuple(trace.times[kept, 0].tolist()),
        words=tuple(tuple(map(word, row)) for row in states),
        kinds=tuple(tuple(row) for row in kinds),
        several_masks=several,
        temperature=temperature,
    )
