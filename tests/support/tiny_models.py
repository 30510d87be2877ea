"""Small models with random weights, for tests of what is done with models."""

from collections.abc import Iterable

import torch

from multimdm.data.tales import Tales, tales_tokenizer
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import DiT, DiTConfig, show_noise
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.samplers import SamplingAdvice

TALES = Tales()


def tiny_dit(vocab_size: int, num_masks: int, length: int, causal: bool = False, seed: int = 0) -> DiT:
    """Random everywhere: a new network's head is zero, and its predictions uniform."""
    config = DiTConfig(
        vocab_size=vocab_size,
        num_masks=num_masks,
        hidden_dim=32,
        num_blocks=1,
        num_heads=2,
        cond_dim=8,
        max_length=length,
        dropout=0.0,
        conditioning="none" if causal else "sigma",
        causal=causal,
    )
    return _random(DiT(config), seed)


def _random(network: DiT, seed: int) -> DiT:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights.normal_(0.0, 0.3, generator=generator)
    return network.eval()


def tales_model(num_masks: int = 3, seed: int = 0, length: int = 48) -> Model:
    """A diffusion model of Tales."""
    V = TALES.vocab_size
    return Model(tiny_dit(V, num_masks, length, seed=seed), MultiMask(V, num_masks), tales_tokenizer(TALES))


def shown_tales_model(advice: SamplingAdvice | None = None, num_masks: int = 3, length: int = 48) -> Model:
    """One that is shown its noise, and may have advice."""
    network = _random(show_noise(tiny_dit(TALES.vocab_size, num_masks, length)), seed=2)
    process = MultiMask(TALES.vocab_size, num_masks).tied(noise_shown=True)
    return Model(network, process, tales_tokenizer(TALES), advice=advice)


def causal_tales_model(seed: int = 0) -> Model:
    """An autoregressive one."""
    return Model(tiny_dit(TALES.vocab_size, 1, 48, causal=True, seed=seed), None, tales_tokenizer(TALES))


def word_tokenizer(words: Iterable[str], name: str = "words", end: str = "[END]", pad: str = "[PAD]") -> Tokenizer:
    """One token per word; the end of text and padding come last."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate([*words, end, pad])}
    backend = Backend(models.WordLevel(vocabulary))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    backend.add_special_tokens([end, pad])
    return Tokenizer(backend.to_str(), {"eos": end, "pad": pad}, name)


def word_model(tokenizer: Tokenizer, length: int = 8, causal: bool = False, seed: int = 0) -> Model:
    """A model of such words."""
    V = tokenizer.vocab_size
    return Model(tiny_dit(V, 1, length, causal, seed), None if causal else MultiMask(V, 1), tokenizer)
