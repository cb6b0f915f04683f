"""Files and folders that appear whole or not at all, and what killed processes leave of them."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from whorl._support.files import create_folder_atomically, remove_parts, write_file_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced(system: Any, tmp_path: Path) -> None:
    path = tmp_path / "x"
    for text in (b"one", b"two"):
        write_file_atomically(path, text)
        assert path.read_bytes() == text
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(
    step: str, system: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="no space left on device"):
        write_file_atomically(path, b"new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_file_atomically(tmp_path / "none" / "x", b"new")


def test_a_folder_of_the_hidden_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".x.part").mkdir()
    (tmp_path / ".x.part" / "mine").touch()
    with pytest.raises(OSError, match=r"\.x\.part"):
        write_file_atomically(tmp_path / "x", b"new")
    assert names(tmp_path / ".x.part") == ["mine"]
    assert names(tmp_path) == [".x.part"]


KILLED = """
import os, signal, sys
from pathlib import Path
from whorl._support.files import write_file_atomically

os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
write_file_atomically(Path(sys.argv[1]), b"half")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_what_a_killed_process_left_does_not_accumulate(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -9
        assert names(tmp_path) == [".x.part", ".x.part.lock"]
    write_file_atomically(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == ["x"]


def test_many_writers_at_once(tmp_path: Path) -> None:
    path, seen = tmp_path / "x", set()
    texts = [bytes([65 + n]) * 100_000 for n in range(6)]

    def write(text: bytes) -> None:
        for _ in range(10):
            write_file_atomically(path, text)
            seen.add(path.read_bytes())

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= set(texts)
    assert names(tmp_path) == ["x"]


def test_only_parts_of_named_files_are_removed(tmp_path: Path) -> None:
    ours = [".x.json.part", ".x.json.part.lock", ".x.json.2.part", ".y.part"]
    others = [".film.part", ".x.json.parts", "x.json", "x.json.part"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    remove_parts(tmp_path, r"x\.json|y")
    assert names(tmp_path) == sorted(others)


def test_a_folder_left_behind_is_replaced(system: Any, tmp_path: Path) -> None:
    left = tmp_path / ".out.part"
    left.mkdir()
    (left / "half").write_text("x")
    (tmp_path / ".out.part.lock").touch()
    other = tmp_path / ".other.part"
    other.mkdir()
    with create_folder_atomically(tmp_path / "out") as part:
        assert part == left
        assert names(part) == []
    assert names(tmp_path) == [other.name, "out"]


def test_a_folder_that_another_process_fills_is_left(system: Any, tmp_path: Path) -> None:
    with create_folder_atomically(tmp_path / "out") as first:
        (first / "half").write_text("x")
        with create_folder_atomically(tmp_path / "out") as second:
            assert (first / "half").exists()
            assert second != first
        assert (first / "half").exists()
        (tmp_path / "out").rmdir()
    assert names(tmp_path) == ["out"]


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyError), create_folder_atomically(tmp_path / "out"):
        raise KeyError("x")
    message = r"'.*out' cannot be written: full; nothing was left there\. Make room, or name"
    with pytest.raises(OSError, match=message), create_folder_atomically(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "full")
    assert names(tmp_path) == []


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
    with create_folder_atomically(tmp_path / "out"):
        assert open_handles
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
