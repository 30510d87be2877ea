"""`generate` and `forward` as users of transformers know them."""

import copy
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer, GenerationConfig, StoppingCriteriaList, pipeline

from multimdm.hf import MultiMDMModel
from multimdm.objectives.next_token import shift_right
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Schedule, Uniform
from multimdm.samplers import SamplingAdvice
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model, tiny_dit

V, L = 11, 12


def small(num_masks: int = 2, schedule: Schedule | None = None) -> Model:
    return Model(tiny_dit(V, num_masks, L), MultiMask(V, num_masks, schedule))


def held(num_masks: int = 2) -> MultiMDMModel:
    return MultiMDMModel.from_model(small(num_masks))


def test_a_script_by_the_habits_of_transformers(tmp_path):
    tales_model().save(tmp_path / "model")

    import multimdm.hf  # noqa: F401

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModel.from_pretrained(tmp_path / "model", dtype="auto", device_map="auto")
    model.eval()
    tokenizer.padding_side = "left"
    prompts = ["Lily raced to the harbor", "Lily"]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
    torch.manual_seed(0)
    outputs = model.generate(
        **inputs, max_new_tokens=12, do_sample=True, temperature=0.8, top_k=50, pad_token_id=tokenizer.pad_token_id
    )
    texts = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    assert outputs.shape == (2, 5 + 12)
    assert all(text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True))
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    again = AutoModel.from_pretrained(tmp_path / "saved").to("cpu")
    torch.manual_seed(0)
    same = again.generate(**inputs, max_new_tokens=12, do_sample=True, temperature=0.8, top_k=50)
    assert torch.equal(same, outputs)
    with torch.inference_mode():
        assert again(**inputs).logits.shape == (2, 5, 404)


def test_more_habits(tmp_path):
    """Casts, devices, copies and the other names of things."""
    tales_model().save(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModel.from_pretrained(tmp_path / "model", trust_remote_code=True, low_cpu_mem_usage=True)
    input_ids = tokenizer("Lily raced to the harbor", return_tensors="pt").input_ids.to(model.device)
    options: dict[str, Any] = {"max_new_tokens": 4, "steps": 2, "seed": 0}
    wanted = model.generate(input_ids, **options)
    assert torch.equal(model.generate(inputs=input_ids, streamer=None, use_cache=True, **options), wanted)
    with pytest.raises(ValueError, match="give input_ids or inputs"):
        model.generate(input_ids, inputs=input_ids, **options)
    assert torch.equal(copy.deepcopy(model).generate(input_ids, **options), wanted)
    assert model.train().training
    assert not model.eval().training
    assert (model.half().dtype, model.device.type) == (torch.float16, "cpu")
    assert model.generate(input_ids, **options).shape == wanted.shape
    assert model.to("cpu", dtype=torch.float32).dtype == torch.float32
    with torch.no_grad():
        logits = model(input_ids).logits
        assert torch.equal(model(input_ids, return_dict=False)[0], logits)
        assert torch.equal(model(input_ids)[0], logits)
    with pytest.raises(ValueError, match="labels must be left out"):
        model(input_ids, labels=input_ids)
    model.save_pretrained(tmp_path / "saved", safe_serialization=True, max_shard_size="5GB")
    again = AutoModel.from_pretrained(tmp_path / "saved", dtype=torch.float16).float()
    assert again.load_state_dict(model.state_dict()).missing_keys == []
    assert torch.equal(again(input_ids).logits, logits)


def test_an_end_that_is_named_ends_texts():
    hf, ids = held(), torch.tensor([[1, 2, 3], [4, 3, 5]])
    options: dict[str, Any] = {"max_new_tokens": 8, "steps": 3, "seed": 1, "num_return_sequences": 20}
    whole = hf.generate(ids, **options)
    for ends, pad in ((3, None), ([3, 7], 9)):
        made = hf.generate(ids, eos_token_id=ends, pad_token_id=pad, **options)
        named = {ends} if isinstance(ends, int) else set(ends)
        cut = 0
        for row, before in zip(made.tolist(), whole.tolist(), strict=True):
            first = next((n for n in range(3, 11) if before[n] in named), 10)  # those of the prompt end nothing
            assert row == before[: first + 1] + [3 if pad is None else pad] * (10 - first)
            cut += first < 10
        assert cut > 0
    assert torch.equal(hf.generate(ids, pad_token_id=9, **options), whole)
    for row in hf.generate(eos_token_id=3, **options).tolist():
        assert 3 not in row or set(row[row.index(3) :]) == {3}


def test_pipelines(tmp_path):
    tales_model().save(tmp_path / "model")
    model, tokenizer = (kind.from_pretrained(tmp_path / "model") for kind in (AutoModel, AutoTokenizer))
    write = pipeline("text-generation", model=model, tokenizer=tokenizer)
    (made,) = write("Lily raced to the harbor", max_new_tokens=6, steps=3, seed=2, temperature=1.0)
    ids = tokenizer("Lily raced to the harbor", return_tensors="pt")["input_ids"]
    wanted = model.generate(ids, max_new_tokens=6, steps=3, seed=2, temperature=1.0)
    assert made["generated_text"].replace(" ", "") == tokenizer.decode(wanted[0]).replace(" ", "")


@pytest.mark.parametrize("order", ["ancestral", "confidence", "left_to_right"])
def test_it_is_our_sampler(order):
    model = tales_model()
    wanted = model.complete("Lily raced to the", num=3, length=20, steps=4, temperature=0.7, order=order, seed=5)
    assert model.tokenizer is not None
    ids = torch.tensor([model.tokenizer.encode("Lily raced to the")])
    hf = MultiMDMModel.from_model(model)
    options = {"steps": 4, "temperature": 0.7, "order": order, "seed": 5, "num_return_sequences": 3}
    assert torch.equal(hf.generate(ids, max_new_tokens=16, **options), wanted.ids)
    assert torch.equal(hf.generate(ids, max_length=20, **options), wanted.ids)
    assert hf.generate(ids, **options).shape == (3, 48)  # all that fit


def test_without_ids_and_as_the_checkpoint_advises():
    model = shown_tales_model(SamplingAdvice(order="rewrite", steps=2))
    hf = MultiMDMModel.from_model(model)
    assert torch.equal(hf.generate(num_return_sequences=2, seed=3), model.sample(2, seed=3).ids)
    assert torch.equal(hf.generate(max_new_tokens=9, seed=3), model.sample(1, length=9, seed=3).ids)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side):
    """Every prompt goes on as it would alone, and what is padding stays where it was."""
    prompts, pad = [[1, 2, 3, 4], [5, 6]], 10
    fill = [pad] * 2
    rows = [prompts[0], [*fill, *prompts[1]] if side == "left" else [*prompts[1], *fill]]
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1] if side == "left" else [1, 1, 0, 0]])
    options: dict[str, Any] = {"max_new_tokens": 5, "steps": 3, "seed": 1}
    together = held().generate(torch.tensor(rows), mask, **options)
    assert together[:, :4].tolist() == rows
    for number, prompt in enumerate(prompts):
        alone = held().generate(torch.tensor([prompt]), first=number, **options)
        assert together[number, 4:].tolist() == alone[0, len(prompt) :].tolist()


