"""Files are replaced whole, and what a killed process left is taken over by the next."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from whorl._support import locks, replacing
from whorl._support.replacing import replace_file
from whorl.bench import Report
from whorl.configs.diagnosis import fix
from whorl.plots import save

KILLED = """
import os, signal, sys
from pathlib import Path

from tests._support.test_replacing import WRITE

def fsync(handle):  # the content is in the file, and the file not yet in its place
    os.kill(os.getpid(), signal.SIGKILL)

os.fsync = fsync
WRITE[sys.argv[1]](Path(sys.argv[2]))
"""


class Chart:
    def to_dict(self) -> dict[str, object]:
        return {"mark": "line"}


def save_report(path: Path) -> None:
    extras = {"effort": "quick", "cells": [], "complete": True, "accuracy": None}
    data = {"format": Report.FORMAT, "environment": {"mark": "line"}, **extras}
    Report.from_dict(data).save(path)


WRITE: dict[str, Callable[[Path], object]] = {
    "plots": lambda path: save(Chart(), path),
    "doctor": lambda path: fix.write(path, {"mark": "line"}, force=True),
    "bench": save_report,
}


def kill_while_writing(what: str, path: Path) -> None:
    words = [sys.executable, "-c", KILLED, what, str(path)]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
@pytest.mark.parametrize("what", WRITE)
def test_what_a_killed_process_left_is_taken_over(tmp_path: Path, what: str) -> None:
    path = tmp_path / "chart.json"
    for _ in range(2):  # one after the other leave one file, not two
        kill_while_writing(what, path)
        assert [p.name for p in tmp_path.iterdir()] == [".chart.json.part"]
    WRITE[what](path)
    assert [p.name for p in tmp_path.iterdir()] == ["chart.json"]
    assert "line" in path.read_text(encoding="utf-8")


def test_a_shorter_content_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path, part = tmp_path / "a.json", tmp_path / ".a.json.part"
    part.write_bytes(b"x" * 100)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert not part.exists()


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path, part = tmp_path / "a.json", tmp_path / ".a.json.part"
    other = locks.acquire_lock(part)  # as a process that is writing holds it
    assert other is not None
    os.write(other, b"half of another")
    replace_file(path, b"mine")
    assert path.read_bytes() == b"mine"
    assert part.read_bytes() == b"half of another"
    locks.release_lock(other)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.json.part", "a.json"]


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symlink", "hard link"])
def test_a_link_in_the_place_of_the_part_is_not_written_through(
    tmp_path: Path, make: object
) -> None:
    mine, part = tmp_path / "mine", tmp_path / ".a.json.part"
    mine.write_bytes(b"precious")
    assert callable(make)
    make(mine, part)
    replace_file(tmp_path / "a.json", b"new")
    assert mine.read_bytes() == b"precious"
    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_a_failure_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"old"


def test_windows_renames_a_closed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the order of calls: it has not been tried there."""
    calls: list[str] = []
    free, replace = locks.release_lock, os.replace

    def close(handle: int) -> None:
        calls.append("close")
        free(handle)

    def rename(*paths: Path) -> None:
        calls.append("rename")
        replace(*paths)

    monkeypatch.setattr(replacing, "release_lock", close)
    monkeypatch.setattr(os, "replace", rename)
    replace_file(tmp_path / "a", b"1")
    assert calls == ["rename", "close"]
    calls.clear()
    monkeypatch.setattr(replacing, "WINDOWS", True)
    replace_file(tmp_path / "a", b"2")
    assert calls == ["close", "rename"]
    assert (tmp_path / "a").read_bytes() == b"2"
