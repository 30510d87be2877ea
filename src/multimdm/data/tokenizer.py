"""One tokenizer class for all: foreign, trained here, or characters.

It wraps the Rust tokenizer of the `tokenizers` package with the roles that packing needs. Saved, it is `tokenizer.json`
and `tokenizer_config.json`, which `transformers.AutoTokenizer` reads too.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from multimdm._files import parse_json, read_json, read_text
from multimdm._inert import inert, reason, shown

ROLES = ("bos", "eos", "pad", "unk", "mask")
"""Special tokens a tokenizer may have; any may be missing."""
TURN_ENDS = ("<|eot_id|>", "<|im_end|>")
"""What tokenizers call the end of a turn: LLaDA's (and LLaMA's), and ChatML's."""
_SENTENCE_START = re.compile(r"(?:^|(?<=[.!?]\s))(?P<word>\w[\w']*)")
_FILE, _CONFIG, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_BEFORE_MODEL = ("normalizer", "pre_tokenizer")
"""Parts of a definition that may turn text into bytes."""
_SPACES = "▁Ġ"
"""How spaces are written in vocabularies: put before a character, too."""
_MOST_TOKENS = 2**24
"""Far above any vocabulary there is."""
_MOST_BYTES = 2**28
"""The longest definition."""


class Tokenizer:
    """Text to ids 0..V-1 and back.

    Text that spells a special token, such as `[MASK]` or `<|endoftext|>`, is encoded as ordinary characters: ids of
    special tokens come from packing alone, and no document can forge the end of one.
    """

    def __init__(
        self,
        definition: str,
        roles: Mapping[str, str | None],
        name: str,
        sentence_case: bool = False,
        chat_template: str | None = None,
    ) -> None:
        """`definition` is the text of a tokenizer.json; `roles` maps names of ROLES to tokens of it.

        With `sentence_case`, decoded sentences begin with a capital, which encoding takes back if no token has it.
        `chat_template` is how a conversation is written, in Jinja.
        """
        from tokenizers import Tokenizer as Backend

        self.name = name
        """What it was asked for by: a directory, a Hub name, `bpe:SIZE` or `chars`."""
        # The text is kept as it came: written out by another version of the package it could differ in form, and so
        # in its fingerprint.
        self._definition = definition
        self._roles = {role: roles.get(role) for role in ROLES}
        for role, token in self._roles.items():
            if token is not None and not isinstance(token, str):
                raise ValueError(f"tokenizer '{name}': its {role} token must be a text; got {shown(token)}")
        if chat_template is not None and not isinstance(chat_template, str):
            raise ValueError(f"tokenizer '{name}': chat_template must be a text; got {shown(chat_template)}")
        parsed = parse_json(definition, f"tokenizer '{name}': tokenizer.json")  # the package aborts at what is too deep
        try:
            self._backend = Backend.from_str(definition)
        except BaseException as error:  # the package raises bare Exceptions; its panics are not even that
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise ValueError(f"tokenizer '{name}': not a readable tokenizer.json ({reason(error)})") from None
        self._backend.encode_special_tokens = True
        self._backend.no_padding()
        self._backend.no_truncation()
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        if not vocabulary or max(vocabulary.values()) >= _MOST_TOKENS:
            raise ValueError(
                f"tokenizer '{name}': its ids must lie in 0..{_MOST_TOKENS - 1:,}; the largest is "
                f"{max(vocabulary.values(), default='missing')}"
            )
        self.vocab_size: int = max(vocabulary.values()) + 1
        """V: the number of clean tokens, special ones included."""
        for role, token in self._roles.items():
            if token is not None and token not in vocabulary:
                raise ValueError(f"tokenizer '{name}': its {role} token {shown(token)} is not in its vocabulary")
        ids = {role: None if token is None else vocabulary[token] for role, token in self._roles.items()}
        self.bos_id: int | None = ids["bos"]
        self.eos_id: int | None = ids["eos"]
        self.pad_id: int | None = ids["pad"]
        self.unk_id: int | None = ids["unk"]
        self.mask_id: int | None = ids["mask"]
        """A mask inside the vocabulary, as BERT's 103; data never contain it."""
        self.chat_template = chat_template
        """How a conversation becomes a text (`multimdm.data.chat`); None if the tokenizer does not say."""
        self._sentence_case = sentence_case
        self._tokens = vocabulary
        self._special = self._special_tokens()
        self._lacking: dict[str, bool] = {}
        self.loses: bool = self._leaves_out(parsed)
        """Whether what no token stands for vanishes from the ids without a trace (`lost`)."""
        self.fingerprint: str = _fingerprint(definition, self._roles)
        """sha256 of the definition and the roles: equal fingerprints mean equal ids."""

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer({self.name!r}, vocab_size={self.vocab_size}, fingerprint={self.fingerprint[:12]})"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, without special tokens."""
        texts = [self._uncapitalised(text) for text in texts]
        try:
            return [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]
        except Exception as error:  # the package raises bare Exceptions
            if not str(error).startswith("WordLevel"):
                raise
            raise ValueError(
                f"tokenizer '{self.name}' has no token for a word of the text: {shown(self._unknown_word(texts))}"
            ) from None

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_given(self, text: str) -> list[int]:
        """Ids of what a person wrote; a character that no token stands for is an error, and not lost in silence."""
        ids = self.encode(text)
        if (lost := self._lost(text, ids)) is not None:
            raise ValueError(
                f"tokenizer '{self.name}' has no token for {lost!r} in the text; leave it out, or write it otherwise"
            )
        return ids

    def _lost(self, text: str, ids: list[int]) -> str | None:
        """The first piece of the text that became the unknown token, or nothing at all."""
        if self.loses:
            return next(iter(self.lost(text)), None)
        encoding = self._backend.encode(self._uncapitalised(text), add_special_tokens=False)
        if self.unk_id is not None and self.unk_id in ids:
            start, end = encoding.offsets[encoding.ids.index(self.unk_id)]
            return text[start:end] or text[start : start + 1]
        covered = bytearray(len(text))
        for start, end in encoding.offsets:
            covered[start:end] = b"\1" * (end - start)
        return next((c for c, seen in zip(text, covered, strict=False) if not seen and not c.isspace()), None)

    def lost(self, text: str) -> str:
        """The characters that vanish from the ids of the text; none unless this tokenizer `loses` some.

        White space is not counted: many tokenizers leave it out by design.
        """
        if not self.loses:
            return ""
        text = self._without_whole_words(text)
        # Offsets do not tell: the package closes the gap, as if the end of the word were missing.
        lacking = {c for c in set(text) if self._lacks(c)}
        return "".join(c for c in text if c in lacking) if lacking else ""

    def _without_whole_words(self, text: str) -> str:
        """The text without words that are tokens, where BPE looks for whole words before letters."""
        backend = self._backend
        if not getattr(backend.model, "ignore_merges", False) or backend.normalizer or not backend.pre_tokenizer:
            return text
        words = backend.pre_tokenizer.pre_tokenize_str(text)
        return "".join(text[start:end] for word, (start, end) in words if word not in self._tokens)

    def _lacks(self, character: str) -> bool:
        known = self._lacking.get(character)
        if known is None:
            known = self._lacking[character] = not character.isspace() and not self._spells(character)
        return known

    def _spells(self, character: str) -> bool:
        """Whether BPE finds tokens for all that the parts before it make of a character."""
        backend, model, tokens = self._backend, self._backend.model, self._tokens
        if character in tokens:
            return True
        text = character if backend.normalizer is None else backend.normalizer.normalize_str(character)
        if backend.pre_tokenizer is not None:
            text = "".join(piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text))
        first, last = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
        for c in text:
            if c in _SPACES or not tokens.keys().isdisjoint({c, first + c, c + last, first + c + last}):
                continue
            if not (model.byte_fallback and all(f"<0x{byte:02X}>" in tokens for byte in c.encode())):
                return False
        return True

    def _leaves_out(self, definition: dict[str, Any]) -> bool:
        """BPE without an unknown token leaves out what it lacks, unless every byte is a token."""
        from tokenizers import models, pre_tokenizers

        model = self._backend.model
        if not isinstance(model, models.BPE) or model.unk_token is not None:
            return False  # the other models complain
        if model.byte_fallback and all(f"<0x{byte:02X}>" in self._tokens for byte in range(256)):
            return False
        in_bytes = '"ByteLevel"' in json.dumps([definition.get(part) for part in _BEFORE_MODEL])
        return not (in_bytes and all(byte in self._tokens for byte in pre_tokenizers.ByteLevel.alphabet()))

    def _uncapitalised(self, text: str) -> str:
        return _SENTENCE_START.sub(self._plain_start, text) if self._sentence_case else text

    @property
    def tokens(self) -> list[str | None]:
        """Every token as the vocabulary spells it, by its id; None where an id has none."""
        spelt: list[str | None] = [None] * self.vocab_size
        for token, i in self._tokens.items():
            spelt[i] = token
        return spelt

    @property
    def special_tokens(self) -> dict[str, int]:
        """Tokens that no ordinary text has, such as ends of text, by what they are called."""
        return dict(self._special)

    @property
    def turn_ends(self) -> tuple[int, ...]:
        """Special tokens that end a turn of a conversation."""
        return tuple(self._special[token] for token in TURN_ENDS if token in self._special)

    def encode_template(self, text: str) -> list[int]:
        """Ids of a text in which special tokens are written out and mean themselves: for chat templates."""
        self._backend.encode_special_tokens = False
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        finally:
            self._backend.encode_special_tokens = True

    def role_tokens(self) -> dict[str, str]:
        """The tokens of the roles that are filled, as `bos_token` and so on: what templates may name."""
        return {f"{role}_token": token for role, token in self._roles.items() if token is not None}

    def _special_tokens(self) -> dict[str, int]:
        return {token.content: i for i, token in self._backend.get_added_tokens_decoder().items() if token.special}

    def decode(self, ids: Iterable[Any], keep_special: bool = False) -> str:
        """The text of ids (a list, array or tensor of integers), without special tokens unless they are to be kept."""
        numbers = [int(i) for i in ids]
        for i in numbers:
            if not 0 <= i < self.vocab_size:
                raise ValueError(f"id {i} is not a token of '{self.name}'; ids are 0 to {self.vocab_size - 1}")
        text = self._backend.decode(numbers, skip_special_tokens=not keep_special)
        return _SENTENCE_START.sub(_capital, text) if self._sentence_case else text

    def _plain_start(self, start: re.Match) -> str:
        """The first word of a sentence as the vocabulary has it."""
        return start[0] if start["word"] in self._tokens else start[0][0].lower() + start[0][1:]

    def _unknown_word(self, texts: list[str]) -> str:
        """The first word that is no token."""
        words = (piece for text in texts for piece, _ in self._backend.pre_tokenizer.pre_tokenize_str(text))
        return next(word for word in words if word not in self._tokens)

    def save(self, directory: str | Path) -> None:
        """Write the two files into an existing directory."""
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "multimdm_name": self.name}
        config |= self.role_tokens()
        if self.chat_template is not None:
            config["chat_template"] = self.chat_template
        if self._sentence_case:
            config["multimdm_sentence_case"] = True
        directory = Path(directory)
        (directory / _FILE).write_text(self._definition, encoding="utf-8")
        (directory / _CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """The tokenizer that `save` wrote."""
        definition, config = _read(Path(directory))
        return cls(
            definition,
            _config_roles(config),
            inert(str(config["multimdm_name"]))[:200],
            bool(config.get("multimdm_sentence_case")),
            config.get("chat_template") or _template_beside(Path(directory)),
        )

    @staticmethod
    def saved_in(directory: str | Path) -> bool:
        """Whether the directory holds a tokenizer that `save` wrote."""
        config = Path(directory) / _CONFIG
        return config.is_file() and "multimdm_name" in read_text(config)

    @staticmethod
    def saved_fingerprint(directory: str | Path) -> str:
        """The fingerprint of a saved tokenizer, without building it."""
        definition, config = _read(Path(directory))
        return _fingerprint(definition, _config_roles(config))


def _capital(start: re.Match) -> str:
    return start[0][0].upper() + start[0][1:]


def _read(directory: Path) -> tuple[str, dict[str, Any]]:
    for name in (_FILE, _CONFIG):
        if not (directory / name).is_file():
            raise ValueError(f"{directory} holds no saved tokenizer: {name} is missing")
    config = read_json(directory / _CONFIG)
    if "multimdm_name" not in config:
        raise ValueError(f"{directory} holds a foreign tokenizer; open it with load_tokenizer")
    return read_text(directory / _FILE, _MOST_BYTES), config


def _template_beside(directory: Path) -> str | None:
    """The chat template where transformers puts it."""
    file = directory / _TEMPLATE
    return read_text(file) if file.is_file() else None


def _config_roles(config: dict[str, Any]) -> dict[str, str | None]:
    return {role: config.get(f"{role}_token") for role in ROLES}


def _fingerprint(definition: str, roles: Mapping[str, str | None]) -> str:
    ordered = json.dumps([roles[role] for role in ROLES], ensure_ascii=False)
    return hashlib.sha256(f"{definition}\n{ordered}".encode(errors="backslashreplace")).hexdigest()