def test_masks_among_the_ids_are_gaps():
    ids = torch.tensor([[1, V, 3, V + 1, 5]])
    made = held().generate(ids, steps=2, seed=0)
    assert made.shape == (1, 5)
    assert made[0, [0, 2, 4]].tolist() == [1, 3, 5]
    assert int(made.max()) < V
    assert held().generate(ids, steps=2, seed=0, max_new_tokens=3).shape == (1, 8)


def test_randomness():
    hf, ids = held(), torch.tensor([[1, 2]])

    def drawn(seed: int | None = None, torch_seed: int = 0) -> list[int]:
        torch.manual_seed(torch_seed)
        return hf.generate(ids, max_new_tokens=10, seed=seed)[0].tolist()

    assert drawn() == drawn()
    assert drawn() != drawn(torch_seed=1)
    assert drawn(7, torch_seed=0) == drawn(7, torch_seed=1)
    greedy = [held(1).generate(ids, do_sample=False, steps=1, seed=seed).tolist() for seed in (0, 1)]
    assert greedy[0] == greedy[1] == held(1).generate(ids, temperature=0.0, steps=1).tolist()


def test_wishes_for_nothing_are_granted():
    """Values that ask for nothing, which scripts pass along; a dictionary may be asked for."""
    hf, ids = held(), torch.tensor([[1, 2]])
    nothing = {"num_beams": 1, "repetition_penalty": 1.0, "min_new_tokens": 0, "output_scores": False}
    wanted = hf.generate(ids, max_new_tokens=4, seed=1)
    made = hf.generate(ids, max_new_tokens=4, seed=1, stopping_criteria=StoppingCriteriaList(), **nothing)
    assert torch.equal(made, wanted)
    assert torch.equal(hf.generate(ids, max_new_tokens=4, seed=1, return_dict_in_generate=True).sequences, wanted)


