"""The processes of one training, connected: sums and agreement, and what the first one does alone.

Gradients and flags go through torch.distributed: gloo on CPUs, NCCL on GPUs. Documents go as JSON
through the store of the launcher, which is also where a process that fails leaves its reason.
"""

import atexit
import functools
import json
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

import whorl
from whorl._support.launch import Launch, read_launch
from whorl._support.signals import watch_signals
from whorl._support.words import shorten

from .devices import choose_device

__all__ = ["LostProcess", "ProcessGroup", "open_processes"]

Result = TypeVar("Result")

#: How long the processes wait for each other at the start, and for one that does not answer later.
_SECONDS_TO_CONNECT, _SECONDS_TO_ANSWER = 60, 600
_SECONDS_TO_REPORT = 2.0
_SECONDS_BETWEEN_LOOKS = 0.05
#: Words of errors that gloo and NCCL raise when another process has ended.
_LOST = ("gloo", "nccl", "connection", "recv", "timed out", "store", "broken pipe", "socket")


class LostProcess(ConnectionError):  # noqa: N818  # it is a kind of ConnectionError
    """Another process of the training has ended or does not answer.

    is_reported: whether the first process says so, which prints for all as long as it runs.
    """

    def __init__(self, message: str = "", *, is_reported: bool = True) -> None:
        super().__init__(message)
        self.is_reported = is_reported


