"""Do the loaders stand files of strangers? Mutants of every file they read must load, or be refused in one sentence.

    python benchmarks/fuzz.py --mutants 100000 --seed 0
    python benchmarks/fuzz.py --first 60000 --mutants 40000 --seed 0   # the last 40,000 of those

A mutant passes if its loader returns, or raises a ValueError or OSError whose message is one line of plain text, within
two seconds of the processor and with memory bounded, and if no file outside of its directory was opened. Which mutants
there are is a function of the seed alone; what fails is printed with its number, and `--only NUMBER` runs it again.
Ctrl-C ends with the account so far, and tells where `--first` goes on.
"""

import argparse
import contextlib
import io
import json
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
import yaml

SECONDS = 2.0
"""Of the processor, for one mutant."""
MEMORY = 2**31
"""Bytes of address space beyond what the process has before the first mutant."""
LONGEST = 1000
"""Characters of a message."""


@dataclass(frozen=True)
class Target:
    """A file, and who reads it."""

    name: str
    path: Path
    load: Callable[[], object]
    kind: str
    """json, yaml or safetensors: how it is taken apart."""


@dataclass
class Findings:
    """What came of the mutants."""

    loaded: int = 0
    refused: int = 0
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """Number of the mutant, its target, and what is wrong."""
    seen: Counter = field(default_factory=Counter)


VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 2**31, 2**40, 2**63, 2**64, -(2**40), 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf")),
    *(None, True, False, "", "0", "a" * 5000, "../outside/model.safetensors", "/etc/passwd", "outside", "..", "~"),
    *("<script>alert(1)</script>", "\x1b[31mred\x1b[0m", "\u202egnirts", "nul\0", "\ud800", "multimask", "hybrid"),
    *([], {}, [[]], [1, 2, 3], {"a": 1}, [None] * 1000, ["a", 1], {"": {}}, [-1], [2**40]),
)
"""What a field may be replaced by."""
TEXTS = (
    *(b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"\0" * 100, b"\xff\xfe", b"NaN", b"-Infinity", b"null", b""),
    *(b"&a [*a]", b"!!int ''", b"!!python/object/apply:os.system ['true']", b"!!timestamp 2020-13-45", b"!!binary x"),
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
)
"""What a piece of a file may be replaced by."""
UNREADABLE = (
    *(ValueError, KeyError, IndexError, RecursionError, struct.error, yaml.YAMLError),
    *(AttributeError, TypeError),  # PyYAML's, of a tag whose value is of another kind
)
"""What taking apart a mutant may end with, which is then changed by its bytes alone."""


def targets(place: Path) -> list[Target]:
    """Small files of every kind, and their loaders."""
    from multimdm.data.prepared import PreparedData
    from multimdm.data.tokenizer import Tokenizer
    from multimdm.pipeline import load
    from multimdm.training.recipes import parse_recipe, read_yaml
    from multimdm.training.schema import RECIPES
    from multimdm.training.shipped import by_command, shipped

    found = []
    _checkpoint().save(place / "dit")
    _checkpoint().save(place / "outside")
    _llada(place / "llada")
    _prepared(place)
    for folder in ("dit", "llada"):
        for name in sorted(path.name for path in (place / folder).iterdir()):
            path = place / folder / name
            kind = "safetensors" if name.endswith(".safetensors") else "json"
            found.append(Target(f"{folder}/{name}", path, lambda directory=path.parent: load(directory), kind))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = place / "dit" / name
        found.append(Target(f"tokenizer/{name}", path, lambda: _round_trip(Tokenizer.load(place / "dit")), "json"))
    for name in ("manifest.json", "tokenizer.json", "tokenizer_config.json"):
        path = place / "prepared" / name
        found.append(Target(f"prepared/{name}", path, lambda: PreparedData.open(place / "prepared")[0], "json"))
    (place / "recipes").mkdir()
    files = shipped()
    for command, names in by_command().items():
        for name in list(names)[:3]:
            path = place / "recipes" / f"{name}.yaml"
            path.write_bytes(files[name].read_bytes())
            read = lambda p=path, c=command: parse_recipe(read_yaml(p), RECIPES[c], str(p))  # noqa: E731
            found.append(Target(f"recipe/{name}", path, read, "yaml"))
    return found