def test_embeddings_are_found_and_keep_their_size():
    hf = held()
    assert hf.get_input_embeddings() is hf.network.vocab_embed
    with pytest.raises(ValueError, match="the vocabulary cannot be resized: ids behind it are masks"):
        hf.resize_token_embeddings(20)


def test_a_generation_config_is_heard():
    hf, ids = held(), torch.tensor([[1, 2]])
    config = GenerationConfig(max_new_tokens=4, temperature=0.5, num_return_sequences=2, do_sample=True)
    wanted = hf.generate(ids, max_new_tokens=4, temperature=0.5, num_return_sequences=2, seed=1)
    assert torch.equal(hf.generate(ids, generation_config=config, seed=1), wanted)
    assert hf.generate(ids, generation_config=config, max_new_tokens=3).shape == (2, 5)


def test_all_of_a_generation_config_is_heard():
    hf, ids = held(), torch.tensor([[3, 1], [2, 2]])
    made = hf.generate(ids, max_new_tokens=6, seed=1)
    end = int(made[0, 3])
    by_option = hf.generate(ids, max_new_tokens=6, seed=1, eos_token_id=end)
    assert not torch.equal(by_option, made)
    config = GenerationConfig(max_new_tokens=6, eos_token_id=end)
    assert torch.equal(hf.generate(ids, generation_config=config, seed=1), by_option)
    with pytest.raises(ValueError, match="no option 'num_beams'"):
        hf.generate(ids, generation_config=GenerationConfig(num_beams=4))


def test_without_one_the_models_own_is_heard():
    hf, ids = held(), torch.tensor([[3, 1], [2, 2]])
    hf.generation_config = GenerationConfig(max_new_tokens=3)
    assert hf.generate(ids).shape == (2, 5)
    assert hf.generate(ids, max_new_tokens=2).shape == (2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 11}, "a prompt of 2 tokens and max_new_tokens 11 do not fit into the network's 12"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1; got 0"),
        ({"max_new_tokens": 2, "max_length": 4}, "give max_new_tokens or max_length, not both; got 2 and 4"),
        ({"max_length": 1}, "max_length must be at least that of the prompt, 2; got 1"),
        ({"num_beams": 4}, "no option 'num_beams' for models that draft all positions of a text together; leave it"),
        ({"streamer": print}, "no option 'streamer' for models that draft all positions of a text together"),
        ({"output_scores": True}, "no option 'output_scores' for models"),
        ({"step": 4}, "there is no option 'step'; did you mean 'steps'?"),
        ({"num_return_sequences": 0}, "num_return_sequences must be at least 1; got 0"),
        ({"attention_mask": torch.ones(1, 3)}, r"attention_mask must have the shape of input_ids, \[1, 2\]"),
    ],
)
def test_wrong_calls_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        held().generate(torch.tensor([[1, 2]]), **options)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(1.0, "cosine")])
def test_logits_at_the_time_that_the_masks_show(schedule):
    model = small(2, schedule)
    hf = MultiMDMModel.from_model(model)
    ids = torch.tensor([[1, V, V + 1, 4], [V, V, V, V + 1]])
    shown = torch.tensor([0.5, 1.0])
    time = shown if schedule.kind == "linear" else 4 / torch.pi * torch.asin((shown / 2).sqrt())
    torch.testing.assert_close(hf(ids).logits, model.network(ids, time))
    torch.testing.assert_close(hf(ids, t=0.9).logits, model.network(ids, 0.9))
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    torch.testing.assert_close(hf(ids, attention_mask=mask).logits, model.network(ids, time, valid=mask.bool()))


def test_logits_of_other_models():
    causal = causal_tales_model()
    ids = torch.tensor([[1, 2, 3]])
    logits = MultiMDMModel.from_model(causal)(ids).logits
    torch.testing.assert_close(logits, causal.network(shift_right(ids, 404)))
    with pytest.raises(ValueError, match="shown its noise predicts nothing without it; use generate"):
        MultiMDMModel.from_model(shown_tales_model())(ids)
    uniform = MultiMDMModel.from_model(Model(tiny_dit(V, 0, L), Uniform(V)))
    with pytest.raises(ValueError, match="t must be given: this process has no masks"):
        uniform(ids)
    assert uniform(ids, t=0.5).logits.shape == (1, 3, V)
    assert MultiMDMModel.from_model(causal).generate(ids, max_new_tokens=2, seed=0).shape == (1, 5)
