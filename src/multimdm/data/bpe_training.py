"""Byte-level byte-pair encoding is trained where a signal can end it.

    python -m multimdm.data.bpe_training SIZE < documents > definition

The package `tokenizers` trains in one call into Rust, and Python hears no signal before that call returns: on much
text, after minutes. So much text is sent to a process of its own, which is ended when this one is asked to stop. Its
standard input is each document as UTF-8 behind its length in bytes; its standard output is one tokenizer.json. Little
text is trained on here, in a moment.
"""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import IO

SPECIAL = {"pad": "<pad>", "bos": "<bos>", "eos": "<eos>"}
"""They get the first ids."""
LITTLE = 1 << 14
"""Characters that this process trains on itself. Where there are no spaces, twice as many take four times as long."""
_LENGTH = struct.Struct("<Q")
_SPELLING = "surrogatepass"
"""Half a surrogate pair reaches the trainer as it came, and it is the trainer that complains."""


def bpe_definition(documents: Iterable[str], size: int) -> str:
    """The tokenizer.json of at most `size` tokens, the same wherever it is trained."""
    documents = iter(documents)
    first: list[str] = []
    room = LITTLE
    for text in documents:
        first.append(text)
        room -= len(text)
        if room <= 0:
            return _trained_apart(chain(first, documents), size)
    return _trained_here(first, size)


def _trained_here(documents: Iterable[str], size: int) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.encode_special_tokens = True
    backend.train_from_iterator(documents, trainer)
    return backend.to_str()


def _trained_apart(documents: Iterable[str], size: int) -> str:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(size)],  # -P: no file of the directory at hand is taken for a module
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        start_new_session=True,  # Ctrl-C goes to every process of a terminal's group, and this one decides
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        try:
            for text in documents:
                data = text.encode("utf-8", _SPELLING)
                _send(process.stdin, _LENGTH.pack(len(data)) + data)
            _send(process.stdin, None)
        except _GoneError:
            pass  # its answer says why, or there is none
        answer = process.stdout.read()
        code = process.wait()
    finally:
        process.kill()  # no harm to one that has ended
        process.wait()
        process.stdout.close()
        with suppress(OSError):
            process.stdin.close()
    if code > 0:
        raise ChildProcessError(
            f"the process that trains the tokenizer failed with exit code {code}; it said why above"
        )
    if code < 0:
        raise ChildProcessError(
            "the process that trains the tokenizer was ended by another, perhaps for want of memory; train it on a "
            "part of the text first (--max-documents), and give its directory as --tokenizer"
        )
    result = json.loads(answer)
    if result["error"] is not None:
        raise ValueError(f"the tokenizer cannot be trained: {result['error']}")
    return result["definition"]


class _GoneError(Exception):
    """Nobody reads what is sent."""


def _send(pipe: IO[bytes], data: bytes | None) -> None:
    try:
        if data is None:
            pipe.close()
        else:
            pipe.write(data)
    except BrokenPipeError:
        raise _GoneError from None


def _received(pipe: IO[bytes]) -> Iterator[str]:
    while header := pipe.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(header)
        yield pipe.read(length).decode("utf-8", _SPELLING)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _main() -> None:
    if hasattr(os, "getppid"):
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answer: dict[str, str | None] = {"definition": None, "error": None}
    try:
        answer["definition"] = _trained_here(_received(sys.stdin.buffer), int(sys.argv[1]))
    except Exception as error:  # the package raises bare Exceptions
        answer["error"] = str(error) or type(error).__name__
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
