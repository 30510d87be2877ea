"""What runs beside training: the writer of checkpoints and the reader of texts."""

import threading

import pytest
import torch

from multimdm.data.prepared import Example
from multimdm.training.background import Background, ReadingAhead
from multimdm.training.checkpoints import Checkpoints
from multimdm.training.loop import train
from support.runs import metrics, tiny_job, weights


def test_tasks_run_one_after_another_beside_the_caller():
    done, may_end = [], threading.Event()
    background = Background()
    background.run(lambda: (may_end.wait(10), done.append("first"))[1])
    assert done == []  # it did not wait
    may_end.set()
    background.run(lambda: done.append("second"))
    background.wait()
    assert done == ["first", "second"]
    background.close()


@pytest.mark.parametrize("told_by", ["run", "wait"])
def test_an_error_is_told_once(told_by):
    background = Background()

    def fails() -> None:
        raise OSError("the disk is full")

    background.run(fails)
    with pytest.raises(OSError, match="the disk is full"):
        background.wait() if told_by == "wait" else background.run(lambda: None)
    background.wait()
    background.close()


def test_texts_are_the_same_whether_they_were_expected_or_not():
    seen = []

    def read(first: int, num: int) -> Example:
        seen.append((first, threading.current_thread() is threading.main_thread()))
        ids = torch.arange(first, first + num)[:, None]
        return Example(ids, torch.ones_like(ids, dtype=torch.bool), None if first else ids > 1)

    reader = ReadingAhead(read)
    reader.expect([(0, 2), (2, 2)])
    assert reader(0, 2).ids.tolist() == [[0], [1]]
    assert reader(2, 2).given is None
    assert reader(4, 2).ids.tolist() == [[4], [5]]
    assert reader(0, 2).given is not None  # again: not expected twice
    assert seen == [(0, False), (2, False), (4, True), (0, True)]
    reader.close()


@pytest.mark.parametrize("expected", [True, False])
@pytest.mark.parametrize("with_prompts", [True, False])
def test_where_there_is_a_gpu_all_of_a_text_is_pinned(expected, with_prompts, monkeypatch):
    """Else a copy to the GPU would wait for the host."""
    ids = torch.arange(6).view(2, 3)
    example = Example(ids, ids > 0, ids > 1 if with_prompts else None)
    pinned: list[torch.Tensor] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: (pinned.append(x), x.clone())[1])
    reader = ReadingAhead(lambda first, num: example)
    if expected:
        reader.expect([(0, 2)])
    found = reader(0, 2)
    reader.close()
    assert len(pinned) == (3 if with_prompts else 2)
    assert all(torch.equal(one, other) for one, other in zip(iter(found), iter(example), strict=True))
    assert (found.given is not None) == with_prompts


def test_an_error_of_reading_is_told_where_texts_are_asked_for():
    def read(first: int, num: int) -> Example:
        raise ValueError(f"sequence {first} is not there")

    reader = ReadingAhead(read)
    reader.expect([(7, 1)])
    with pytest.raises(ValueError, match="sequence 7 is not there"):
        reader(7, 1)
    reader.close()


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """All is read and written beside; but the writer ends before training goes on, whose weights it shares on a CPU."""
    begin = Background.run
    monkeypatch.setattr("multimdm.training.loop.works_beside", lambda device: True)
    monkeypatch.setattr(Background, "run", lambda self, task: (begin(self, task), self.wait())[1])


def test_a_run_that_reads_and_writes_beside_is_the_same_run(tmp_path, request):
    train(tiny_job("run"), tmp_path / "plain", quiet=True)
    request.getfixturevalue("as_on_a_gpu")
    train(tiny_job("run"), tmp_path / "beside", quiet=True)
    assert weights(tmp_path / "beside") == weights(tmp_path / "plain")
    assert metrics(tmp_path / "beside") == metrics(tmp_path / "plain")
    kept = [sorted(path.name for path in (tmp_path / run / "checkpoints").iterdir()) for run in ("plain", "beside")]
    assert kept[0] == kept[1] != []


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("multimdm.training.loop.works_beside", lambda device: True)
    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(OSError, match="the disk is full"):
        train(tiny_job("run"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "model").exists()
