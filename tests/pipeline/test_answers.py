"""LLaDA's settings of generation, token for token as its own code, and what its options promise."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import multimdm
from multimdm.pipeline import Model, Run
from multimdm.pipeline.answers import Answering, answer, end_tokens
from multimdm.process import MultiMask, Streams
from multimdm.samplers import Batch, Choice, ask
from support.tiny_llada import VOCABULARY, chat_tokenizer, llada_of, masks_of, tiny_llada

GOLDEN = Path(__file__).parents[1] / "golden" / "llada_tiny"
CASES = json.loads((GOLDEN / "generate.json").read_text())
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12], [13]]


def tiny_model(masks: int = 1) -> Model:
    rows = (36, 37, 38, 39)[:masks]
    return Model(tiny_llada(mask_rows=rows), MultiMask(VOCABULARY, masks), chat_tokenizer())


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_golden_answers(case):
    expected, model = load_file(GOLDEN / "generate.safetensors"), multimdm.load(GOLDEN)
    prompts = expected["prompt"].tolist()
    settings = Answering(**{name: value for name, value in case.items() if name != "case"})
    made = answer(model, prompts, settings)
    assert made.ids == expected[case["case"]][:, len(prompts[0]) :].tolist()
    assert made.nfe == case["steps"]
    alone = answer(model, [prompts[1]], settings)  # neighbours of other lengths change nothing
    assert answer(model, [prompts[1], prompts[0][:3]], settings).ids[0] == alone.ids[0] == made.ids[1]


def test_tokens_per_step():
    model = tiny_model()
    by_tps = answer(model, PROMPTS, Answering(gen_length=16, block_length=8, tps=4))
    by_steps = answer(model, PROMPTS, Answering(gen_length=16, block_length=8, steps=4))
    by_both = answer(model, PROMPTS, Answering(gen_length=16, block_length=8, steps=4, tps=4))
    assert by_tps == by_steps == by_both
    assert by_tps.nfe == 4
    assert [Answering(gen_length=256, tps=k).num_steps for k in (1, 2, 4)] == [256, 128, 64]


@pytest.mark.parametrize("masks", [1, 4])
@pytest.mark.parametrize("remasking", ["low_confidence", "random"])
def test_any_number_of_masks_leaves_none(masks, remasking):
    settings = Answering(gen_length=12, block_length=4, steps=6, temperature=0.7, remasking=remasking)
    made = answer(tiny_model(masks), PROMPTS, settings, Run(seed=3))
    assert all(0 <= token < 36 or token in (37, 38, 39)[masks - 1 :] for ids in made.ids for token in ids)
    again = answer(tiny_model(masks), PROMPTS, settings, Run(seed=3, batch_size=2))
    assert again.ids == made.ids
    assert answer(tiny_model(masks), PROMPTS, settings, Run(seed=4)).ids != made.ids


def test_own_masks_that_are_read_by_bayes_rule_count_at_temperature_zero():
    """A block of two positions in two steps: the token that is left is the most probable one of the posterior."""
    model = tiny_model(4)
    model.process = process = MultiMask(VOCABULARY, 4, readout="context")
    seen = []

    model.network.register_forward_pre_hook(lambda network, inputs: seen.append(inputs[0].clone()))
    differs = 0
    for seed in range(12):
        seen.clear()
        (made,) = answer(model, [[5, 6, 7]], Answering(gen_length=2, steps=2), Run(seed=seed)).ids
        last = seen[-1][0]
        place = int(process.active(last).nonzero()[0, 0])
        with torch.no_grad():
            context = model.network(last[None])[0, place]
        posterior = process.posterior_logits(context, last[place], 0.5)
        assert made[place - 3] == int(posterior.argmax())
        differs += int(posterior.argmax() != context.argmax())
    assert differs > 0


def test_guidance_is_what_its_formula_says():
    """One step over one position: the logits of both passes, by hand. It is two calls, without any attention mask."""
    model, prompt, scale = tiny_model(), [5, 6, 7, 8], 1.5
    made = answer(model, [prompt], Answering(gen_length=1, cfg_scale=scale))
    mask = VOCABULARY
    with torch.no_grad():
        c, u = model.network(torch.tensor([[*prompt, mask], [mask] * 5]))[:, -1]
    guided = (u + (1 + scale) * (c - u)).nan_to_num(-torch.inf)
    assert made.ids == [[int(guided.argmax())]]
    assert made.nfe == 2
    assert (
        answer(model, [prompt], Answering(gen_length=8, cfg_scale=3.0)).ids
        != answer(model, [prompt], Answering(gen_length=8)).ids
    )


def favourite(model: Model, token: int) -> Model:
    """A model that wants nothing but this token."""
    with torch.no_grad():
        network = llada_of(model)
        network.ln_f.weight.zero_()
        network.column_bias[token] += 50.0
        network.column_bias[20] += 40.0
    return model


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ends_of_text(temperature):
    end, turn = 1, 2
    assert end_tokens(tiny_model()) == ((end,), (end, turn))
    usual = {"gen_length": 8, "temperature": temperature}
    assert answer(favourite(tiny_model(), end), [[5]], Answering(**usual)).ids == [[end] * 8]
    never = Answering(**usual, logits_eos_inf=True)
    assert answer(favourite(tiny_model(), end), [[5]], never).ids == [[20] * 8]


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ends_have_no_confidence_at_any_temperature(temperature):
    """LLaDA's own code forgets it above temperature 0."""
    model = tiny_model()
    llada_of(model).column_bias[[1, 2]] += 1.5  # probable, but not everywhere
    sampling = Answering(gen_length=16, confidence_eos_eot_inf=True).sampling(*end_tokens(model))
    assert sampling.postpone_tokens == (1, 2)
    x = torch.randint(5, 30, (4, 12), generator=torch.Generator().manual_seed(0))
    x[:, 6:] = VOCABULARY
    free = x == VOCABULARY
    usual, late = (
        ask(
            masks_of(model),
            Batch(x, free, None, Streams.spawn(0, 4)),
            0.5,
            Choice(temperature),
            confidence=True,
            late=tokens,
        ).put_to(model.network)
        for tokens in ((), sampling.postpone_tokens)
    )
    assert torch.equal(late.clean, usual.clean)  # the same tokens, in another order
    ends = ((late.clean == 1) | (late.clean == 2))[free]
    assert bool(ends.any())
    assert not bool(ends.all())
    assert usual.confidence is not None
    assert late.confidence is not None
    assert bool((late.confidence[free][ends] == 0).all())
    assert bool((late.confidence[free][~ends] > usual.confidence[free][~ends]).all())  # shares of the rest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gen_length": 16, "block_length": 5}, "gen_length must be divisible by block_length; got 16 and 5"),
        ({"gen_length": 16, "tps": 3}, "gen_length must be divisible by tps; got 16 and 3"),
        (
            {"gen_length": 16, "block_length": 4, "steps": 6},
            "steps must be divisible by the number of blocks, gen_length / block_length = 4; got 6",
        ),
        ({"gen_length": 16, "steps": 8, "tps": 4}, "steps must be gen_length / tps = 4, or left out; got 8"),
        ({"gen_length": 0}, "gen_length must be at least 1; got 0"),
        ({"cfg_scale": -1.0}, "cfg_scale must be a finite number of at least 0"),
        ({"gen_length": 63}, "a prompt of 5 tokens and gen_length 63 do not fit into the network's 64 positions"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        answer(tiny_model(), PROMPTS, Answering(**settings))
