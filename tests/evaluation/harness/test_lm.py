"""A model of ours behind the interface of lm-evaluation-harness."""

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from multimdm.evaluation.harness.lm import MultiMDM
from multimdm.evaluation.likelihood import log_likelihood_bound
from multimdm.pipeline import Model, Run
from multimdm.pipeline.answers import Answering, answer
from multimdm.process import MultiMask
from support.tiny_llada import VOCABULARY, chat_tokenizer, masks_of, tiny_llada, write_llada


def tiny_model(template: str | None = None) -> Model:
    return Model(tiny_llada(mask_rows=(36, 37)), MultiMask(VOCABULARY, 2), chat_tokenizer(template))


def asked(*prompts: str, **wishes) -> list[Instance]:
    return [Instance("generate_until", {}, (prompt, {"until": [], **wishes}), 0) for prompt in prompts]


def told(*pairs: tuple[str, str]) -> list[Instance]:
    return [Instance("loglikelihood", {}, pair, 0) for pair in pairs]


def test_it_is_registered_and_made_from_a_string(tmp_path):
    write_llada(tmp_path / "base", tiny_llada(), chat_tokenizer())
    made = get_model("multimdm").create_from_arg_string(
        f"checkpoint={tmp_path / 'base'},gen_length=8,tps=2,draws=3", {"batch_size": 2, "device": "cpu"}
    )
    assert isinstance(made, MultiMDM)
    assert (made.answering.num_steps, made.draws, made.batch_size) == (4, 3, 2)
    assert made.get_model_info()["tps"] == 2


def test_answers_are_those_of_the_pipeline_in_any_batch_size():
    model, prompts = tiny_model(), ["1+1=", "abc", "12+3=", "q"]
    settings = Answering(gen_length=8, temperature=0.7, tps=2)
    made = answer(model, [chat_tokenizer().encode(p) for p in prompts], settings, Run(seed=3))
    expected, written = [], 0
    for ids in made.ids:
        stop = next((n for n, token in enumerate(ids) if token in (1, 2)), len(ids))
        expected.append(chat_tokenizer().decode([token for token in ids[:stop] if token < 36]))
        written += max((n + 1 for n in range(stop) if ids[n] < 36 and chat_tokenizer().decode([ids[n]])), default=0)
    for size in (1, 3, 4):
        lm = MultiMDM(model, gen_length=8, temperature=0.7, tps=2, seed=3, batch_size=size)
        assert lm.generate_until(asked(*prompts), disable_tqdm=True) == expected
        assert (lm.calls, lm.gen_length) == (4, 8)
        assert lm.num_tokens == written


def test_stop_words_and_ends_cut_an_answer():
    lm = MultiMDM(tiny_model(), gen_length=8)
    assert lm._text([5, 6, 7, 1, 8], []) == chat_tokenizer().decode([5, 6, 7])
    assert lm._text([5, 6, 7, 2, 8], []) == chat_tokenizer().decode([5, 6, 7])
    text = chat_tokenizer().decode([5, 6, 7, 8])
    assert lm._text([5, 6, 7, 8], [text[2], text[3]]) == text[:2]
    assert lm._tokens_of([5, 6, 7, 8], text[:2]) == 2
    assert lm._tokens_of([5, 6, 7, 8], text) == 4
    assert lm._tokens_of([5, 6, 7, 1, 8], text[:3]) == 3, "the end, and what follows it, is no part of an answer"
    assert lm._tokens_of([1, 5], "") == 0


def test_the_task_says_how_long_answers_are_unless_told():
    lm = MultiMDM(tiny_model(), tps=4)
    lm.generate_until(asked("1+1=", max_gen_toks=16), disable_tqdm=True)
    assert (lm.gen_length, lm.calls) == (16, 4)
    three = MultiMDM(tiny_model(), tps=3)
    three.generate_until(asked("1+1=", max_gen_toks=12), disable_tqdm=True)
    assert (three.gen_length, three.calls) == (12, 4)
    with pytest.raises(ValueError, match="gen_length must be divisible by tps; got 16 and 3"):
        three.generate_until(asked("1+1=", max_gen_toks=16), disable_tqdm=True)


def test_likelihoods_are_bounds_with_a_stated_number_of_draws():
    model = tiny_model()
    lm = MultiMDM(model, draws=16, batch_size=5)
    ((value, greedy),) = lm.loglikelihood(told(("1+1=", "2")), disable_tqdm=True)
    ids = torch.tensor(chat_tokenizer().encode("1+1=2"))
    expected = log_likelihood_bound(model.network, masks_of(model), ids, 4, 16, 0, 5)
    assert (value, greedy) == (expected.value, False)
    assert (lm.bounds[0].draws, lm.bounds[0].standard_error) == (16, expected.standard_error)
    request = Instance("loglikelihood_rolling", {}, ("1+1=2" * 20,), 0)
    (total,) = lm.loglikelihood_rolling([request], disable_tqdm=True)
    assert total == pytest.approx(sum(bound.value for bound in lm.bounds))
    assert len(lm.bounds) == 2  # 100 tokens in windows of 64


def test_greedy_continuations_are_found_out_on_request():
    model = tiny_model()
    lm = MultiMDM(model, gen_length=3, draws=1, greedy=True)
    said = answer(model, [chat_tokenizer().encode("1+1=")], Answering(gen_length=3)).ids[0]
    assert all(3 < token < 36 for token in said)  # plain characters, or the text below would not give them back
    text = chat_tokenizer().decode(said)
    results = lm.loglikelihood(told(("1+1=", text), ("1+1=", text[::-1] + "a")), disable_tqdm=True)
    assert [greedy for _, greedy in results] == [True, False]


def test_spaces_belong_to_the_continuation_and_long_contexts_are_cut():
    lm = MultiMDM(tiny_model(), draws=1)
    encode = chat_tokenizer().encode
    assert lm._split("1+1= ", "2") == (encode("1+1="), encode(" 2"))
    prompt, ids = lm._split("1" * 100, "23")
    assert (len(prompt), ids) == (62, encode("23"))


def test_chat_templates_are_read_with_their_special_tokens():
    lm = MultiMDM(tiny_model("{{ bos_token }}{{ messages[0].content }}<|eot_id|>"))
    text = lm.apply_chat_template([{"role": "user", "content": "1+1"}])
    assert lm._encode(text) == [0, *chat_tokenizer().encode("1+1"), 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gen_lenght": 8}, "model_args: there is no 'gen_lenght'; did you mean 'gen_length'"),
        ({"gen_length": 9, "tps": 2}, "gen_length must be divisible by tps; got 9 and 2"),
        ({"gen_length": 8, "tps": 2, "steps": 8}, "steps must be gen_length / tps = 4, or left out; got 8"),
        ({"tps": 0}, "tps must be at least 1; got 0"),
        ({"draws": 0}, "draws must be at least 1; got 0"),
    ],
)
def test_bad_arguments_come_before_weights(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiMDM("nowhere", **arguments)
