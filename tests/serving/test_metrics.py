"""What /metrics shows is Prometheus's text format, to the letter, and counts right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import multimdm
from multimdm.serving.catalog import ServedModel
from multimdm.serving.metrics import Metrics
from support.exposition import read_exposition
from support.live_server import serving
from support.tiny_models import tales_model

SECONDS = "multimdm_answer_seconds"


def shown(metrics: Metrics) -> str:
    return metrics.render().decode()


def value(text: str, name: str, family: str | None = None, **labels: str) -> float:
    return read_exposition(text)[family or name].samples[name, frozenset(labels.items())]


@pytest.mark.parametrize(
    "broken",
    [
        "multimdm_x 1",
        "# HELP a b\n# TYPE a counter\na 1",
        "# HELP a b\n# TYPE c counter\nc 1\n",
        "# HELP a b\n# TYPE a counter\nc 1\n",
        "# HELP a b\n# TYPE a counter\na 1\na 2\n",
        '# HELP a b\n# TYPE a counter\na{x="q"q"} 1\n',
        '# HELP a b\n# TYPE a counter\na{x="\\q"} 1\n',
        "# HELP a b\n# TYPE a counter\na\n",
    ],
)
def test_the_reader_is_strict(broken):
    """Else the tests below would tell nothing."""
    with pytest.raises((AssertionError, KeyError)):
        read_exposition(broken)


def test_a_new_server():
    families = read_exposition(shown(Metrics()))
    assert families["multimdm_tokens_total"].samples == {("multimdm_tokens_total", frozenset()): 0}
    # Without labels now and with labels later would be two different series.
    assert families["multimdm_requests_total"].samples == {}
    assert all(family.text for family in families.values())
    assert {name for name, family in families.items() if family.kind == "counter"} == {
        name for name in families if name.endswith("_total")
    }


@given(st.fixed_dictionaries({"model": st.text(), "parameters": st.text()}))
def test_labels_hold_any_text(labels):
    metrics = Metrics()
    metrics.info("some", "What is served.", [labels])
    assert value(shown(metrics), "some", **labels) == 1


def test_answers_are_counted_by_path_and_status():
    metrics = Metrics()
    for status in (200, 200, 404):
        metrics.add_answer("/v1/models", status)
    assert value(shown(metrics), "multimdm_requests_total", path="/v1/models", status="200") == 2
    assert metrics.value("multimdm_requests_total") == 3


def test_servers_of_one_process_count_apart():
    first, second = Metrics(), Metrics()
    first.add("multimdm_tokens_total", 7)
    assert (first.value("multimdm_tokens_total"), second.value("multimdm_tokens_total")) == (7, 0)


@given(st.text())
def test_help_holds_any_text(text):
    metrics = Metrics()
    metrics.gauge("some", text, lambda: 2)
    assert value(shown(metrics), "some") == 2


def test_the_histogram_is_cumulative():
    metrics = Metrics()
    for seconds in (0.005, 0.01, 0.3, 100.0):
        metrics.observe_seconds(seconds)
    text = shown(metrics)
    counts = [value(text, f"{SECONDS}_bucket", SECONDS, le=le) for le in ("0.01", "0.25", "0.5", "30.0", "+Inf")]
    assert counts == [2, 2, 3, 3, 4]
    assert value(text, f"{SECONDS}_count", SECONDS) == 4
    assert value(text, f"{SECONDS}_sum", SECONDS) == pytest.approx(100.315)


def test_sums_do_not_stand_still():
    """With six digits, a busy day's seconds would hide what an answer adds."""
    metrics = Metrics()
    metrics.observe_seconds(1e6)
    metrics.observe_seconds(0.25)
    metrics.add("multimdm_tokens_total", 10**15)
    metrics.add("multimdm_tokens_total", 1)
    assert value(shown(metrics), f"{SECONDS}_sum", SECONDS) == 1e6 + 0.25
    assert value(shown(metrics), "multimdm_tokens_total") == 10**15 + 1


def test_a_server_shows_it():
    name = 'a "quoted" name\\'
    with serving({name: ServedModel.of(name, tales_model())}) as live:
        assert live.post("/v1/completions", {"prompt": "Lily", "steps": 3}).status == 200
        reply = live.send("GET", "/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = reply.body.decode()
    assert value(text, "multimdm_requests_total", path="/v1/completions", status="200") == 1
    assert value(text, "multimdm_network_calls_total") == 3
    assert value(text, f"{SECONDS}_count", SECONDS) == 1
    assert value(text, "multimdm_build_info", version=multimdm.__version__) == 1
    size = sum(weights.numel() for weights in tales_model().network.parameters())
    assert value(text, "multimdm_model_info", model=name, parameters=str(size)) == 1
    assert value(text, "multimdm_start_time_seconds") > 1.7e9
    assert value(text, "multimdm_queue_requests") == 0
