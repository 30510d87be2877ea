"""The official client, unchanged, against a running server."""

import openai
import pytest

PROMPT = "Lily raced to the harbor"


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client):
    assert [model.id for model in client.models.list()] == ["many", "one"]
    assert client.models.retrieve("one").id == "one"
    with pytest.raises(openai.NotFoundError, match="there are many, one"):
        client.models.retrieve("gpt-5")


def test_a_completion_is_what_the_library_makes(client, served_models):
    answer = client.completions.create(
        model="many", prompt=PROMPT, max_tokens=12, n=3, seed=7, temperature=0.8, top_p=0.9, extra_body={"steps": 5}
    )
    own = served_models["many"].model.complete(PROMPT, num=3, length=17, steps=5, temperature=0.8, top_p=0.9, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice, text in zip(answer.choices, own.texts, strict=True):
        assert text.startswith(PROMPT + choice.text)  # up to an end mark
        assert choice.finish_reason in ("stop", "length")
        if choice.finish_reason == "length":
            assert text == PROMPT + choice.text
    assert answer.object == "text_completion"
    assert answer.model == "many"
    assert answer.usage.prompt_tokens == 5
    assert answer.usage.total_tokens == 5 + answer.usage.completion_tokens
    assert answer.model_extra["multimdm"]["network_calls"] <= 5


def test_seeds_are_kept_and_told(client):
    first = client.completions.create(model="many", prompt=PROMPT)
    seed = first.model_extra["multimdm"]["seed"]
    again = client.completions.create(model="many", prompt=PROMPT, seed=seed)
    assert again.choices[0].text == first.choices[0].text


@pytest.mark.parametrize("sampler", ["ancestral", "confidence"])
@pytest.mark.parametrize("model", ["many", "one"])
def test_a_stream_adds_up_to_the_answer(client, model, sampler):
    settings = {"model": model, "prompt": PROMPT, "n": 2, "seed": 3, "extra_body": {"steps": 12, "sampler": sampler}}
    whole = client.completions.create(**settings)
    pieces, ends, usage = ["", ""], {}, None
    for chunk in client.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            pieces[choice.index] += choice.text
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
        usage = chunk.usage or usage
    assert pieces == [choice.text for choice in whole.choices]
    assert ends == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_suffix_fills_the_middle(client, served_models):
    answer = client.completions.create(
        model="many", prompt="Lily found a", suffix=". She walked home with it.", max_tokens=2, seed=4
    )
    own = served_models["many"].model.infill("Lily found a [MASK] [MASK]. She walked home with it.", seed=4)
    assert own.texts[0].startswith("Lily found a" + answer.choices[0].text)
    assert answer.usage.prompt_tokens == 10


def test_stop_ends_the_text(client):
    whole = client.completions.create(model="many", prompt=PROMPT, seed=5, max_tokens=20).choices[0].text
    word = whole.split()[4]
    cut = client.completions.create(model="many", prompt=PROMPT, seed=5, max_tokens=20, stop=[word, "zebra"]).choices[0]
    assert cut.text == whole[: whole.index(word)]
    assert cut.finish_reason == "stop"
    streamed = client.completions.create(model="many", prompt=PROMPT, seed=5, max_tokens=20, stop=word, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == cut.text


def test_several_prompts_as_text_or_ids(client, served_models):
    texts = client.completions.create(model="many", prompt=[PROMPT, "Tom"], seed=6, max_tokens=4)
    encode = served_models["many"].tokenizer.encode
    ids = client.completions.create(model="many", prompt=[encode(PROMPT), encode("Tom")], seed=6, max_tokens=4)
    assert [choice.text for choice in texts.choices] == [choice.text for choice in ids.choices]
    one = client.completions.create(model="many", prompt=encode(PROMPT), seed=6, max_tokens=4)
    assert one.choices[0].text == texts.choices[0].text
    assert texts.usage.prompt_tokens == 6
    same = client.completions.create(model="many", prompt=["Tom", "Tom"], n=2, max_tokens=4)
    assert (len(same.choices), same.usage.prompt_tokens) == (4, 2)


def test_values_that_change_nothing_pass(client):
    client.completions.create(
        model="many", prompt=PROMPT, best_of=1, echo=False, frequency_penalty=0.0, presence_penalty=0, user="me"
    )
    said = [{"role": "user", "content": PROMPT}]
    client.chat.completions.create(
        model="many", messages=said, logprobs=False, frequency_penalty=0.0, tool_choice="none"
    )


def test_a_text_from_nothing(client, served_models):
    answer = client.completions.create(model="one", prompt="", seed=2)
    assert served_models["one"].model.sample(num=1, seed=2).texts[0].startswith(answer.choices[0].text)


def test_chat(client):
    said = [
        {"role": "system", "content": "Lily raced"},
        {"role": "user", "content": [{"type": "text", "text": "to the harbor"}]},
    ]
    answer = client.chat.completions.create(model="many", messages=said, seed=1, max_completion_tokens=6)
    plain = client.completions.create(model="many", prompt=PROMPT, seed=1, max_tokens=6)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == plain.choices[0].text
    assert answer.object == "chat.completion"
    streamed = list(client.chat.completions.create(model="many", messages=said, seed=1, max_tokens=6, stream=True))
    assert streamed[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == plain.choices[0].text
    assert streamed[-1].choices[0].finish_reason == plain.choices[0].finish_reason


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.NotFoundError, match="there are many, one"):
        client.completions.create(model="gpt-5", prompt=PROMPT)
    with pytest.raises(openai.BadRequestError, match="xyzzy"):
        client.completions.create(model="many", prompt="xyzzy")
    with pytest.raises(openai.BadRequestError, match="did you mean 'steps'"):
        client.completions.create(model="many", prompt=PROMPT, extra_body={"stepss": 3})
    with pytest.raises(openai.BadRequestError, match="frequency_penalty") as caught:
        client.completions.create(model="many", prompt=PROMPT, frequency_penalty=1.0)
    assert caught.value.param == "frequency_penalty"
    client.completions.create(model="many", prompt=PROMPT, frequency_penalty=0, user="me")
