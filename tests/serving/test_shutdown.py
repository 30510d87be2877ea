"""A server that is asked to stop."""

import json
import threading
import time

import pytest

from multimdm.serving.limits import Limits
from support.live_server import SLOW, read, serving, wait_until


@pytest.mark.parametrize("stream", [False, True])
def test_grace_has_an_end(served_models, begin, slow_network, stream):
    with serving(served_models, grace=1) as live:
        begin(live, {**SLOW, "stream": stream})
        wait_until(lambda: live.running == 4)
        begun = time.monotonic()
        live.stop()
        wait_until(lambda: not live.service.engine.alive)
        assert time.monotonic() - begun < 4  # the work would take more than five seconds
        assert live.service.metrics.value("multimdm_sequences_total") == 0


def test_shutting_down_finishes_what_is_running(served_models, begin, slow_network):
    with serving(served_models, Limits(batch=1)) as live:
        asked = {**SLOW, "n": 1, "steps": 30}
        connections = [begin(live, asked), begin(live, {**asked, "stream": True})]
        wait_until(lambda: live.running == 1 and live.waiting == 1)
        live.stop()
        answers = [read(connection) for connection in connections]
        assert [status for status, _ in answers] == [200, 200]
        assert json.loads(answers[0][1])["choices"][0]["text"]
        assert answers[1][1].endswith(b"data: [DONE]\n\n")


def test_threads_end_with_the_server(served_models):
    with serving(served_models) as live:
        live.post("/v1/completions", {"prompt": "Lily", "steps": 1})
        assert any(thread.name == "multimdm-engine" for thread in threading.enumerate())
    # The session's own server, if it runs, has one too.
    wait_until(lambda: sum(thread.name == "multimdm-engine" for thread in threading.enumerate()) <= 1)
