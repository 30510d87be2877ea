"""`generate` as users of transformers call it, by our samplers."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import GenerationConfig

from multimdm._checks import check_integer, require
from multimdm.pipeline import Model, fill
from multimdm.pipeline.canvas import Canvas, empty_canvas, prompts_canvas
from multimdm.pipeline.generation import length_of, settings_of

_SHARED = ("max_new_tokens", "max_length", "num_return_sequences", "do_sample", "temperature", "top_p", "top_k")
"""What both ask for by the same name."""
_OF_THE_FILE = ("transformers_version", "_from_model_config")
"""What a GenerationConfig says of itself."""
_IDLE = ("token_type_ids", "bos_token_id", "use_cache")
"""What callers pass by habit, and what changes nothing here: there is no cache, and prompts are as they are given."""
_NEUTRAL: dict[str, tuple] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "repetition_penalty", "length_penalty", "typical_p"), (1,)),
    **dict.fromkeys(("min_new_tokens", "min_length", "no_repeat_ngram_size", "min_p"), (0,)),
    **dict.fromkeys(("output_scores", "output_logits", "output_attentions", "output_hidden_states"), (False,)),
    **dict.fromkeys(("early_stopping", "synced_gpus", "renormalize_logits"), (False,)),
    **dict.fromkeys(("logits_processor", "stopping_criteria"), ([],)),
}
"""Values by which callers ask for nothing."""
_THEIRS = {*GenerationConfig().to_dict(), *_NEUTRAL, "streamer", "assistant_model", "prefix_allowed_tokens_fn"}
"""What `generate` can be asked for elsewhere."""


def generate(
    model: Model,
    input_ids: Int64[Tensor, "B n"] | None,
    attention_mask: Tensor | None,
    generation_config: GenerationConfig | None,
    options: dict[str, Any],
) -> Int64[Tensor, "rows length"]:
    """The given ids, followed by new ones; rows of one prompt stay together, as in transformers."""
    options = {**_said_by(generation_config), **options}
    # What is None is not said, here as there: `streamer=None` is no wish.
    options = {name: value for name, value in options.items() if value is not None and name not in _IDLE}
    options = {name: value for name, value in options.items() if value not in _NEUTRAL.get(name, ())}
    input_ids = _either(input_ids, options.pop("inputs", None))
    end, pad = options.pop("eos_token_id", None), options.pop("pad_token_id", None)
    num = check_integer("num_return_sequences", options.pop("num_return_sequences", 1), 1)
    if options.pop("do_sample", None) is False:
        options["temperature"] = 0
    seed = options.pop("seed", None)
    # Without a seed the draws follow torch.manual_seed, as callers expect.
    options["seed"] = int(torch.randint(2**31, ())) if seed is None else seed
    longest = length_of(model, None)
    new = _new_tokens(model, input_ids, attention_mask, options, longest)
    for name in options.keys() & (_THEIRS - set(_SHARED)):
        raise ValueError(
            f"there is no option '{name}' for models that draft all positions of a text together; leave it out"
        )
    sampling, run = settings_of(**options)
    if input_ids is None:
        return _ended(fill(model, empty_canvas(num, new), sampling, run).ids, 0, end, pad)
    prompts = [prompt for prompt in _prompts(input_ids, attention_mask) for _ in range(num)]
    canvas = _with_gaps(prompts_canvas(prompts, new, longest, "max_new_tokens"), model.network.config.vocab_size)
    ids = fill(model, canvas, sampling, run).ids
    made = _put_back(input_ids.repeat_interleave(num, 0), attention_mask, num, ids, prompts, new)
    return _ended(made, input_ids.shape[1], end, pad)


def _either(input_ids: Tensor | None, inputs: Tensor | None) -> Tensor | None:
    """Prompts, by either of the names that they have there."""
    require(input_ids is None or inputs is None, "give input_ids or inputs, which mean the same, not both")
    return inputs if input_ids is None else input_ids


def _ended(ids: Tensor, given: int, ends: int | list[int] | None, pad: int | None) -> Tensor:
    """Ids with padding behind the first end among the new tokens, if an end is named; it pads unless told."""
    if ends is None:
        return ids
    ends = [ends] if isinstance(ends, int) else list(ends)
    ended = torch.isin(ids[:, given:], torch.tensor(ends, device=ids.device)).long()
    behind = ended.cumsum(1) - ended > 0
    padded = ids[:, given:].masked_fill(behind, ends[0] if pad is None else pad)
    return torch.cat([ids[:, :given], padded], 1)


def _said_by(config: GenerationConfig | None) -> dict[str, Any]:
    """What a GenerationConfig says that differs from what none says; what is not to be had is refused later on."""
    if config is None:
        return {}
    silent = GenerationConfig().to_dict()
    said = config.to_diff_dict()
    return {name: value for name, value in said.items() if name not in _OF_THE_FILE and value != silent.get(name)}


def _new_tokens(model: Model, ids: Tensor | None, mask: Tensor | None, options: dict[str, Any], longest: int) -> int:
    """How many: as asked for; else none if there are gaps to fill, and as many as fit if there are not."""
    new, length = options.pop("max_new_tokens", None), options.pop("max_length", None)
    require(new is None or length is None, f"give max_new_tokens or max_length, not both; got {new} and {length}")
    if ids is None:
        return length_of(model, new if length is None else length)
    most = max(len(prompt) for prompt in _prompts(ids, mask))
    gaps = bool((ids >= model.network.config.vocab_size).any())
    if new is not None:
        return check_integer("max_new_tokens", new, 0 if gaps else 1)
    if length is not None:
        require(length >= most, f"max_length must be at least that of the prompt, {most}; got {length}")
        return check_integer("max_length", length, 1) - most
    return 0 if gaps else longest - most


def _prompts(ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    """The prompts as ids without padding."""
    require(ids.ndim == 2, f"input_ids must have the shape [batch, length]; got {list(ids.shape)}")
    if mask is None:
        return ids.tolist()
    require(
        mask.shape == ids.shape,
        f"attention_mask must have the shape of input_ids, {list(ids.shape)}; got {list(mask.shape)}",
    )
    return [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]


def _with_gaps(canvas: Canvas, vocab_size: int) -> Canvas:
    """Ids of masks are gaps: tokens to be made there."""
    gaps = canvas.given >= vocab_size
    return replace(canvas, given=canvas.given.masked_fill(gaps, 0), fixed=canvas.fixed & ~gaps)


def _put_back(given: Tensor, mask: Tensor | None, num: int, ids: Tensor, prompts: list[list[int]], new: int) -> Tensor:
    """The made ids where callers look for them: behind the given ones, padding included; gaps are filled in place."""
    given = given.to(ids.device, copy=True)
    there = torch.ones_like(given, dtype=torch.bool)
    if mask is not None:
        there = mask.repeat_interleave(num, 0).to(ids.device).bool()
    behind = []
    for row, kept, made, prompt in zip(given, there, ids, prompts, strict=True):
        row[kept] = made[: len(prompt)]
        behind.append(made[len(prompt) : len(prompt) + new])
    return torch.cat([given, torch.stack(behind)], 1)
