"""What the playground shows before anything is asked: what a model knows, and prompts to click."""

from typing import Any

from multimdm.builtin import builtin_names
from multimdm.data.tales_words import DEFAULT
from multimdm.evaluation.tales_models import speaks_tales
from multimdm.pipeline import Model

_PROMPTS = (
    "Lily raced to the harbor",
    "One foggy morning Felix",
    "Nora and her aunt visited the museum. She found an ancient",
)
"""Beginnings of stories, of words that Tales has."""

_KINDS = {"names": "hero", "places": "place", "things": "object", "animals": "animal"}
"""In words -> the variable of the grammar."""


def start_page(name: str, model: Model) -> dict[str, Any]:
    """Fields of /v1/models: what it knows, what may be asked, and whether it begins by itself.

    Only models that come with the package begin by themselves: they answer at once on any machine.
    """
    if not speaks_tales(model):
        return {"knows": None, "examples": [], "at_once": False}
    assert model.tokenizer is not None
    sizes = {what: len(DEFAULT.variables[variable].phrases) for what, variable in _KINDS.items()}
    kinds = ", ".join(f"{size} {what}" for what, size in sizes.items())
    knows = (
        f"This model has read short stories of {model.tokenizer.vocab_size} words, and knows no others: {kinds}, and "
        "what happens between them."
    )
    return {"knows": knows, "examples": list(_PROMPTS), "at_once": name in builtin_names()}
