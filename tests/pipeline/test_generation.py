"""Samples, completions and infilling through a model as users hold it."""

from typing import Any

import pytest
import torch

import multimdm
from multimdm.data import Tales, Tokenizer
from multimdm.data.tales import tales_tokenizer
from multimdm.data.trained_tokenizers import train_chars
from multimdm.models import DiT, DiTConfig
from multimdm.pipeline import Model
from multimdm.pipeline.canvas import encode_gaps
from multimdm.pipeline.devices import find_device
from multimdm.pipeline.generation import check_fit
from multimdm.process import MultiMask, Process, Uniform
from multimdm.samplers.settings import Sampling

TALES = Tales()
V = TALES.vocab_size
LENGTH = 20


def model(process: Process | None, tokenizer: Tokenizer | None = None, seed: int = 0) -> Model:
    """A small network with random weights in all layers, so that its predictions depend on everything."""
    size: dict[str, Any] = {"hidden_dim": 16, "num_blocks": 2, "num_heads": 2, "cond_dim": 8, "max_length": LENGTH}
    masks, causal = (1, True) if process is None else (process.num_masks, False)
    conditioning = "none" if causal else "sigma"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = DiT(
            DiTConfig(vocab_size=V, num_masks=masks, causal=causal, conditioning=conditioning, dropout=0.5, **size)
        )
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return Model(network, process, tokenizer)


PROCESSES: dict[str, Process | None] = {
    "M=1": MultiMask(V, 1),
    "M=4": MultiMask(V, 4),
    "uniform": Uniform(V),
    "autoregressive": None,
}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
DIFFUSION = pytest.mark.parametrize("process", [p for p in PROCESSES.values() if p], ids=["M=1", "M=4", "uniform"])


@ALL
def test_sample(process):
    made = model(process, tales_tokenizer(TALES))
    made.network.train()
    samples = made.sample(num=5, length=12, steps=3, seed=1)
    assert made.network.training  # as it was
    assert samples.ids.shape == (5, 12)
    assert 0 <= int(samples.ids.min()) <= int(samples.ids.max()) < V
    assert len(samples.texts) == 5
    assert samples.nfe == (12 if process is None else 3)
    assert samples.trace is None
    assert torch.equal(made.sample(num=5, length=12, steps=3, seed=1).ids, samples.ids)
    assert not torch.equal(made.sample(num=5, length=12, steps=3, seed=2).ids, samples.ids)
    assert made.sample(num=1).ids.shape == (1, LENGTH)


@ALL
def test_batches_and_numbers_of_sequences_do_not_matter(process):
    made = model(process)
    whole = made.sample(num=4, length=9, trace=True)
    small = made.sample(num=4, length=9, batch_size=3, trace=True)
    halves = [made.sample(num=2, length=9, first=first).ids for first in (0, 2)]
    assert torch.equal(whole.ids, small.ids)
    assert torch.equal(whole.ids, torch.cat(halves))
    assert whole.trace is not None
    assert small.trace is not None
    assert torch.equal(whole.trace.states, small.trace.states)
    assert whole.texts == []  # there is no tokenizer


def test_options_reach_the_sampler():
    made = model(MultiMask(V, 4))
    usual = made.sample(num=4, steps=4).ids
    options: list[dict[str, Any]] = [
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"top_k": 3},
        {"grid": "cosine"},
        {"grid": (1.0, 0.8, 0.5, 0.1, 0.0)},
        {"corrector": 0.5},
        {"order": "confidence"},
        {"order": "confidence", "block_length": 5},
        {"greedy_last": True},
    ]
    for option in options:
        samples = made.sample(num=4, steps=4, **option)
        assert samples.nfe == 4, option
        assert not torch.equal(samples.ids, usual), option
    assert made.sample(num=4, grid=(1.0, 0.5, 0.0)).nfe == 2
    assert made.sample(num=4, steps=LENGTH, order="confidence", threshold=1e-6).nfe == 1


