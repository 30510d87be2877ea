"""Bodies that are no requests, or hardly any (soak.py)."""

import json
import random
import warnings
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FIELDS = (
    *("model", "prompt", "suffix", "messages", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream"),
    *("stream_options", "steps", "sampler", "length", "candidates", "logprobs", "echo", "user", "best_of"),
)


def malformed_bodies(num: int, seed: int) -> list[bytes]:
    """From hypothesis: bytes, JSON of any shape, and fields of ours with values of any kind."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    )
    ours = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), values, max_size=5)
    served = {"prompt": st.text(max_size=12), "steps": st.integers(-1, 3), "max_tokens": st.integers(-1, 13)}
    nearly = st.fixed_dictionaries(served, optional={name: values for name in FIELDS if name not in served})
    found: list[bytes] = []

    @settings(
        max_examples=num,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.binary(max_size=60) | values.map(_spelt) | ours.map(_spelt) | nearly.map(_spelt))
    def collect(body: bytes) -> None:
        found.append(body)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect()
    random.Random(seed).shuffle(found)
    return found


def _spelt(value: Any) -> bytes:
    return json.dumps(value).encode()


def worse(body: bytes, rng: random.Random) -> bytes:
    """Half of them as they are, half with a byte or a piece changed."""
    if not body or rng.random() < 0.5:
        return body
    data, here = bytearray(body), rng.randrange(len(body))
    if rng.random() < 0.5:
        data[here] = rng.randrange(256)
    else:
        data[here : here + rng.randint(0, 4)] = rng.choice(
            (b"", b"[" * 500, b"\xff", b'"', b"9" * 400, b"\\ud800", b"{")
        )
    return bytes(data)
