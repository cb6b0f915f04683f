"""Code in several processes that find each other as those of torchrun do, over gloo.

One process imports torch and whorl, when it is first asked, and forks for each of them; a launcher
would import both again in every process, which takes most of a test's time.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["Ended", "run_together"]

_SERVER = """
import json, os, socket, sys, time, traceback
import torch, torch.distributed, whorl.lab, whorl.cli.app, accelerate
torch.set_num_threads(1)

def enter(job, rank, port):
    folder = job["folder"]
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    world = str(job["world"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world,
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **job["environment"])
    os.chdir(folder)
    code = 0
    try:
        exec(job["code"], {"rank": rank})
    except SystemExit as done:
        code = done.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    job = json.loads(line)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(job["world"]):
        child = os.fork()
        if child == 0:
            enter(job, rank, port)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
"""


class Ended(NamedTuple):
    """How one of the processes ended, and what it printed; a code below 0 is a signal."""

    code: int
    out: str
    err: str


def run_together(
    code: str, folder: Path, *, world: int = 2, environment: dict[str, str] | None = None
) -> list[Ended]:
    """Run ``code`` in the folder in so many processes; in it, ``rank`` is the number of each."""
    if not hasattr(os, "fork"):
        pytest.skip("forks")
    folder.mkdir(parents=True, exist_ok=True)
    job = {"code": code, "folder": str(folder), "world": world, "environment": environment or {}}
    server = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(job) + "\n")
    server.stdin.flush()
    codes = json.loads(server.stdout.readline())
    return [
        Ended(found, *((folder / f"{rank}.{name}").read_text() for name in ("out", "err")))
        for rank, found in enumerate(codes)
    ]


@functools.cache
def _start_server() -> "subprocess.Popen[str]":
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    atexit.register(server.communicate)
    return server
