"""What `multimdm prepare` costs beyond the tokenizer itself, as a ratio in one run.

    python benchmarks/prepare.py

50 MB of English with GPT-2's tokenizer, from a plain text file to packed arrays on disk, against the bare `tokenizers`
calls on the same documents, held in memory and in batches of the same size. `encode_batch_fast`, which prepare uses,
leaves out offsets. Without the shared corpus and tokenizer, the text is made up and the tokenizer is a BPE
trained on it.
"""

import lzma
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tokenizers

from multimdm.data.encoding import BATCH_CHARACTERS
from multimdm.data.foreign_tokenizers import load_tokenizer
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.data.trained_tokenizers import train_bpe

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
MEGABYTES = 50
REPEATS = 3


def corpus() -> str:
    """About 50 MB of text, a document per line."""
    book = SHARED / "corpora" / "classic-fiction" / "fiction.txt.xz"
    if book.exists():
        with lzma.open(book, "rt", encoding="utf-8") as file:
            return file.read(MEGABYTES * 1_000_000)
    generator = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(generator.choice(letters, generator.integers(2, 10))) for _ in range(20_000)])
    ranks = np.minimum(generator.zipf(1.3, MEGABYTES * 150_000), len(words)) - 1
    return "\n".join(" ".join(line) for line in np.split(words[ranks], range(30, len(ranks), 30)))


def tokenizer_directory(text: str, folder: Path) -> Path:
    """GPT-2's tokenizer, or one made here."""
    if (SHARED / "tokenizers" / "gpt2").exists():
        return SHARED / "tokenizers" / "gpt2"
    directory = folder / "tokenizer"
    directory.mkdir()
    train_bpe(text[:5_000_000].split("\n"), 8192).save(directory)
    return directory


def batches(text: str) -> list[list[str]]:
    """The documents as prepare hands them over."""
    result: list[list[str]] = [[]]
    room = BATCH_CHARACTERS
    for line in text.split("\n"):
        if line and not line.isspace():
            result[-1].append(line)
            room -= len(line)
            if room <= 0:
                result.append([])
                room = BATCH_CHARACTERS
    return result


def main() -> None:
    """Run the three in turn and print medians and ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = corpus()
        file = folder / "corpus.txt"
        file.write_text(text, encoding="utf-8")
        directory = tokenizer_directory(text, folder)
        documents = batches(text)
        load_tokenizer(str(directory)).save(folder)
        bare = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        options = PrepareOptions(sources=(str(file),), tokenizer=str(directory), length=1024)

        def run(encode: Callable[..., list]) -> None:
            for batch in documents:
                encode(batch, add_special_tokens=False)

        def whole() -> None:
            prepare(options, folder / "out")
            shutil.rmtree(folder / "out")

        works = {
            "bare encode_batch": lambda: run(bare.encode_batch),
            "bare encode_batch_fast": lambda: run(bare.encode_batch_fast),
            "prepare": whole,
        }
        seconds: dict[str, list[float]] = {work: [] for work in works}
        for _ in range(REPEATS):
            for work, call in works.items():
                start = time.perf_counter()
                call()
                seconds[work].append(time.perf_counter() - start)
        size = file.stat().st_size
    print(f"tokenizers {tokenizers.__version__}, {platform.machine()}")
    print(f"{size / 1e6:.1f} MB, {sum(map(len, documents)):,} documents; medians of {REPEATS}\n")
    medians = {work: statistics.median(times) for work, times in seconds.items()}
    for work, median in medians.items():
        print(f"  {work:<24} {median:7.2f} s  {size / 1e6 / median:6.1f} MB/s")
    print("\n| ratio | measured | aim |\n|---|---|---|")
    print(f"| prepare / bare encode_batch | {medians['prepare'] / medians['bare encode_batch']:.2f} | at most 1.3 |")
    print(f"| prepare / bare encode_batch_fast | {medians['prepare'] / medians['bare encode_batch_fast']:.2f} | - |")


if __name__ == "__main__":
    main()
