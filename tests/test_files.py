"""Files and directories appear whole or not at all, and a full disk is told by name."""

import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from multimdm._files import whole_directory, whole_file, write_text


@pytest.fixture
def dead() -> int:
    """The number of a process that is no more."""
    process = multiprocessing.get_context("spawn").Process()
    process.start()
    process.join()
    assert process.pid is not None
    return process.pid


def _left_by(process: int, target: Path) -> Path:
    return target.with_name(f".{target.name}.partial-{socket.gethostname()}-{process}")


def test_what_a_killed_process_left_of_a_file_is_cleared_away(tmp_path, dead):
    target = tmp_path / "figures.json"
    of_the_dead, of_the_living, of_another = (
        _left_by(dead, target),
        _left_by(os.getppid(), target),
        _left_by(dead, tmp_path / "other.json"),
    )
    for left in (of_the_dead, of_the_living, of_another):
        left.write_text("half of a f")
    write_text(target, "whole")
    assert target.read_text() == "whole"
    assert sorted(tmp_path.iterdir()) == sorted([target, of_the_living, of_another])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("whole", [whole_file, whole_directory])
def test_a_full_disk_is_told_by_name(whole, tmp_path):
    """The system does not name a file that is open; a hidden one would not help."""
    target = tmp_path / "data"
    with (
        pytest.raises(OSError, match=rf"No space left on device: '{target}'"),
        whole(target),
        open("/dev/full", "w", encoding="utf-8") as full,
    ):
        full.write("x")
    assert list(tmp_path.iterdir()) == []
