"""From the name of a judge to the judge, before any sampling is done."""

import json
import re
from pathlib import Path

from multimdm.evaluation.fingerprints import fingerprint_of_files
from multimdm.evaluation.judges.autoregressive import AutoregressiveJudge
from multimdm.evaluation.judges.base import Judge
from multimdm.evaluation.judges.causal_lm import load_causal_lm
from multimdm.evaluation.judges.exact import TalesJudge
from multimdm.evaluation.settings import label_of
from multimdm.evaluation.tales_models import tales_for
from multimdm.pipeline import Model, load
from multimdm.pipeline.generation import length_of, tokenizer_of

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_KINDS = (
    "a judge is tales, a directory or Hub name of a Hugging Face causal language model, a .gguf file, or the directory "
    "of an autoregressive checkpoint of ours"
)


def make_judge(name: str, model: Model, length: int | None = None) -> Judge:
    """The judge of this name for samples of the model; an error that tells what cannot be found."""
    L = length_of(model, length)
    if name == "tales":
        return TalesJudge(tales_for(model, L))
    reader, device = tokenizer_of(model, f"the judge '{name}'"), next(model.network.parameters()).device
    path = Path(name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ValueError(f"judge '{name}' is a file, but not a .gguf file; {_KINDS}")
        return load_causal_lm(name, path.name, fingerprint_of_files([path]), reader, device)
    if path.is_dir():
        label, config, fingerprint = label_of(name), path / "config.json", fingerprint_of_files(path.iterdir())
    else:
        label, config = name, _hub_config(name)
        fingerprint = f"{name} {fingerprint_of_files([config])}"
    if _is_ours(config):
        judge = load(name)
        judge.network.to(device)
        return AutoregressiveJudge(label, fingerprint, judge, reader, L)
    return load_causal_lm(name, label, fingerprint, reader, device)


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