@ALL
def test_complete(process):
    tokenizer = tales_tokenizer(TALES)
    made = model(process, tokenizer)
    prompt = "Otto loved to read"
    samples = made.complete(prompt, num=3, length=10, steps=4)
    ids = tokenizer.encode(prompt)
    assert samples.ids.shape == (3, 10)
    assert bool((samples.ids[:, : len(ids)] == torch.tensor(ids)).all())
    assert samples.nfe == (10 - len(ids) if process is None else 4)


PROMPTS = ["Otto", "Otto loved to read", "Lily"]


@ALL
@pytest.mark.parametrize("room", [{"new_tokens": 5}, {"length": 9}])
def test_several_prompts_go_on_as_each_would_alone(process, room):
    """Each as often as asked for, standing together; padding behind the shorter ones is no part of them."""
    made = model(process, tales_tokenizer(TALES))
    together = made.complete(PROMPTS, num=2, steps=3, seed=5, **room)
    assert len(together.texts) == len(together.ids) == 6
    for number, prompt in enumerate(PROMPTS):
        alone = made.complete(prompt, num=2, steps=3, seed=5, first=2 * number, **room)
        rows = slice(2 * number, 2 * number + 2)
        assert together.texts[rows] == alone.texts
        length = alone.ids.shape[1]
        assert torch.equal(together.ids[rows, :length], alone.ids)
        if "new_tokens" in room:
            assert together.valid is not None
            assert together.valid[rows].sum(1).tolist() == [length] * 2
    assert "length" not in room or together.valid is None


@DIFFUSION
def test_several_texts_are_filled_in_as_each_would_alone(process):
    made = model(process, tales_tokenizer(TALES))
    texts = ["Otto [MASK] to read by the [MASK][MASK].", "Lily [MASK]"]
    together = made.infill(texts, num=2, steps=3, seed=5)
    for number, text in enumerate(texts):
        alone = made.infill(text, num=2, steps=3, seed=5, first=2 * number)
        assert together.texts[2 * number : 2 * number + 2] == alone.texts
    assert together.valid is not None


@DIFFUSION
def test_infill_leaves_what_is_given(process):
    tokenizer = tales_tokenizer(TALES)
    made = model(process, tokenizer)
    samples = made.infill("Otto [MASK] to read by the [MASK][MASK].", num=6, steps=3, trace=True)
    given = encode_gaps(tokenizer, "Otto [MASK] to read by the [MASK][MASK].")
    assert [token is None for token in given] == [False, True, False, False, False, False, True, True, False]
    assert samples.trace is not None
    for place, token in enumerate(given):
        if token is not None:
            assert bool((samples.trace.states[:, :, place] == token).all())
    assert int(samples.ids.max()) < V
    assert len({tuple(row) for row in samples.ids.tolist()}) > 1


