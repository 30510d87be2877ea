"""Log-probabilities of tokens, in the shapes that OpenAI's client knows, against the network itself."""

import math

import openai
import pytest
import torch

from multimdm.data.tales import tales_tokenizer
from multimdm.pipeline import Model
from multimdm.process import Uniform
from multimdm.serving.catalog import ServedModel
from support.live_server import serving
from support.tiny_models import TALES, tiny_dit

PROMPT = "Lily raced to the harbor"


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_in_one_call_they_are_the_networks_own(client, served_models, temperature):
    """One mask: the state before the only call is known. The temperature of the drawing changes nothing."""
    served = served_models["one"]
    answer = client.completions.create(
        model="one", prompt=PROMPT, max_tokens=6, seed=3, temperature=temperature, logprobs=2, extra_body={"steps": 1}
    )
    own = served.model.complete(PROMPT, new_tokens=6, steps=1, temperature=temperature, seed=3).ids[0]
    state = own.clone()
    state[5:] = served.process.vocab_size
    with torch.no_grad():
        logits = served.model.network(state[None], torch.tensor([1.0]))
    expected = torch.log_softmax(logits[0, 5:], -1)
    found = answer.choices[0].logprobs
    length = len(found.tokens)
    assert 0 < length <= 6
    assert found.token_logprobs == pytest.approx(expected.gather(-1, own[5:, None])[:length, 0].tolist(), abs=1e-4)
    for alternatives, row in zip(found.top_logprobs, expected, strict=False):
        assert sorted(alternatives.values(), reverse=True) == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)
    assert "".join(found.tokens) == answer.choices[0].text
    assert found.text_offset == [len("".join(found.tokens[:i])) for i in range(length)]


@pytest.mark.parametrize("sampler", ["ancestral", "confidence"])
@pytest.mark.parametrize("model", ["many", "one"])
def test_a_token_has_the_probability_of_the_call_that_revealed_it(live, client, model, sampler):
    """The trace of the same request tells what every call said of every position that was open."""
    settings = {"steps": 5, "sampler": sampler, "seed": 4}
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, logprobs=3, extra_body=settings)
    events = live.post("/v1/trace", {"model": model, "prompt": PROMPT, "length": 13, "candidates": 10, **settings})
    last = {}
    for name, data in events.events():
        if name == "step":
            last |= {place: token for place, token in enumerate(data["tokens"]) if "confidence" in token}
    found = answer.choices[0].logprobs
    for number, alternatives in enumerate(found.top_logprobs):
        seen = last[5 + number]
        assert math.exp(max(alternatives.values())) == pytest.approx(seen["confidence"], abs=1e-4)
        names = dict(reversed(seen["candidates"]))
        chosen = found.tokens[number].strip()
        if chosen in names:
            assert math.exp(found.token_logprobs[number]) == pytest.approx(names[chosen], abs=1e-4)


@pytest.mark.parametrize("sampler", ["ancestral", "left_to_right"])
@pytest.mark.parametrize("stop", [None, "."])
def test_pieces_of_a_stream_add_up(client, sampler, stop):
    body = {"model": "many", "prompt": PROMPT, "seed": 3, "n": 2, "logprobs": 1, "stop": stop}
    body["extra_body"] = {"steps": 12, "sampler": sampler}
    whole = client.completions.create(**body)
    pieces: list[list] = [[], []]
    texts = ["", ""]
    for chunk in client.completions.create(**body, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.logprobs is not None:
                pieces[choice.index] += zip(
                    *(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.text_offset), strict=True
                )
                assert len("".join(choice.logprobs.tokens)) <= len(texts[choice.index])
    for choice, found in zip(whole.choices, pieces, strict=True):
        told = choice.logprobs
        assert found == list(zip(told.tokens, told.token_logprobs, told.text_offset, strict=True))
        assert all(offset < len(choice.text) for offset in told.text_offset)
        assert "".join(told.tokens).startswith(choice.text)


def test_chat_has_a_shape_of_its_own(client):
    said = [{"role": "user", "content": PROMPT}]
    chat = client.chat.completions.create(
        model="many", messages=said, seed=1, max_tokens=6, logprobs=True, top_logprobs=3
    )
    plain = client.completions.create(model="many", prompt=PROMPT, seed=1, max_tokens=6, logprobs=3)
    content, told = chat.choices[0].logprobs.content, plain.choices[0].logprobs
    assert [one.token for one in content] == told.tokens
    assert [one.logprob for one in content] == told.token_logprobs
    assert [bytes(one.bytes).decode() for one in content] == told.tokens
    for one, alternatives in zip(content, told.top_logprobs, strict=True):
        assert len(one.top_logprobs) == 3
        assert {best.token: best.logprob for best in reversed(one.top_logprobs)} == alternatives
    alone = client.chat.completions.create(model="many", messages=said, seed=1, max_tokens=6, logprobs=True)
    assert all(one.top_logprobs == [] for one in alone.choices[0].logprobs.content)
    assert client.chat.completions.create(model="many", messages=said, max_tokens=6).choices[0].logprobs is None
    streamed = client.chat.completions.create(
        model="many", messages=said, seed=1, max_tokens=6, logprobs=True, top_logprobs=3, stream=True
    )
    parts = [chunk.choices[0].logprobs for chunk in streamed]
    assert [one for part in parts if part is not None for one in part.content] == content


def test_without_masks_the_last_call_decides():
    V = TALES.vocab_size
    model = Model(tiny_dit(V, 0, 48), Uniform(V), tales_tokenizer(TALES))
    with serving({"uniform": ServedModel.of("uniform", model)}) as live:
        body = {"prompt": PROMPT, "max_tokens": 6, "seed": 2, "logprobs": 1, "steps": 3}
        told = live.post("/v1/completions", body).data["choices"][0]["logprobs"]
        trace = live.post("/v1/trace", {"prompt": PROMPT, "length": 11, "seed": 2, "steps": 3}).events()
    last = [data for name, data in trace if name == "step"][-1]["tokens"][5:]
    best = [max(alternatives.values()) for alternatives in told["top_logprobs"]]
    assert [math.exp(one) for one in best] == pytest.approx(
        [token["confidence"] for token in last[: len(best)]], abs=1e-4
    )


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("completions", {"prompt": "Lily", "logprobs": 21}, "logprobs must be from 0 to 20; got 21"),
        ("completions", {"prompt": "Lily", "logprobs": -1}, "logprobs must be from 0 to 20; got -1"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs must be from 0 to 20; got 21"),
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs needs logprobs true; got 2 without it"),
        ("completions", {"max_new_tokens": 3}, "max_new_tokens: there is no such field; here it is max_tokens"),
        ("completions", {"num_return_sequences": 3}, "num_return_sequences: there is no such field; here it is n"),
        ("trace", {"num_inference_steps": 3}, "num_inference_steps: there is no such field; here it is steps"),
    ],
)
def test_what_is_refused(live, path, body, message):
    said = {"messages": [{"role": "user", "content": "Lily"}]} if path.startswith("chat") else {}
    reply = live.post(f"/v1/{path}", {**said, **body})
    assert reply.status == 400
    assert reply.message == message
