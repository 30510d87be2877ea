"""Too much work: a full queue, slow and large bodies, long prompts."""

import http.client
import threading
from contextlib import closing, suppress

from multimdm.data.tokenizer import Tokenizer
from multimdm.serving.limits import Limits
from support.live_server import SLOW, read, serving, wait_until


def test_a_full_queue_says_when_to_come_back(served_models, begin, slow_network):
    with serving(served_models, Limits(batch=2, queue=2, max_n=4)) as live:
        first = begin(live, SLOW)
        wait_until(lambda: live.running == 2)
        others = [begin(live, {**SLOW, "n": 1, "steps": 1}) for _ in range(2)]
        wait_until(lambda: live.waiting == 2)
        reply = live.post("/v1/completions", {"prompt": "Lily"})
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.data["error"]["code"] == "queue_full"
        assert live.post("/v1/trace", {"prompt": "Lily"}).status == 429
        assert live.service.metrics.value("multimdm_rejected_total") == 2
        first.close()  # whoever waits behind it is served
        assert [read(connection)[0] for connection in others] == [200, 200]
        assert live.post("/v1/completions", {"prompt": "Lily"}).status == 200


def test_slow_and_large_bodies(served_models):
    with serving(served_models, Limits(max_body=1000, body_seconds=0.3)) as live:
        assert live.post("/v1/completions", {"prompt": "Lily " * 300}).status == 413
        with closing(http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)) as connection:
            pieces = (b"x" * 100 for _ in range(50))  # without a length, in chunks
            json_body = {"Content-Type": "application/json"}
            # The server answers and hangs up once it has seen enough: the rest of the body may meet a closed door.
            with suppress(ConnectionResetError, BrokenPipeError):
                connection.request("POST", "/v1/completions", pieces, json_body, encode_chunked=True)
            assert connection.getresponse().status == 413
        with closing(http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)) as connection:
            connection.putrequest("POST", "/v1/completions")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", "50")
            connection.endheaders(b'{"prompt"')
            assert connection.getresponse().status == 408


def test_prompts_are_encoded_one_by_one_while_others_are_heard(served_models, begin, monkeypatch):
    usual, inside, most, heard, go_on = Tokenizer.encode, [], [], [], threading.Event()

    def slow(self, text):
        inside.append(text)
        most.append(len(inside))
        heard.append(go_on.wait(10))
        inside.remove(text)
        return usual(self, text)

    with serving(served_models) as live:
        monkeypatch.setattr(Tokenizer, "encode", slow)
        asked = [begin(live, {"prompt": "Lily", "steps": 1}) for _ in range(3)]
        wait_until(lambda: bool(inside))
        assert live.send("GET", "/healthz").status == 200
        go_on.set()
        assert [read(connection)[0] for connection in asked] == [200] * 3
    assert max(most) == 1
    assert all(heard)  # the pulse was felt while a prompt was encoded, not afterwards
