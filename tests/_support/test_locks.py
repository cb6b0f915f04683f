"""Locks between processes: with this system's own, and with a substitute for those of Windows."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whorl._support.files import write_file_atomically
from whorl._support.locks import acquire_lock, hold_lock, release_lock
from whorl.lab import files

from .windows import FakeMsvcrt


def test_one_holder_at_a_time(system: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    first = acquire_lock(path)
    assert first is not None
    assert acquire_lock(path) is None
    release_lock(first)
    with hold_lock(path) as held:
        assert held
        with hold_lock(path) as again:
            assert not again
        assert acquire_lock(path) is None  # a refused block lets go of nothing
    with hold_lock(path) as held:
        assert held
    if system is not None:
        assert system.held == {}


def test_it_is_let_go_after_an_error(system: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyError), hold_lock(tmp_path / "x.lock"):
        raise KeyError
    with hold_lock(tmp_path / "x.lock") as held:
        assert held


def test_a_run_folder_in_use(system: Any, tmp_path: Path) -> None:
    message = r"is in use by another process; wait for it, or choose"
    with (
        files.lock_folder(tmp_path),
        pytest.raises(ValueError, match=message),
        files.lock_folder(tmp_path),
    ):
        pass
    with files.lock_folder(tmp_path):
        pass


def test_a_file_that_its_holder_removed_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Removed between opening and locking, a file locks nobody out: the next one is taken."""
    path, opened, real = tmp_path / "x.lock", [], os.open

    def open_(name: Any, *options: Any) -> int:
        handle = real(name, *options)
        opened.append(handle)
        if len(opened) == 1:
            path.unlink()
        return handle

    monkeypatch.setattr(os, "open", open_)
    handle = acquire_lock(path)
    assert handle == opened[-1]
    assert len(opened) == 2
    assert acquire_lock(path) is None
    release_lock(handle)


def test_no_locks_at_all_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeMsvcrt()

    def refuse(handle: int, mode: int, count: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    fake.locking = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No locks available"):
        acquire_lock(tmp_path / "x.lock")
    path = tmp_path / "out"
    write_file_atomically(path, b"x")  # which goes on without
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.lock"]


HOLDER = """
import sys
from pathlib import Path
from whorl._support.locks import acquire_lock
print(acquire_lock(Path(sys.argv[1])) is not None, flush=True)
sys.stdin.read()
"""


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "True"
        assert acquire_lock(path) is None
        process.kill()
        process.wait()
        with hold_lock(path) as held:
            assert held
