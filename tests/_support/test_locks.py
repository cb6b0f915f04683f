"""Locks between processes: with this system's own, and with a substitute for those of Windows."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from whorl._support.locks import acquire_lock, hold_lock, release_lock
from whorl.lab import files
from whorl.weights.output import new_folder


class FakeMsvcrt(SimpleNamespace):
    """Locks the byte at which a file stands for one handle, as Windows does."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, handle: int, mode: int, count: int) -> None:
        assert count == 1
        byte = (os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR))
        if mode == self.LK_NBLCK:
            if byte in self.held:
                raise OSError(errno.EACCES, "Permission denied")
            self.held[byte] = handle
        else:
            assert mode == self.LK_UNLCK
            assert self.held.pop(byte) == handle


@pytest.fixture(params=["here", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The locks of this system, then those of Windows with its module replaced."""
    if request.param == "here":
        return None
    fake = FakeMsvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    return fake


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
    message = r"is in use by another process; wait for it, or name"
    with files.locked(tmp_path), pytest.raises(ValueError, match=message), files.locked(tmp_path):
        pass
    with files.locked(tmp_path):
        pass


def test_folders_left_behind_are_removed(system: Any, tmp_path: Path) -> None:
    left, lone = tmp_path / ".out.0123456789ab.part", tmp_path / ".out.ba9876543210.part.lock"
    left.mkdir()
    (left / "half").write_text("x")
    left.with_name(f"{left.name}.lock").touch()
    lone.touch()
    other = tmp_path / ".other.0123456789ab.part"
    other.mkdir()
    with new_folder(tmp_path / "out") as part:
        assert part.is_dir()
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "out"]


def test_a_folder_that_another_process_fills_is_left(system: Any, tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as first:
        (first / "half").write_text("x")
        with new_folder(tmp_path / "out") as second:
            assert (first / "half").exists()
            assert second != first
        assert (first / "half").exists()
        (tmp_path / "out").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_windows_keeps_open_files(
    monkeypatch: pytest.MonkeyPatch, system: Any, tmp_path: Path
) -> None:
    """There a lock file cannot be removed before it is closed."""
    open_handles: set[int] = set()
    real_open, real_close, real_unlink = os.open, os.close, Path.unlink

    def open_(path: Any, *options: Any) -> int:
        handle = real_open(path, *options)
        if str(path).endswith(".lock"):
            open_handles.add(handle)
        return handle

    def close(handle: int) -> None:
        open_handles.discard(handle)
        real_close(handle)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".lock" and open_handles:
            raise PermissionError(errno.EACCES, "in use")
        real_unlink(path, missing_ok)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(Path, "unlink", unlink)
    with new_folder(tmp_path / "out"):
        assert open_handles
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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
    with new_folder(tmp_path / "out") as part:  # which goes on without
        assert part.is_dir()
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
