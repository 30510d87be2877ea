"""Autoregressive language models by name: checkpoints of ours, and causal models as Hugging Face has them."""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from multimdm._inert import reason
from multimdm.data.foreign_tokenizers import SMOLLM2, smollm2_file
from multimdm.data.hub_silence import hub_silence
from multimdm.evaluation.settings import label_of
from multimdm.pipeline import Model, load
from multimdm.pipeline.files import fingerprint_of_files, fingerprint_of_judge
from multimdm.pipeline.hub import local_directory

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_KINDS = (
    "it can be tales, smollm2, a directory or Hub name of a Hugging Face causal language model, a .gguf file, or the "
    "directory of an autoregressive checkpoint of ours"
)


class LanguageModel(NamedTuple):
    """A network with its tokenizer, as `transformers` has them."""

    network: Any
    tokenizer: Any

    @property
    def context(self) -> int:
        """The most tokens that the network can look at."""
        config = self.network.config
        return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", 1024)


@dataclass(frozen=True)
class Found:
    """A model as it lies on disk."""

    label: str
    fingerprint: str
    content: Model | LanguageModel


def find_language_model(name: str, device: torch.device, role: str) -> Found:
    """Load it; errors call it by its role (judge, teacher) and name."""
    path = smollm2_file(role) if name == SMOLLM2 else Path(name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ValueError(f"{role} '{name}' is a file, but not a .gguf file; {_KINDS}")
        return Found(path.name, fingerprint_of_files([path]), load_causal_lm(str(path), device, role))
    offline = False
    if path.is_dir():
        path = local_directory(path)
        label, config, fingerprint = label_of(name), path / "config.json", fingerprint_of_judge(path)
    else:
        label, (config, offline) = name, _hub_config(name, role)
        # Local copies lie in a folder that is named by the commit, which stands for the weights too.
        fingerprint = f"{name} {config.parent.name} {fingerprint_of_files([config])}"
    ours = _is_ours(config, role)
    return Found(label, fingerprint, load(name, device) if ours else load_causal_lm(name, device, role, offline))


def check_installed(name: str, role: str) -> None:
    """Refuse a model whose packages are missing. It is not opened: that comes after hours of other work."""
    path = smollm2_file(role) if name == SMOLLM2 else Path(name)
    if (path / "config.json").is_file() and _is_ours(path / "config.json", role):
        return
    wanted = ["transformers", *(["accelerate", "gguf"] if path.suffix == ".gguf" else [])]
    missing = [package for package in wanted if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(f"{role} '{name}' needs {' and '.join(missing)}: pip install 'multimdm[eval]'")


def load_causal_lm(
    path_or_name: str, device: torch.device, role: str = "judge", offline: bool = False
) -> LanguageModel:
    """From a directory, a GGUF file or a name on the Hub; an error that tells what is missing. With `offline`, what was
    fetched before is used, and the Hub is not asked."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise ValueError(f"this {role} needs transformers: pip install 'multimdm[eval]'") from None
    place, options = path_or_name, {}
    if Path(path_or_name).is_file():
        place, options = str(Path(path_or_name).parent), {"gguf_file": Path(path_or_name).name}
    weights = options or {"use_safetensors": True}  # pickles run code when they are opened
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=offline, **options)
        network = AutoModelForCausalLM.from_pretrained(
            place, trust_remote_code=False, local_files_only=offline, **weights
        )
    except Exception as error:  # the package has many kinds of failure
        hint = "; GGUF files need gguf and accelerate: pip install 'multimdm[eval]'" if options else ""
        raise ValueError(
            f"{role} '{path_or_name}' cannot be loaded as a causal language model ({reason(error)}){hint}"
        ) from None
    if next(network.parameters()).dtype != torch.float32:  # GGUF models are widened already, and refuse to be asked
        network = network.float()
    network.eval()
    network.to(device)  # pyright: ignore[reportArgumentType]
    return LanguageModel(network, tokenizer)


def _is_ours(config: Path, role: str) -> bool:
    """Whether a config.json is that of a checkpoint of ours."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{role}: {config} is missing or no JSON; {_KINDS}") from None
    return isinstance(content, dict) and {"network", "process"} <= set(content)


def _hub_config(name: str, role: str) -> tuple[Path, bool]:
    """The local copy of a Hub model's config.json, the cheapest proof that there is one; whether the Hub is silent."""
    if not _HUB_NAME.fullmatch(name):
        raise ValueError(f"{role} '{name}' cannot be found: there is no such file or directory; {_KINDS}")
    from huggingface_hub import hf_hub_download

    why = hub_silence(name)
    try:
        return Path(hf_hub_download(name, "config.json", local_files_only=why is not None)), why is not None
    except Exception as error:  # the client has many kinds of failure
        raise ValueError(
            f"{role} '{name}' cannot be found: it is no file or directory here, and the Hub does not give it to us "
            f"({why or reason(error)}); {_KINDS}"
        ) from None
