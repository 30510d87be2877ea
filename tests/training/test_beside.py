"""What runs beside training: the writer of checkpoints and the reader of texts."""

import threading

import pytest
import torch

from multimdm.data.prepared import Example
from multimdm.training.background import Background
from multimdm.training.reading_ahead import ReadingAhead


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


def test_an_error_of_reading_is_told_where_texts_are_asked_for():
    def read(first: int, num: int) -> Example:
        raise ValueError(f"sequence {first} is not there")

    reader = ReadingAhead(read)
    reader.expect([(7, 1)])
    with pytest.raises(ValueError, match="sequence 7 is not there"):
        reader(7, 1)
    reader.close()
