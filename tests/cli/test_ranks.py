"""Two ranks sample and measure as one process does, figure by figure; one of them writes and prints. Real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from multimdm.cli.main import main
from multimdm.evaluation.store import Store
from multimdm.pipeline import ranks
from multimdm.pipeline.devices import find_device
from multimdm.pipeline.ranks import Ranks, agreed, current, shared, sharing
from support.addition import sums, write_task
from support.runs import environment
from support.tiny_judges import save_tiny_gpt2
from support.tiny_llada import chat_tokenizer, tiny_llada, write_llada
from support.tiny_models import TALES, causal_tales_model, tales_model

PROGRAM = """
import json, sys
from pathlib import Path
from multimdm.cli.main import main
from multimdm.pipeline.ranks import sharing

def talking():  # threads of a group of ranks; a process that ends with one of them may abort
    return [thread for thread in Path("/proc/self/task").glob("*/comm") if "gloo" in thread.read_text()]

with sharing():  # one meeting for all of the commands; each has its own by itself
    assert not Path("/proc/self/task").exists() or talking()
    assert [main(command) for command in json.loads(sys.argv[1])] == [0] * len(json.loads(sys.argv[1]))
assert not talking()
"""


def commands(models: Path, out: Path) -> list[list[str]]:
    """Everything that is shared out, in parts that do not come out even."""
    one, many, judge = (str(models / name) for name in ("one", "many", "causal"))
    few = ["--steps", "2", "--num", "7", "--batch-size", "3", "--device", "cpu"]
    held_out = ["--sequences", "7", "--strings", "70"]
    harness = ["--tasks", "addition", "--include", str(models / "tasks"), "--tps", "2", "--batch-size", "2"]
    return [
        ["sample", many, *few, "--json", "--trace", "--out", str(out / "samples.json")],
        ["evaluate", many, *few, *held_out, "--nelbo", "--recall", "--against-perfect", "--out", str(out / "many")],
        ["evaluate", one, *few, *held_out, "--likelihood", "confidence", "--judge", judge, "--out", str(out / "one")],
        ["pareto", one, many, *few, "--temperatures", "1", "--judge", str(models / "gpt2"), "--out", str(out / "two")],
        ["evaluate", "--harness", str(models / "llada"), *harness, "--device", "cpu", "--out", str(out / "tasks")],
    ]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tales_model(1).save(folder / "one")
    tales_model(3, seed=1).save(folder / "many")
    causal_tales_model().save(folder / "causal")
    save_tiny_gpt2(folder / "gpt2", list(TALES.vocabulary))
    write_llada(folder / "llada", tiny_llada(), chat_tokenizer())
    write_task(folder / "tasks", sums(5, 3, digits=1), 4)
    return folder


def test_two_ranks_give_the_figures_of_one_process(models, tmp_path, capsys):
    assert [main(command) for command in commands(models, tmp_path / "alone")] == [0] * 5
    printed = capsys.readouterr().out
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    command += [json.dumps(commands(models, tmp_path / "ranks"))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(str(tmp_path / "ranks"), str(tmp_path / "alone")) == printed
    assert done.stderr.count("7 texts of 48 tokens by 2 network calls") == 1
    for name in ("many/results.json", "one/results.json", "two/results.json", "two/pareto.csv", "tasks/results.json"):
        ours, theirs = (tmp_path / place / name for place in ("ranks", "alone"))
        assert ours.read_bytes() == theirs.read_bytes(), name
    ours, theirs = (json.loads((tmp_path / place / "samples.json").read_text()) for place in ("ranks", "alone"))
    assert ours["samples"] == theirs["samples"]
    kept = [sorted(path.name for path in (tmp_path / place / "two/points").iterdir()) for place in ("ranks", "alone")]
    assert kept[0] == kept[1]


class Together:
    """A group of ranks in one process: what the others have sent is known beforehand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rank: int, sent: list) -> None:
        self.sent, self.asked = sent, []
        monkeypatch.setattr(ranks.dist, "all_gather_object", self.gather)
        monkeypatch.setattr(ranks.dist, "broadcast_object_list", self.broadcast)
        self.token = ranks._sharing.set(Ranks(rank, len(sent)))

    def gather(self, places: list, own: bytes) -> None:
        self.asked.append(ranks._unpacked(own, None))
        places[:] = [ranks._packed(value) for value in self.sent]

    def broadcast(self, box: list, src: int) -> None:
        box[0] = ranks._packed(self.sent[src])


@pytest.fixture
def together(monkeypatch):
    made: list[Together] = []

    def make(rank: int, sent: list) -> Together:
        made.append(Together(monkeypatch, rank, sent))
        return made[-1]

    yield make
    for one in reversed(made):
        ranks._sharing.reset(one.token)


def test_parts_go_round_and_come_back_in_order(together):
    group = together(1, [["a", "d"], ["b", "e"], ["c"]])
    done: list[int] = []

    def work(item: int) -> str:
        done.append(item)
        assert current() == Ranks()  # work within the work is one rank's own
        return shared([item], str)[0]

    assert shared(range(5), work) == ["a", "b", "c", "d", "e"]
    assert done == [1, 4]
    assert group.asked == [["1", "4"]]
    assert current() == Ranks(1, 3)


def test_work_that_fails_leaves_the_ranks_as_they_were(together):
    together(0, [[], []])
    with pytest.raises(ZeroDivisionError):
        shared([0], lambda item: 1 / item)
    assert current() == Ranks(0, 2)


def test_one_process_shares_nothing(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with sharing() as us:
        assert us.is_main
        assert us.ranks == 1
        assert shared(iter("ab"), str.upper) == ["A", "B"]
        assert agreed("mine") == "mine"


def test_the_main_rank_says_what_is_known_and_alone_writes(together, tmp_path):
    together(1, ["theirs", None])
    assert agreed("mine") == "theirs"
    other = together(1, [None, None])
    store = Store(tmp_path / "kept")
    assert store.known(Ranks, {}) is None
    other.sent = [Ranks(5, 6), None]  # found by the main rank
    assert store.remembered(Ranks, {}, lambda: pytest.fail("it was there")) == Ranks(5, 6)
    assert not (tmp_path / "kept").exists()


def test_every_rank_takes_the_gpu_of_its_number(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda")
    with pytest.raises(ValueError, match="device cuda:1: every rank takes the GPU of its own number"):
        find_device("cuda:1")
