"""The learning rate of every step."""

import math

from multimdm.training.settings import TrainSettings


def learning_rate(step: int, train: TrainSettings) -> float:
    """Of the step after `step` steps: a linear warm-up, then constant or half a cosine."""
    peak = train.learning_rate
    if step < train.warmup:
        return peak * (step + 1) / train.warmup
    if train.decay == "constant":
        return peak
    done = (step - train.warmup) / max(1, train.steps - train.warmup)
    return peak * (train.final_rate + (1 - train.final_rate) * (1 + math.cos(math.pi * min(1.0, done))) / 2)
