"""Bodies that break the server's own description of its requests, by schemathesis (soak_bodies.py).

    PATH/TO/python benchmarks/soak_schemathesis.py NUM < openapi.json > bodies.jsonl

It is run by the Python that has schemathesis, which need not be the one that has multimdm: it would bring three dozen
packages into an environment that is pinned. A line is a path and a body in base64.
"""

import base64
import json
import sys
from typing import Any

import schemathesis  # pyright: ignore[reportMissingImports]
from hypothesis import HealthCheck, given, seed

from soak_bodies import SLOW_OR_LARGE, drawing

TOLERATED: Any = (*SLOW_OR_LARGE, HealthCheck.filter_too_much)


def main() -> None:
    """So many of each operation that takes a body; the same at every run."""
    num = int(sys.argv[1])
    for result in schemathesis.openapi.from_dict(json.load(sys.stdin)).get_all_operations():
        operation = result.ok()
        if operation.body:
            _write(operation, num)


def _write(operation: Any, num: int) -> None:
    @seed(0)
    @drawing(num, TOLERATED)
    @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def write(case: Any) -> None:
        content = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
        print(json.dumps([operation.path, base64.b64encode(content).decode()]))

    write()


if __name__ == "__main__":
    main()
