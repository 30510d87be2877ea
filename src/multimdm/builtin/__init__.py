"""Models that come with the package: a folder for each, with weights in half precision and a card. Imports no torch.

`tools/builtin_models.py` trains and packs them; `pipeline/builtin_cards.py` reads their cards.
"""

from pathlib import Path

USUAL = "tales"
"""The one that writes where no checkpoint is named."""
SERVED = (USUAL, "tales-mdlm")
"""The models that a server and the playground offer where none is named."""
CARD = "card.json"
"""The card of each model, beside the files of its checkpoint."""


def builtin_root() -> Path:
    """The directory in which built-in models lie."""
    return Path(__file__).parent


def builtin_names() -> list[str]:
    """The names of all built-in models, the usual one first."""
    found = sorted(path.parent.name for path in builtin_root().glob(f"*/{CARD}"))
    return sorted(found, key=lambda name: name != USUAL)


def builtin_directory(name: str) -> Path | None:
    """Where the model of this name lies; None if there is none."""
    return builtin_root() / name if name in builtin_names() else None
