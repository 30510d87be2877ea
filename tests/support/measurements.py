"""Measurements that nobody made, for tests of what is done with them."""

from dataclasses import replace
from typing import Any

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement


def made_up(steps: int, share: Estimate, **others: Any) -> Measurement:
    """All its shares and distances are `share`, but for what is named."""
    plain = Measurement(
        steps=steps,
        nfe=steps,
        temperature=1.0,
        num=8,
        length=48,
        seed=0,
        judge="tales",
        gen_ppl=share,
        entropy=share,
        pooled_entropy=share,
        distinct=(share, share, share),
        duplicates=share,
        valid_sentences=share,
        valid_stories=share,
        token_distance=share,
        token_chance=0.25,
        pair_distance=share,
        pair_chance=0.3,
        texts=(),
    )
    return replace(plain, **others)