def _checkpoint() -> Any:
    from multimdm.models import DiT, DiTConfig
    from multimdm.pipeline import Model
    from multimdm.process import MultiMask
    from multimdm.samplers import SamplingAdvice

    tokenizer = _tokenizer()
    V = tokenizer.vocab_size
    config = DiTConfig(vocab_size=V, num_masks=2, hidden_dim=8, num_blocks=2, num_heads=2, cond_dim=4, max_length=8)
    lineage = ({"command": "pretrain", "name": "x", "steps": 3, "recipe": {"data": {"kind": "tales"}}},)
    advice = SamplingAdvice(order="confidence", temperature=0.5, steps=2)
    order = torch.arange(V)
    return Model(DiT(config), MultiMask(V, 2), tokenizer, lineage=lineage, advice=advice, cell_order=order)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    from multimdm.data.tokenizer import Tokenizer

    words = ["a", "dog", "runs", "over", "the", "grass", "[UNK]", "[END]"]
    backend = Backend(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[END]"])
    return Tokenizer(backend.to_str(), {"eos": "[END]", "unk": "[UNK]"}, "words")


def _llada(place: Path) -> None:
    """In several files, with an index and two masks."""
    from multimdm.models import LLaDA, LLaDAConfig
    from multimdm.pipeline.llada import save_llada
    from multimdm.process import MultiMask

    sizes: dict[str, Any] = {"hidden_dim": 8, "num_blocks": 2, "num_heads": 2, "num_kv_heads": 1, "mlp_dim": 8}
    config = LLaDAConfig(vocab_size=8, mask_rows=(7, 8), num_rows=9, max_length=8, **sizes)
    place.mkdir()
    save_llada(LLaDA(config).initialise(), MultiMask(8, 2), (), place, shard_bytes=1000)


def _prepared(place: Path) -> None:
    from multimdm.cli.main import main

    (place / "lines.txt").write_text("a dog runs over the grass\n" * 20)
    _tokenizer().save(_made(place / "words"))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        arguments = [str(place / "lines.txt"), "--tokenizer", str(place / "words"), "--layout", "padded"]
        assert main(["prepare", *arguments, "--length", "8", "--out", str(place / "prepared")]) == 0


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _round_trip(tokenizer: Any) -> None:
    """A tokenizer that loads must also work, or say why not."""
    tokenizer.decode(tokenizer.encode("a dog runs"))


def mutant(target: Target, content: bytes, rng: random.Random) -> bytes:
    """One to three changes: of the structure, or of bytes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.6:
            with contextlib.suppress(*UNREADABLE):
                content = _other_structure(target.kind, content, rng)
                continue
        content = _other_bytes(content, rng)
    return content


def _other_structure(kind: str, content: bytes, rng: random.Random) -> bytes:
    if kind == "yaml":
        return yaml.safe_dump(_changed(yaml.safe_load(content), rng), sort_keys=False).encode(errors="surrogatepass")
    if kind == "json":
        return json.dumps(_changed(json.loads(content), rng)).encode()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.dumps(_changed(json.loads(content[8 : 8 + size]), rng)).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _changed(value: Any, rng: random.Random) -> Any:
    """The data with one place of them changed."""
    places = list(_places(value))
    if not places:
        return rng.choice(VALUES)
    parent, key = rng.choice(places)
    what = rng.random()
    if what < 0.65:
        parent[key] = rng.choice(VALUES)
    elif what < 0.75:
        del parent[key]
    elif what < 0.85 and isinstance(parent[key], int | float):
        parent[key] = rng.choice((parent[key] + 1, parent[key] - 1, -parent[key], parent[key] * 2, str(parent[key])))
    elif isinstance(parent, dict):
        parent[rng.choice((f"{key}x", "zebra", "\x1b[2J", "__class__", "\u202e"))] = parent[key]
    else:
        parent.append(parent[key])
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(inside):
        yield value, key
        yield from _places(inner)


def _other_bytes(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    here = rng.randrange(len(data) + 1)
    there = min(len(data), here + rng.choice((1, 1, 2, 8, 64, 1000)))
    what = rng.randrange(6)
    if what == 0 and data:
        data[min(here, len(data) - 1)] ^= 1 << rng.randrange(8)
    elif what == 1:
        del data[here:there]
    elif what == 2:
        data[here:here] = data[here:there]
    elif what == 3:
        data[here:there] = rng.randbytes(there - here)
    elif what == 4:
        del data[here:]
    else:
        data[here:there] = rng.choice(TEXTS)
    return bytes(data)


class Watch:
    """Files that are opened while a loader works, outside of where they may be."""

    def __init__(self, place: Path) -> None:
        self._place, self._on, self.outside = str(place.resolve()), False, list[str]()
        # What libraries read of themselves and of the machine is no file of anyone's.
        homes = (sys.prefix, sys.base_prefix, Path(__file__).parents[1], "/proc", "/sys")
        self._homes = tuple(str(Path(home).resolve()) for home in homes)
        sys.addaudithook(self._hear)
        open_ = safetensors.safe_open

        def safe_open(path: Any, *others: Any, **named: Any) -> Any:
            self._judge(str(path), "r")
            return open_(path, *others, **named)

        safetensors.safe_open = safe_open  # which opens files without Python's help

    def _hear(self, event: str, details: tuple) -> None:
        if self._on and event == "open" and isinstance(details[0], str | bytes | Path):
            name = details[0].decode() if isinstance(details[0], bytes) else str(details[0])
            self._judge(name, str(details[1] or "r"))

    def _judge(self, name: str, mode: str) -> None:
        if not self._on:
            return
        path = str(Path(name).resolve())
        reads_package = path.startswith(self._homes) and not set(mode) & set("wax+")
        if not reads_package and not path.startswith(self.allowed):
            self.outside.append(path)

    @contextlib.contextmanager
    def over(self, directory: Path) -> Iterator[None]:
        """Nothing but this directory may be opened inside."""
        self.allowed, self.outside, self._on = str(directory.resolve()), [], True
        try:
            yield
        finally:
            self._on = False


def attempt(target: Target, watch: Watch) -> tuple[bool, str]:
    """Whether it loads, and what is wrong with how it loads or is refused; "" if nothing is."""
    start, loaded, wrong = time.process_time(), False, ""
    with watch.over(target.path.parent):
        try:
            target.load()
            loaded = True
        except (ValueError, OSError) as error:
            wrong = _wrong_words(str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            wrong = f"{type(error).__name__}: {str(error)[:200]!r} at {Path(last.filename).name}:{last.lineno}"
    if watch.outside:
        wrong = f"opened {watch.outside[0]}"
    if time.process_time() - start > SECONDS:
        wrong = f"took {time.process_time() - start:.1f} s"
    return loaded, wrong


def _wrong_words(message: str) -> str:
    if not message.strip():
        return "an error without words"
    if len(message) > LONGEST:
        return f"a message of {len(message)} characters: {message[:100]!r}"
    if not all(c.isprintable() for c in message):
        return f"a message that is no plain line: {message[:300]!r}"
    return ""


def run(
    numbers: Iterable[int], seed: int, say: Callable[[str], None] = print, tell: Callable[[int], None] = lambda _: None
) -> Findings:
    """Try the mutants of these numbers; `tell` hears how many are done. An interrupt ends with what was found."""
    findings = Findings()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        everything, watch = targets(place), Watch(place)
        contents = {target.path: target.path.read_bytes() for target in everything}
        for target in everything:
            target.load()
        with contextlib.suppress(KeyboardInterrupt):
            for number in numbers:
                rng = random.Random(f"{seed} {number}")
                target = rng.choice(everything)
                target.path.write_bytes(mutant(target, contents[target.path], rng))
                loaded, wrong = attempt(target, watch)
                target.path.write_bytes(contents[target.path])
                findings.seen[target.name] += 1
                if wrong:
                    findings.failures.append((number, target.name, wrong))
                    say(f"mutant {number} of {target.name}: {wrong}")
                elif loaded:
                    findings.loaded += 1
                else:
                    findings.refused += 1
                tell(sum(findings.seen.values()))
    return findings


class Progress:
    """How many are done and how long the rest takes, every ten seconds on standard error."""

    def __init__(self, total: int) -> None:
        self._total, self._begun, self._told = total, time.monotonic(), time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._told >= 10:
            left = (now - self._begun) / done * (self._total - done)
            print(f"{done:,} of {self._total:,}, {left / 60:.0f} min left", file=sys.stderr, flush=True)
            self._told = now


def main() -> int:
    """Tell how many there were, and what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this mutant alone")
    options = parser.parse_args()
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    numbers = range(options.first, options.first + options.mutants)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    start = time.perf_counter()
    findings = run(numbers, options.seed, tell=Progress(len(numbers)))
    tried = sum(findings.seen.values())
    print(
        f"{tried:,} mutants of {len(findings.seen)} files: {findings.loaded:,} loaded, "
        f"{findings.refused:,} refused in one sentence, {len(findings.failures)} failed; "
        f"{time.perf_counter() - start:.0f} s"
    )
    if tried < len(numbers):
        print(f"interrupted; --first {numbers.start + tried} --mutants {len(numbers) - tried} goes on")
    return 1 if findings.failures or tried < len(numbers) else 0


if __name__ == "__main__":
    sys.exit(main())
