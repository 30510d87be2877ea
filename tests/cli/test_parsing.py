"""Options that are given more than once: lists add up, single values must agree, in every command."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tyro

from multimdm.cli.main import COMMANDS, main, open_command
from multimdm.cli.parsing import flags_of, gathered, parse

CLI = Path(__file__).parents[2] / "src" / "multimdm" / "cli"


@dataclass(frozen=True)
class Section:
    rate: float = 1.0
    ids: tuple[int, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Options:
    place: tyro.conf.Positional[str] = "here"
    names: tuple[str, ...] = ()
    grid: tuple[float, ...] | str | None = None
    seed: int = 0
    fast: bool = False
    section: Section = field(default_factory=Section)


def read(*words: str, flat: bool = False) -> Options:
    return parse(Options, words, "test", (tyro.conf.OmitArgPrefixes,) if flat else ())


class TestLists:
    def test_pieces_add_up_in_their_order(self):
        assert read("--names", "a", "b", "--seed", "3", "--names", "c").names == ("a", "b", "c")

    def test_values_that_are_attached_by_a_sign(self):
        assert read("--names=a", "--names=b", "c").names == ("a", "b", "c")

    def test_numbers_below_zero(self):
        assert read("--section.ids", "-1", "--section.ids", "-2").section.ids == (-1, -2)

    def test_of_sections_whose_name_is_left_out(self):
        assert read("--ids", "1", "--ids", "2", flat=True).section.ids == (1, 2)

    def test_a_positional_is_not_swallowed(self):
        assert read("there", "--names", "a", "--names", "b") == Options(place="there", names=("a", "b"))

    def test_a_list_or_a_word_takes_all_words(self):
        assert read("--grid", "1", "--grid", "0.5").grid == (1.0, 0.5)

    def test_what_is_given_once_stays_as_it_is(self):
        words = ["there", "--names=--odd", "b", "--seed", "3", "--fast"]
        assert gathered(words, flags_of(Options)) == words


class TestSingleValues:
    def test_two_are_refused(self):
        with pytest.raises(ValueError, match="--seed was given 1 and 2; leave one of them out"):
            read("--seed", "1", "--fast", "--seed=2")

    def test_the_same_twice_is_no_harm(self):
        assert read("--seed", "2", "there", "--seed=2") == Options(place="there", seed=2)

    def test_pairs_are_single_values(self):
        with pytest.raises(ValueError, match=r"--section\.pair was given 0 1 and 0 2"):
            read("--section.pair", "0", "1", "--section.pair", "0", "2")

    def test_on_and_off(self):
        with pytest.raises(ValueError, match="--fast was given True and False"):
            read("--fast", "--no-fast")
        assert read("--fast", "--fast").fast


OPTIONS = {name: name for name in COMMANDS} | {"evaluate --harness": "harness"}


@pytest.mark.parametrize("command", OPTIONS)
def test_the_flags_of_every_command_are_known(command, monkeypatch, capsys):
    """What its help prints, with as many words behind it as the help shows; none is left to the parser alone."""
    monkeypatch.setenv("COLUMNS", "100")  # one column
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    text = capsys.readouterr().out
    printed = re.findall(r"^(?:│ |  )(--\w[^ ,]*)(, --\S+)?( \S.*?)?(?:  | *│| *$)", text, flags=re.MULTILINE)
    options = open_command(OPTIONS[command]).options
    flat = command.split()[0] in ("sample", "evaluate", "pareto", "serve") and "--harness" not in command
    flags = flags_of(options, flat)
    assert bool(printed) == bool(flags)
    for flag, off, words in printed:
        values = flags[flag].values
        assert (values is None) == ("..." in words), (flag, words)
        assert (values == 0) == (not words.strip()), (flag, words)
        if off:
            assert flags[off.removeprefix(", ")].name == flags[flag].name


def test_every_command_reads_its_options_so():
    """The parser by itself keeps the last of several lists."""
    callers = [path.name for path in CLI.glob("*.py") if "tyro.cli(" in path.read_text(encoding="utf-8")]
    assert callers == ["parsing.py"]


def test_both_halves_of_a_mixture_are_in_the_data(tmp_path, monkeypatch):
    """As the guide to LLaDA once printed it, when the first half was lost."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(f"{name}.txt").write_text("".join(f"{name} line {n}\n" for n in range(20)), encoding="utf-8")
    words = "prepare --mix 0.5:a.txt --mix 0.5:b.txt --tokenizer chars --length 16 --out data/both"
    assert main(words.split()) == 0
    manifest = json.loads(Path("data/both/manifest.json").read_text(encoding="utf-8"))
    assert [source["name"] for source in manifest["sources"]] == ["a.txt", "b.txt"]