def test_gaps_take_the_space_that_their_token_would_carry(tmp_path):
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers

    words = ["a", "Ġa", "Ġ", "the", "Ġsat", "."]
    backend = Backend(models.BPE({word: i for i, word in enumerate(words)}, [], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    joined = Tokenizer(backend.to_str(), {}, "joined")
    assert encode_gaps(joined, "the [MASK] sat.") == [3, None, 4, 5]
    assert encode_gaps(joined, "[MASK] sat[MASK]") == [None, 4, None]
    letters = train_chars(["a b"])
    assert encode_gaps(letters, "a [MASK]b") == [*letters.encode("a "), None, *letters.encode("b")]


def test_a_saved_model_samples_the_same(tmp_path):
    made = model(MultiMask(V, 4), tales_tokenizer(TALES))
    made.network.eval()
    made.save(tmp_path / "checkpoint")
    again = multimdm.load(tmp_path / "checkpoint").sample(num=2, steps=3)
    assert again.texts == made.sample(num=2, steps=3).texts


def test_states_without_a_token_are_left_out_of_texts():
    """GPT-2's DUO has a state more than the tokenizer has tokens."""
    made = model(Uniform(V), train_chars(["the letters of these words"]))
    assert made.tokenizer is not None
    samples = made.sample(num=2, steps=2)
    known = (samples.ids < made.tokenizer.vocab_size).sum(1).tolist()
    assert all(len(text) <= count for text, count in zip(samples.texts, known, strict=True))


def calls(made: Model) -> list:
    """Everything the network is asked; nothing should be, if the input is bad."""
    seen: list = []
    made.network.register_forward_pre_hook(lambda *arguments: seen.append(arguments))
    return seen


BAD = {
    "steps": (lambda m: m.sample(steps=0), "steps must be an integer of at least 1; got 0"),
    "length": (lambda m: m.sample(length=21), "length must be at most 20, for which the network was made; got 21"),
    "no length": (lambda m: m.sample(length=0), "length must be at least 1; got 0"),
    "num": (lambda m: m.sample(num=0), "num must be at least 1; got 0"),
    "temperature": (
        lambda m: m.sample(temperature=-0.1),
        "temperature must be 0 .* or a finite number of at least 1e-06; got -0.1",
    ),
    "infinite": (lambda m: m.sample(temperature=float("inf")), "temperature must be 0 .*; got inf"),
    "top_p": (lambda m: m.sample(top_p=0.0), r"top_p must lie in \(0, 1\] \(1 keeps every token\); got 0.0"),
    "top_p above": (lambda m: m.sample(top_p=1.5), r"top_p must lie in \(0, 1\].*; got 1.5"),
    "top_k": (lambda m: m.sample(top_k=0), "top_k must be an integer of at least 1, or left out; got 0"),
    "grid": (lambda m: m.sample(grid="linear"), "grid must be 'uniform', 'cosine' or a list of times"),
    "times": (lambda m: m.sample(grid=(1.0, 0.6, 0.7, 0.0)), "grid must fall from 1 to 0"),
    "corrector": (lambda m: m.sample(corrector=1.1), r"corrector must lie in \[0, 1\] \(0 is off\); got 1.1"),
    "order": (
        lambda m: m.sample(order="random"),
        "order must be one of ancestral, confidence, left_to_right, rewrite; got 'random'",
    ),
    "block alone": (lambda m: m.sample(block_length=4), "block_length needs order='confidence'; got 4 without it"),
    "blocks": (
        lambda m: m.sample(order="confidence", block_length=2, steps=3),
        "steps must be at least the number of blocks, 10; got 3",
    ),
    "threshold": (lambda m: m.sample(order="confidence", threshold=0.0), r"threshold must lie in \(0, 1\]"),
    "corrected order": (lambda m: m.sample(order="confidence", corrector=0.1), "corrector must be 0 with order="),
    "order and grid": (lambda m: m.sample(order="confidence", grid="cosine"), "grid must be left out with order="),
    "order and last": (lambda m: m.sample(order="confidence", greedy_last=True), "greedy_last must be off with order="),
    "seed": (lambda m: m.sample(seed=-1), "seed must be at least 0; got -1"),
    "first": (lambda m: m.sample(first=-1), "first must be at least 0; got -1"),
    "batch size": (lambda m: m.sample(batch_size=0), "batch_size must be at least 1; got 0"),
    "misspelt": (lambda m: m.sample(temprature=1.0), "there is no option 'temprature'; did you mean 'temperature'?"),
    "max_new_tokens": (
        lambda m: m.complete("Otto", max_new_tokens=5),
        "there is no option 'max_new_tokens'; here it is new_tokens, or length, which counts the prompt too",
    ),
    "num_return_sequences": (
        lambda m: m.infill("[MASK]", num_return_sequences=5),
        "there is no option 'num_return_sequences'; here it is num$",
    ),
    "no prompt": (lambda m: m.complete([]), "prompt must be a text or a list of texts; got an empty list"),
    "odd prompt": (lambda m: m.complete(["Otto", 3]), "prompt must be a text or a list of texts; got 3"),
    "one long prompt": (
        lambda m: m.complete(["Otto", "Otto loved to read"], length=3),
        "prompt must fit into the length of 3; it has 4 tokens: raise length or shorten it",
    ),
    "no gap": (lambda m: m.infill("Otto loved to read."), r"text must have a \[MASK\] where a token is to be made"),
    "long prompt": (
        lambda m: m.complete("Otto loved to read", length=3),
        "prompt must fit into the length of 3; it has 4 tokens: raise length or shorten it",
    ),
    "long text": (lambda m: m.infill("[MASK]" * 21), "length must be at most 20"),
    "bos": (lambda m: m.complete("Otto", bos=True), "bos must be off: tokenizer 'tales' has no BOS token"),
}


@pytest.mark.unchecked
@pytest.mark.parametrize(("ask", "message"), BAD.values(), ids=BAD)
def test_bad_input(ask, message):
    made = model(MultiMask(V, 2), tales_tokenizer(TALES))
    seen = calls(made)
    with pytest.raises(ValueError, match=message):
        ask(made)
    assert not seen


UNFIT = {
    "no tokenizer": (lambda: model(MultiMask(V, 1)).complete("Otto"), "no tokenizer, which a prompt needs"),
    "no tokenizer to fill": (lambda: model(MultiMask(V, 1)).infill("[MASK]"), "no tokenizer, which a text to fill in"),
    "uniform, confidence": (
        lambda: model(Uniform(V)).sample(order="confidence"),
        "process must have masks for order='confidence'; got Uniform",
    ),
    "uniform, corrector": (lambda: model(Uniform(V)).sample(corrector=0.1), "must have masks for corrector"),
    "autoregressive, gaps": (
        lambda: model(None, tales_tokenizer(TALES)).infill("Otto [MASK] to read"),
        "an autoregressive model cannot fill gaps",
    ),
    "autoregressive, order": (
        lambda: model(None).sample(order="confidence"),
        "this one is autoregressive: leave them out",
    ),
}


@pytest.mark.parametrize(("ask", "message"), UNFIT.values(), ids=UNFIT)
def test_what_a_model_cannot_do(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


FITTING = {
    "uniform, confidence": (Uniform(V), {"order": "confidence"}, "must have masks for order='confidence'"),
    "autoregressive, order": (None, {"order": "confidence"}, "this one is autoregressive"),
    "blocks": (MultiMask(V, 1), {"order": "confidence", "block_length": 2}, "number of blocks, 10; got 4"),
}


@pytest.mark.parametrize(("process", "options", "message"), FITTING.values(), ids=FITTING)
def test_settings_can_be_checked_without_drawing(process, options, message):
    made = model(process)
    seen = calls(made)
    check_fit(made, None, Sampling(steps=4))
    with pytest.raises(ValueError, match=message):
        check_fit(made, None, Sampling(steps=4, **options))
    assert not seen


def test_a_model_is_loaded_onto_a_device(tmp_path, monkeypatch):
    model(MultiMask(V, 2)).save(tmp_path / "checkpoint")
    for device in (None, "cpu", "auto", torch.device("cpu")):
        if device != "auto" or not torch.cuda.is_available():
            network = multimdm.load(tmp_path / "checkpoint", device).network
            assert next(network.parameters()).device == torch.device("cpu")
    # Any other device than the usual one shows that weights are moved.
    meta = multimdm.load(tmp_path / "checkpoint", torch.device("meta")).network
    assert {weights.device.type for weights in meta.parameters()} == {"meta"}
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="cuda is not available"):
        multimdm.load(tmp_path / "nowhere", "cuda")  # before anything is read
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda")
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match="there are 2 GPUs here, cuda:0 to cuda:1"):
        find_device("cuda:2")
    with pytest.raises(ValueError, match="device must be auto, cpu, mps, cuda or cuda:NUMBER; got 'gpu'"):
        find_device("gpu")
    monkeypatch.setenv("MULTIMDM_DEVICE", "cpu")
    assert find_device("auto") == torch.device("cpu")
    assert find_device("cuda") == torch.device("cuda"), "what is asked for by name is not changed"
    monkeypatch.setenv("MULTIMDM_DEVICE", "gpu")
    with pytest.raises(ValueError, match=r"device must be .*; got 'gpu' from the environment variable MULTIMDM_DEVICE"):
        find_device("auto")