@dataclass
class ProcessGroup:
    """This process among those of one training.

    rank: its number; 0 writes and prints. world: how many they are. device: what it computes on.
    """

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    store: Any = None
    #: How many ``open_processes`` blocks this process is in.
    blocks: int = 0
    _documents: int = 0
    _stop: threading.Event | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @contextmanager
    def watch_signals(self) -> Iterator[threading.Event]:
        """An event that SIGINT and SIGTERM set; waiting for other processes ends with them."""
        with watch_signals() as self._stop:
            try:
                yield self._stop
            finally:
                self._stop = None

    def split_rows(self, count: int, passes: int = 1) -> list[slice]:
        """The rows of a batch of ``count`` that this process computes, by forward pass."""
        if type(passes) is not int or passes < 1:
            raise ValueError(f"passes must be a whole number of at least 1; got {passes!r}.")
        if count < self.world * passes:
            each = f"{passes} passes of each of {self.world} processes"
            raise ValueError(
                f"batch must be at least {self.world * passes}, a sequence for {each}; got {count}."
                " Choose a larger batch, or fewer passes or processes."
            )
        first = passes * self.rank
        return [slice(first + number, None, passes * self.world) for number in range(passes)]

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over all processes."""
        for tensor in tensors if self.world > 1 else ():
            dist.all_reduce(tensor)

    def agree(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.world == 1:
            return flag
        found = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def run_on_main(self, compute: Callable[[], Result]) -> Result:
        """What ``compute`` returns in the first process, a value that JSON can hold.

        Its ValueError is raised in all of them; another error ends the others too.
        """
        if self.world == 1:
            return compute()
        self._documents += 1
        key = f"document {self._documents}"
        if not self.is_main:
            found = json.loads(self._read(key))
            if "refused" in found:
                raise ValueError(found["refused"])
            result: Result = found["result"]
            return result
        try:
            computed = compute()
        except ValueError as error:
            self.store.set(key, json.dumps({"refused": str(error)}))
            raise
        self.store.set(key, json.dumps({"result": computed}))
        return computed

    def collect(self, document: Any) -> list[Any]:
        """The documents of all processes in the order of their ranks; JSON must hold them."""
        if self.world == 1:
            return [document]
        self._documents += 1
        keys = [f"document {self._documents} of {rank}" for rank in range(self.world)]
        self.store.set(keys[self.rank], json.dumps(document))
        found = [json.loads(self._read(key)) for key in keys]
        # The first process may hold the store: it does not go on, and end, before all have read.
        read = f"readers of {self._documents}"
        self.store.add(read, 1)
        if self.is_main:
            self._wait_until(lambda: self.store.add(read, 0) >= self.world)
        return found

    def wait(self) -> None:
        """Return when all processes are here."""
        self.collect(None)

    def report_failure(self, error: BaseException) -> None:
        """Leave the reason why this process ends where the others find it."""
        if self.store is not None and not isinstance(error, LostProcess):
            with suppress(RuntimeError):
                words = shorten(str(error) or type(error).__name__, 500)
                found = {"rank": self.rank, "machine": socket.gethostname(), "reason": words}
                self.store.compare_set("failure", "", json.dumps(found))
                if self.is_main:
                    self.store.set("reported", "")

    def describe_lost_process(self, error: BaseException | None = None) -> LostProcess:
        """The error that says which other process has ended, and why if it left a reason."""
        reported = self._report_loss()
        with suppress(RuntimeError):
            if self.store.check(["failure"]):
                found = json.loads(self.store.get("failure"))
                reason = found["reason"].rstrip(".")
                where = f"process {found['rank']} on {found['machine']}"
                return LostProcess(f"{where} has ended: {reason}", is_reported=reported)
        ended = "does not answer" if "timed out" in str(error).lower() else "has ended"
        return LostProcess(
            f"another of the {self.world} processes {ended}; the report of the launcher says which",
            is_reported=reported,
        )

    def connect(self) -> None:
        """Let torch connect the processes, if they have the same versions of what they need."""
        if self.world == 1 or dist.is_initialized():
            return
        found = self.collect({"versions": _list_versions(), "machine": socket.gethostname()})
        for rank, other in enumerate(found):
            for name, version in other["versions"].items():
                if version != (first := found[0]["versions"][name]):
                    raise ValueError(
                        f"all processes must have the same version of {name}; process 0 on"
                        f" {found[0]['machine']} has {first}, process {rank} on"
                        f" {other['machine']} has {version}. Install the same one everywhere."
                    )
        backend = "gloo" if self.device.type == "cpu" else "cpu:gloo,cuda:nccl"
        limit = timedelta(seconds=_SECONDS_TO_ANSWER)
        dist.init_process_group(
            backend, store=self.store, rank=self.rank, world_size=self.world, timeout=limit
        )
        atexit.register(_close_connections)

    def _report_loss(self) -> bool:
        """Tell the others that this process reports a loss; or else, whether the first one does."""
        with suppress(RuntimeError):
            if self.is_main:
                self.store.set("reported", "")
            last = time.monotonic() + _SECONDS_TO_REPORT
            while time.monotonic() < last:
                if self.store.check(["reported"]):
                    return True
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        return self.is_main

    def _read(self, key: str) -> bytes:
        """What is in the store, as soon as it is there; LostProcess if a process has failed."""
        try:
            self._wait_until(lambda: self.store.check([key]))
            return bytes(self.store.get(key))
        except RuntimeError as error:
            raise self.describe_lost_process(error) from None

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        """Return when it is; LostProcess if a process failed, KeyboardInterrupt after a signal."""
        while not is_done():
            # Asked again, because a process may do its part and fail in the next one meanwhile.
            if self.store.check(["failure"]) and not is_done():
                raise self.describe_lost_process()
            if self._stop is not None and self._stop.is_set():
                raise KeyboardInterrupt
            time.sleep(_SECONDS_BETWEEN_LOOKS)


@contextmanager
def open_processes() -> Iterator[ProcessGroup]:
    """The processes that a launcher started, connected from here on; else this one alone.

    An error that leaves the outermost of several such blocks is told to the other processes.

    Raises:
        ValueError: processes have different versions of whorl or torch, or there are fewer GPUs
            than processes.
        LostProcess: processes cannot be connected, or another one has ended during the block.
    """
    launch = read_launch()
    if launch is None or launch.world == 1:
        yield ProcessGroup(device=choose_device(launch))
        return
    group = _connect_once(launch)
    group.blocks += 1
    try:
        group.connect()
        yield group
    except BaseException as error:
        if isinstance(error, RuntimeError) and is_lost(error):
            raise group.describe_lost_process(error) from None
        if group.blocks == 1:
            group.report_failure(error)
        raise
    finally:
        group.blocks -= 1


@functools.cache
def _connect_once(launch: Launch) -> ProcessGroup:
    """The processes of a launcher, connected as long as this one runs."""
    device = choose_device(launch)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return ProcessGroup(launch.rank, launch.world, device, _connect(launch))


def is_lost(error: RuntimeError) -> bool:
    """Whether an error of torch says that another process has ended or does not answer."""
    words = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in words for word in _LOST)


def _connect(launch: Launch) -> Any:
    """The store of the processes, with the address and port that the launcher has set."""
    where = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    limit = timedelta(seconds=_SECONDS_TO_CONNECT)
    try:
        if launch.rank:
            _wait_for_address(limit.seconds)
        store, _, _ = next(rendezvous("env://", launch.rank, launch.world, timeout=limit))
        store.set_timeout(limit)
    except (RuntimeError, ValueError, OSError) as error:
        words = str(error)
        if "EADDRINUSE" in words or "in use" in words:
            what = f"port {os.environ.get('MASTER_PORT')} is in use by another program"
            todo = "Choose another one with --master-port (torchrun) or --main_process_port"
            todo += " (accelerate launch)"
        else:
            what = f"the first process cannot be reached at {where} within {limit.seconds} s"
            todo = "Check that it was started, and the address and port, MASTER_ADDR and"
            todo += " MASTER_PORT"
        raise LostProcess(
            f"the {launch.world} processes cannot be connected: {what}. {todo}."
            f" ({shorten(words, 160)})",
            is_reported=False,  # nobody can be asked to say it
        ) from None
    return store


def _wait_for_address(seconds: float) -> None:
    """Return when the first process listens; OSError if it does not within so many seconds.

    torch would try twice as long, and print where in its own code it failed.
    """
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal() or int(port) >= 2**16:  # which torch says
        return
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, int(port)), max(1.0, end - time.monotonic())).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _list_versions() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"whorl": whorl.__version__, "torch": str(torch.__version__), "Python": python}


def _close_connections() -> None:
    with suppress(RuntimeError):
        if dist.is_initialized():
            dist.destroy_process_group()
