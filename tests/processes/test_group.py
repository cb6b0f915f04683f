"""Processes find each other, or say why not; what one of them refuses, all of them refuse."""

import socket
from pathlib import Path

import pytest

from tests.launched import run_together
from whorl._support.launch import Launch
from whorl.processes import group

TALK = """
import os, sys, time, whorl, torch
from pathlib import Path
from whorl.processes import LostProcess, check_shared_folder, open_processes

def refuse():
    raise ValueError("the first one refuses")

with open_processes() as processes:
    with open_processes() as same:
        assert same is processes
    assert processes.run_on_main(lambda: [1, "two"]) == [1, "two"]
    assert processes.collect(rank * 10) == [0, 10]
    assert processes.agree(rank == 1)
    assert not processes.agree(False)
    total = torch.tensor([rank + 1.0])
    processes.sum_([total])
    assert total.item() == 3.0
    try:
        processes.run_on_main(refuse)
    except ValueError as error:
        print(error)
    Path("both").mkdir(exist_ok=True)
    processes.wait()
    check_shared_folder(processes, Path("both"))
    if rank == 0:
        assert not os.listdir("both")
    Path(f"own{rank}").mkdir()
    whorl.processes.folders._SECONDS_TO_APPEAR = 0.2
    try:
        check_shared_folder(processes, Path(f"own{rank}"))
    except ValueError as error:
        print(error)
    if rank == 1:
        raise ValueError("the second one has no file.txt.")
    try:
        processes.wait()
    except LostProcess as error:
        print(error)
"""


@pytest.mark.slow
def test_two_processes_talk(tmp_path: Path) -> None:
    first, second = run_together(TALK, tmp_path)
    assert (first.code, second.code) == (0, 1), first.err
    refused, unseen, ended = first.out.splitlines()
    assert refused == "the first one refuses"
    assert second.out.splitlines() == [refused, unseen.replace("own0", "own1")]
    assert unseen.startswith("all processes must see the same folder 'own0'; process 1 on ")
    assert ended.startswith("process 1 on ")
    assert ended.endswith(" has ended: the second one has no file.txt")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whorl", "torch"])
def test_mixed_versions_are_refused(name: str, tmp_path: Path) -> None:
    code = (
        "import whorl, torch\nfrom whorl.processes import open_processes\n"
        f"if rank == 1: {name}.__version__ = '0.1'\n"
        "with open_processes(): print('together')"
    )
    for one in run_together(code, tmp_path):
        assert (one.code, one.out) == (1, "")
        assert f"ValueError: all processes must have the same version of {name}; " in one.err
        assert "has 0.1. Install the same one everywhere." in one.err


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        message = rf"^the 2 processes cannot be connected: port {port} is in use by another program"
        set_address(monkeypatch, "127.0.0.1", port)
        with pytest.raises(group.LostProcess, match=message):
            group._connect(Launch(0, 2))


def test_an_address_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    set_address(monkeypatch, "127.0.0.1", port)
    monkeypatch.setattr(group, "_SECONDS_TO_CONNECT", 1)
    message = rf"the first process cannot be reached at 127.0.0.1:{port} within 1 s\. Check that"
    with pytest.raises(group.LostProcess, match=message) as raised:
        group._connect(Launch(1, 2))
    assert not raised.value.is_reported  # it says so itself, though it is not the first one


def set_address(monkeypatch: pytest.MonkeyPatch, address: str, port: int) -> None:
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", str(port))


class LateStore:
    """The second process does its part while the first looks for a failure, and then fails."""

    def __init__(self, *, fails_before: bool = False) -> None:
        self.looks, self.fails_before = 0, fails_before

    def set(self, key: str, value: str) -> None:
        pass

    def get(self, key: str) -> bytes:
        return b'{"rank": 1, "machine": "b", "reason": "too late"}'

    def add(self, key: str, count: int) -> int:
        return 2 if self.looks and not self.fails_before else 1

    def check(self, keys: list[str]) -> bool:
        self.looks += keys == ["failure"]
        return True


def test_a_failure_after_the_last_part_ends_no_other() -> None:
    """It happened on a busy machine: a call that was done was said to have lost a process."""
    store = LateStore()
    group.ProcessGroup(0, 2, store=store).wait()
    assert store.looks == 1
    with pytest.raises(group.LostProcess, match=r"^process 1 on b has ended: too late$"):
        group.ProcessGroup(0, 2, store=LateStore(fails_before=True)).wait()
