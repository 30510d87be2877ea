"""Bodies that are no requests, or hardly any (soak.py).

Drawing one takes hypothesis and schemathesis five to twenty milliseconds, more than the server needs to refuse it. So a
corpus is drawn before the first client comes. Clients send all of it as it is, then changed pieces of it.
"""

import base64
import json
import random
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FIELDS = (
    *("model", "prompt", "suffix", "messages", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream"),
    *("stream_options", "steps", "sampler", "length", "candidates", "logprobs", "echo", "user", "best_of"),
)
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/trace")
# What pyright takes these members for depends on the order in which it reads files, so no type is claimed for them.
SLOW_OR_LARGE: Any = (HealthCheck.too_slow, HealthCheck.data_too_large)


def drawing(num: int, tolerated: Any = SLOW_OR_LARGE) -> settings:
    """So many examples, which are drawn and not shrunk, kept or timed."""
    return settings(
        max_examples=num, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=tolerated
    )


class Body(NamedTuple):
    """What is sent, and where."""

    path: str
    content: bytes


def by_hypothesis(num: int, seed: int) -> list[Body]:
    """Bytes, JSON of any shape, and fields of ours with values of any kind."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    )
    ours = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), values, max_size=5)
    served = {"prompt": st.text(max_size=12), "steps": st.integers(-1, 3), "max_tokens": st.integers(-1, 13)}
    nearly = st.fixed_dictionaries(served, optional={name: values for name in FIELDS if name not in served})
    found: list[bytes] = []

    @drawing(num)
    @given(st.binary(max_size=60) | values.map(_spelt) | ours.map(_spelt) | nearly.map(_spelt))
    def collect(body: bytes) -> None:
        found.append(body)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect()
    rng = random.Random(seed)
    return list(dict.fromkeys(Body(rng.choice(PATHS), content) for content in found))


def by_schemathesis(program: str, openapi: str, num: int) -> list[Body]:
    """What breaks the server's own description: so many of each operation, by the Python beside the program."""
    writer = Path(__file__).with_name("soak_schemathesis.py")
    command = [str(Path(program).absolute().with_name("python")), str(writer), str(num)]
    done = subprocess.run(command, input=openapi, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return list(dict.fromkeys(Body(path, base64.b64decode(content)) for path, content in lines))


def replayed(corpus: Sequence[Body], seed: int) -> Iterator[Body]:
    """Without an end: all of the corpus as it is, in a random order, then changed pieces of it."""
    rng = random.Random(seed)
    yield from rng.sample(corpus, len(corpus))
    while True:
        path, content = rng.choice(corpus)
        yield Body(path, worse(content, rng))


def _spelt(value: Any) -> bytes:
    return json.dumps(value).encode()


def worse(content: bytes, rng: random.Random) -> bytes:
    """With a byte or a piece changed."""
    data, here = bytearray(content), rng.randrange(len(content) + 1)
    if rng.random() < 0.5:
        data[here : here + 1] = bytes([rng.randrange(256)])
    else:
        data[here : here + rng.randint(0, 4)] = rng.choice(
            (b"", b"[" * 500, b"\xff", b'"', b"9" * 400, b"\\ud800", b"{")
        )
    return bytes(data)
