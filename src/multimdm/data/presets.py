"""The corpora of the field, prepared as the field does."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # Sentences, detokenised, packed: the "wrapped" LM1B. The test split is what papers report on. (This copy on the Hub
    # is plain data; the original is a script, which recent versions of `datasets` refuse to run.)
    "lm1b": {
        "sources": ("hf:dvruette/lm1b",),
        "valid": ("hf:dvruette/lm1b#test",),
        "tokenizer": "bert-base-uncased",
        "length": 128,
        "layout": "packed",
        "detokenize": "lm1b",
    },
    # OpenWebText has no validation split: MDLM and DUO hold out the last 100,000 documents. (A copy in Parquet, in the
    # order of the original, hf:Skylion007/openwebtext, which is a script.)
    "openwebtext": {
        "sources": ("hf:dylanebert/openwebtext",),
        "valid_last": 100_000,
        "tokenizer": "gpt2",
        "length": 1024,
        "layout": "packed",
    },
}
"""Name (as in --preset) -> options of `PrepareOptions` that differ from the defaults."""


def preset(name: str) -> dict[str, Any]:
    """The options of a preset."""
    if name not in PRESETS:
        raise ValueError(f"--preset {name}: there is none of that name; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
