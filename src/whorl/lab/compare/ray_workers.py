"""Runs as tasks of Ray: of a cluster, or of a Ray that lives on this machine while they run.

Ray ends the process that uses it when the cluster is lost, so that process is not this one:

    whorl compare  <-- lines of JSON -->  ray_driver (uses Ray)  <-->  ray_nodes.run_job on nodes
                                                                           |
                                                                       whorl.lab.worker

A local Ray listens on the loopback interface only, and lets in only who knows a secret that is
made for it and kept in memory. It writes nothing to the home folder, and its files in /tmp go too.
"""

import json
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whorl._support.files import write_file_atomically
from whorl._support.words import quote

from .processes import SECONDS_TO_STOP, start_module
from .ray_nodes import NODE_FILE

if TYPE_CHECKING:
    from .pool import PlannedJob

__all__ = ["RayWorkers", "check_ray"]

_DRIVER = "whorl.lab.compare.ray_driver"
_SECONDS_TO_ANSWER = 5.0
#: For starting or joining Ray, and a first task on each node.
_SECONDS_TO_CONNECT = 120.0
_SECONDS_TO_END = 30.0


def check_ray(ray: str) -> None:
    """Raise unless ray is installed, and ``ray`` is "local" or an address that answers."""
    if find_spec("ray") is None:
        raise ModuleNotFoundError("runs on Ray need ray: pip install 'whorl[ray]'.", name="ray")
    if ray == "local":
        return
    host, _, port = ray.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"ray must be local, or HOST:PORT of a Ray cluster such as 10.0.0.1:6379; got"
            f" {quote(ray)}."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise ValueError(
            f"ray: nothing answers at {ray} ({error.strerror or error}). Start a cluster there with"
            f" 'ray start --head --port={port}', or use local."
        ) from None


class RayWorkers:
    """A process that uses Ray, and what it says about the runs."""

    def __init__(self, ray: str, most: int | None, folder: Path) -> None:
        self._most, self._ray, self._stopping = most, ray, False
        self._busy: set[int] = set()
        self._note, self._temporary = folder / NODE_FILE, ""
        self._words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._received: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._driver = start_module(_DRIVER, self._words, _build_environment(ray))
        try:
            threading.Thread(target=self._read_lines, daemon=True).start()
            self._connect(folder)
        except BaseException:
            self.close()
            raise

    def _connect(self, folder: Path) -> None:
        """Tell the process what to connect to, and wait until it has."""
        note = secrets.token_hex(16)
        write_file_atomically(self._note, note.encode())
        if self._ray == "local":
            self._temporary = _make_temporary_folder()
        self._send(
            {
                "address": self._ray,
                "cpus": self._most,
                "temporary": self._temporary,
                "folder": str(folder.resolve()),
                "note": note,
                "cwd": os.getcwd(),
            }
        )
        self._wait_for_connection()

    @property
    def has_room(self) -> bool:
        return self._most is None or len(self._busy) < self._most

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    def start(self, n: int, job: "PlannedJob", request: dict[str, Any]) -> None:
        self._busy.add(n)
        request = {**request, "folder": str(Path(request["folder"]).resolve())}
        self._send({"run": n, "worker": job.worker, "request": request})

    def receive(self) -> list[tuple[int, dict[str, Any]]]:
        found: list[tuple[int, dict[str, Any]]] = []
        with suppress(queue.Empty):
            message = self._received.get(timeout=0.2)
            while True:
                found += self._end_all() if message is None else [self._handle(message)]
                message = self._received.get_nowait()
        return found

    def stop(self) -> None:
        self._stopping = True
        self._send({"stop": True})
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            self._driver.wait(timeout=SECONDS_TO_STOP + _SECONDS_TO_END)

    def close(self) -> None:
        """End the process and, if it is local, Ray; what still runs there ends too."""
        assert self._driver.stdin is not None
        try:
            with suppress(OSError):
                self._driver.stdin.close()  # which asks it to end
            with suppress(subprocess.TimeoutExpired):
                self._driver.wait(timeout=_SECONDS_TO_END)
        finally:  # also if a signal comes meanwhile
            self._note.unlink(missing_ok=True)
            self._end_at_once()

    def _end_at_once(self) -> None:
        if hasattr(os, "killpg"):
            with suppress(OSError):  # a local Ray is in the same group
                os.killpg(self._driver.pid, signal.SIGKILL)
        with suppress(OSError):
            self._driver.kill()
        self._driver.wait()
        self._words.close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._driver.stdin is not None
        with suppress(OSError):  # it has ended, which ``receive`` notices
            self._driver.stdin.write(json.dumps(message) + "\n")
            self._driver.stdin.flush()

    def _read_lines(self) -> None:
        assert self._driver.stdout is not None
        with self._driver.stdout:
            for line in self._driver.stdout:
                self._received.put(json.loads(line))
        self._received.put(None)

    def _wait_for_connection(self) -> None:
        end = time.monotonic() + _SECONDS_TO_CONNECT
        while True:
            try:
                message = self._received.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise ValueError(
                    f"ray: no Ray cluster answered at {self._ray} within"
                    f" {_SECONDS_TO_CONNECT:.0f} s; is it another program that has this port?"
                ) from None
            if message is None:
                raise ValueError(f"ray: Ray could not be used: {self._read_last_words()}")
            if "refused" in message:
                raise ValueError(f"ray: {message['refused']}")
            if "connected" in message:
                return

    def _handle(self, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        n = message.pop("run")
        if message.get("state", "running") != "running":
            self._busy.discard(n)
        return n, message

    def _end_all(self) -> list[tuple[int, dict[str, Any]]]:
        """The last messages of all runs that were under way when the process ended."""
        lost, self._busy = sorted(self._busy), set()
        if self._stopping:
            return [(n, {"state": "interrupted"}) for n in lost]
        reason = (
            f"the Ray cluster was lost: {self._read_last_words()}; what is finished stays, and the"
            " same command goes on"
        )
        return [(n, {"state": "failed", "reason": reason}) for n in lost]

    def _read_last_words(self) -> str:
        self._driver.wait()
        self._words.seek(0)
        lines = [line for line in self._words.read().splitlines() if line.strip()]
        if not lines:
            return f"exit code {self._driver.returncode}"
        # [time severity ids] file:line: The first sentence. More of them.
        return re.sub(r"^\[[^\]]*\] \S+: ", "", lines[-1].strip()).split(". ")[0]


def _make_temporary_folder() -> str:
    """A folder for a local Ray, whose sockets need a short path."""
    return tempfile.mkdtemp(prefix="whorl-ray-", dir="/tmp" if os.path.isdir("/tmp") else None)


def _build_environment(ray: str) -> dict[str, str]:
    """Variables of the process that uses Ray; those of a local one also reach its workers."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "20",  # then a cluster is lost
    }
    if ray == "local":
        environment.pop("RAY_ADDRESS", None)
        environment.pop("RAY_AUTH_TOKEN_PATH", None)
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes Ray listen on 127.0.0.1 only
            "RAY_worker_niceness": "0",  # 15 else, unlike the processes of whorl
        }
    return environment
