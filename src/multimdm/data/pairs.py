"""Prompts and their answers: out of records, and as ids.

The answer is what is learnt; all before it is given. Prompt and answer are encoded apart, since whoever samples has the
prompt alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

import numpy as np

from multimdm.data.chat import Message, chat_pair
from multimdm.data.documents import check_surrogates
from multimdm.data.encoding import Encoded, account_of_lost, token_dtype
from multimdm.data.packing import Ends, Frame
from multimdm.data.tokenizer import Tokenizer
from multimdm.process.settings import PromptForm

Template = Literal["auto", "chat", "plain"]
_TOGETHER = 1024
"""Pairs that are encoded at once."""
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class PairFields:
    """Where prompts and answers are in a record; one with `messages` needs neither."""

    prompt: str = "prompt"
    answer: str = "answer"


class Pair(NamedTuple):
    """What is given, and what is to be said then."""

    said: tuple[Message, ...]
    """A conversation up to the answer; of a plain prompt, one message of the user."""
    answer: str
    where: str
    """The place in the source, for errors."""
    conversation: bool = False
    """Whether it came as messages, whose roles only a template can write."""

    def texts(self) -> Iterator[str]:
        """All of it, to make a tokenizer of."""
        yield from (message["content"] for message in self.said)
        yield self.answer


def pair_of(record: Mapping[str, Any], fields: PairFields, where: str) -> Pair:
    """The pair of a record: its prompt and answer, or its messages, of which the last is the answer."""
    if "messages" in record:
        return _of_messages(record["messages"], where)
    for name, option in ((fields.prompt, "prompt"), (fields.answer, "answer")):
        if name not in record:
            names = ", ".join(f"'{key}'" for key in record) or "none"
            raise ValueError(
                f"{where}: no field '{name}' for the {option}, only {names}; choose one with --{option}-field, or give "
                "'messages'"
            )
        if not isinstance(record[name], str):
            raise ValueError(f"{where}: field '{name}' is {record[name]!r:.40}, not text")
    _check_answer(record[fields.answer], where, f"field '{fields.answer}'")
    check_surrogates(record[fields.prompt], where)
    return Pair(({"role": "user", "content": record[fields.prompt]},), record[fields.answer], where)


def _of_messages(messages: Any, where: str) -> Pair:
    if not isinstance(messages, list) or len(messages) < 2:
        raise ValueError(f"{where}: 'messages' must be a list of at least two, a question and its answer")
    for number, message in enumerate(messages, start=1):
        role, content = (message.get(key) if isinstance(message, dict) else None for key in ("role", "content"))
        if role not in _ROLES or not isinstance(content, str):
            raise ValueError(
                f"{where}: message {number} must have a role ({', '.join(_ROLES)}) and a text as its content; "
                f"got {message!r:.60}"
            )
        check_surrogates(content, where)
    last = messages[-1]
    if last["role"] != "assistant":
        raise ValueError(f"{where}: there is no answer: the last message must be the assistant's; it is {last['role']}")
    _check_answer(last["content"], where, "the last message")
    said = tuple({"role": message["role"], "content": message["content"]} for message in messages[:-1])
    return Pair(said, last["content"], where, conversation=True)


def _check_answer(answer: str, where: str, what: str) -> None:
    if not answer.strip():
        raise ValueError(f"{where}: {what} is empty: there is no answer to learn; leave the line out")
    check_surrogates(answer, where)


def prompt_form(template: Template, ends: Ends, tokenizer: Tokenizer) -> PromptForm:
    """How prompts are written with this tokenizer; an error if they cannot be, or if answers could not end."""
    if tokenizer.eos_id is None:
        raise ValueError(f"--tokenizer {tokenizer.name}: it has no EOS, by which an answer ends")
    if template == "chat" and tokenizer.chat_template is None:
        raise ValueError(
            f"--template chat: tokenizer '{tokenizer.name}' has no chat template; take that of a chat model, or "
            "--template plain"
        )
    if template == "chat" or (template == "auto" and tokenizer.chat_template is not None):
        return "chat"
    return "bos" if ends == "both" and tokenizer.bos_id is not None else "plain"


def pair_frame(tokenizer: Tokenizer, length: int, form: PromptForm, dtype: np.dtype) -> Frame:
    """[BOS] prompt answer EOS EOS ...: the rest of a sequence repeats the end, as a token that is learnt."""
    assert tokenizer.eos_id is not None
    bos = tokenizer.bos_id if form == "bos" else None  # templates write it themselves
    return Frame(length, bos, tokenizer.eos_id, tokenizer.eos_id, dtype)


def encode_pairs(
    pairs: Iterable[Pair], tokenizer: Tokenizer, form: PromptForm, room: int | None = None
) -> Iterator[Encoded]:
    """Ids of pairs; one that does not fit into the `room` is an error, unless that is None."""
    dtype = token_dtype(tokenizer.vocab_size)
    pairs = iter(pairs)
    while some := list(islice(pairs, _TOGETHER)):
        rows = [_encode(pair, tokenizer, form) for pair in some]
        lengths = np.array([len(prompt) + len(answer) for prompt, answer in rows], dtype=np.int64)
        for pair, (prompt, answer), length in zip(some, rows, lengths, strict=True):
            if room is not None and length > room:
                raise ValueError(
                    f"{pair.where}: a prompt of {len(prompt)} tokens and an answer of {len(answer)} do not fit into "
                    f"the {room} positions of a sequence; raise --length, or leave such pairs out with --too-long drop"
                )
        ids = np.fromiter(chain.from_iterable(chain(*row) for row in rows), dtype, int(lengths.sum()))
        starts = np.array([len(prompt) for prompt, _ in rows], dtype=np.int64)
        lost = None
        if tokenizer.loses:
            missing = [tokenizer.lost("".join(pair.texts())) for pair in some]
            lost = account_of_lost(missing, np.ones(len(some), dtype=bool))
        yield Encoded(ids, lengths, starts, lost)


def _encode(pair: Pair, tokenizer: Tokenizer, form: PromptForm) -> tuple[list[int], list[int]]:
    if form == "chat":
        try:
            return chat_pair(tokenizer, pair.said, pair.answer)
        except ValueError as error:
            raise ValueError(f"{pair.where}: {error}") from None
    if pair.conversation:
        raise ValueError(
            f"{pair.where}: 'messages' need a chat template, and tokenizer '{tokenizer.name}' "
            f"{'has none' if tokenizer.chat_template is None else 'is not to use its own (--template plain)'}; "
            "give prompts and answers as two fields, or a tokenizer with a template"
        )
    prompt, answer = tokenizer.encode_batch([pair.said[0]["content"], pair.answer])
    if not answer:
        raise ValueError(f"{pair.where}: tokenizer '{tokenizer.name}' has no token for any of the answer")
    return prompt, answer
