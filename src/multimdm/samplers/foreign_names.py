"""Options by the names that other libraries have for them, and our words for the same. Imports no torch."""

_NEW = "new_tokens, or length, which counts the prompt too"
_STEPS = "steps"
OUR_WORDS = {
    "max_new_tokens": _NEW,
    "max_tokens": _NEW,
    "max_completion_tokens": _NEW,
    "gen_length": _NEW,
    "max_length": "length",
    "num_return_sequences": "num",
    "num_samples": "num",
    "n": "num",
    "num_inference_steps": _STEPS,
    "num_steps": _STEPS,
    "diffusion_steps": _STEPS,
    "do_sample": "temperature: 0 takes the most probable token",
    "sampler": "order",
}
"""Name -> what it is called in the library and, with dashes, on the command line."""


def our_word(name: str) -> str | None:
    """What follows "here it is"; None if the name means nothing to us."""
    return OUR_WORDS.get(name.replace("-", "_"))
