"""Statements in fresh processes that have loaded torch, which takes seconds, and nothing of whorl.

One process imports torch, when it is first asked, and forks for each statement.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

__all__ = ["FreshProcess", "run_fresh"]

_SERVER = """
import json, os, sys, torch
for line in sys.stdin:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr
        before, error = sorted(sys.modules), None
        try:
            exec(json.loads(line), {})
        except BaseException as problem:
            error = f"{type(problem).__name__}: {problem}"
        with os.fdopen(write, "w") as file:
            json.dump([before, sorted(sys.modules), error], file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        answer = file.read()
    os.waitpid(child, 0)
    print(answer, flush=True)
"""


class FreshProcess(NamedTuple):
    """Names of the modules before and after a statement, and the error that it raised, if any."""

    before: set[str]
    after: set[str]
    error: str | None

    @property
    def packages(self) -> list[str]:
        """Packages of others that the statement loaded; torch brings some of its own before."""
        new = {name.partition(".")[0] for name in self.after}
        new -= {name.partition(".")[0] for name in self.before} | set(sys.stdlib_module_names)
        return sorted(name for name in new - {"whorl"} if not name.startswith("__"))


def run_fresh(statement: str) -> FreshProcess:
    """Run ``statement`` in a process that has loaded torch and nothing of whorl."""
    if not hasattr(os, "fork"):
        pytest.skip("forks")
    server = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(statement) + "\n")
    server.stdin.flush()
    before, after, error = json.loads(server.stdout.readline())
    assert not [name for name in before if name.startswith("whorl")]
    return FreshProcess(set(before), set(after), error)


@functools.cache
def _start_server() -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server
