"""A lock never outlives the process that took it."""

import errno
import fcntl

import pytest

from multimdm._locks import take_lock


def test_one_holds_it(tmp_path):
    first = take_lock(tmp_path / "lock")
    assert first is not None
    assert take_lock(tmp_path / "lock") is None
    first.release()
    again = take_lock(tmp_path / "lock")
    assert again is not None
    again.release()


def test_nothing_takes_its_place_where_files_cannot_be_locked(tmp_path, monkeypatch):
    """A file that only says that someone works would stay behind when that process is killed."""

    def unknown(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    with monkeypatch.context() as without_locks:
        without_locks.setattr(fcntl, "flock", unknown)
        with pytest.raises(OSError, match=f"no locks for files; use another: '{tmp_path}/lock'"):
            take_lock(tmp_path / "lock")
    lock = take_lock(tmp_path / "lock")
    assert lock is not None
    lock.release()
