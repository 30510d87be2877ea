"""POST /v1/trace tells every step."""

import pytest


def test_every_step_is_told(live, served_models):
    body = {"prompt": "Lily raced", "length": 12, "steps": 4, "seed": 9, "candidates": 3}
    events = live.post("/v1/trace", body).events()
    assert [name for name, _ in events] == ["start", "step", "step", "step", "step", "done"]
    start, *steps, done = (data for _, data in events)
    assert start["given"] == [True, True] + [False] * 10
    assert [step["t"] for step in steps] == [1, 0.75, 0.5, 0.25]
    own = served_models["many"].model.complete("Lily raced", length=12, steps=4, seed=9, trace=True)
    assert done["text"] == own.texts[0]
    assert done["network_calls"] == 4
    names = {0: "clean", 1: "designated", 2: "other"}
    kinds = own.trace.kinds(served_models["many"].process)[:, 0].tolist()
    assert done["kinds"] == [[names[kind] for kind in row] for row in kinds]
    V = served_models["many"].process.vocab_size
    for step, states in zip(steps, own.trace.states[:, 0].tolist(), strict=False):
        for token, state in zip(step["tokens"], states, strict=True):
            assert token.get("mask") == (state - V if state >= V else None)
            if state >= V:
                shares = [share for _, share in token["candidates"]]
                assert len(shares) == 3
                assert shares == sorted(shares, reverse=True)
                assert token["confidence"] == shares[0]
            else:
                assert "candidates" not in token
                assert token["text"] == served_models["many"].model.token_name(state)


def test_gaps_anywhere(live):
    text = "Lily found a [MASK] [MASK]. She walked home with [MASK]."
    events = live.post("/v1/trace", {"prompt": text, "steps": 2, "model": "one", "sampler": "confidence"}).events()
    start, done = events[0][1], events[-1][1]
    assert [place for place, given in enumerate(start["given"]) if not given] == [3, 4, 10]
    assert done["text"].startswith("Lily found a ")
    assert all(kind != "other" for row in done["kinds"] for kind in row)  # there is but one mask


def test_gaps_and_more_to_come(live):
    start = live.post("/v1/trace", {"prompt": "[MASK] found", "length": 6, "steps": 1}).events()[0][1]
    assert start["given"] == [False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": "Lily raced", "length": 2}, "length must leave room after the prompt's 2 tokens"),
        ({"prompt": "Lily raced", "length": 1}, "prompt must fit into the length of 1"),
        ({"length": 49}, "length must be from 1 to 48; got 49"),
        ({"prompt": "[MASK] xyzzy"}, "xyzzy"),
        ({"candidates": 11}, "candidates"),
        ({"lenght": 3}, "did you mean 'length'?"),
    ],
)
def test_bad_requests(live, body, message):
    reply = live.post("/v1/trace", body)
    assert reply.status == 400
    assert message in reply.message
