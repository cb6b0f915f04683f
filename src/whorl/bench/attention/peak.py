"""Peak memory of one call, measured by the system in a process of its own.

    bytes = high-water mark of resident memory after the call - resident memory before it

A small call comes first, so that threads, libraries and their buffers are not counted. Linux keeps
a mark that can be reset; elsewhere ``getrusage`` has one that cannot, which sees what goes beyond
everything before it: here that is the same.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from . import oracle, softmax
from .plan import Cell

__all__ = ["NAMES", "available", "main", "measure_peak", "peak_of"]

NAMES = ("sdpa", "alibi", "t5", "matrix")
_WARM = 256


def measure_peak(name: str, cell: Cell) -> int:
    """Bytes that a contestant needs beyond q, k and v; its result is among them."""
    needed = softmax.matrix_bytes(cell.length) * 5 // 4
    free = available()
    if name == "matrix" and free is not None and free < needed:
        raise MemoryError(f"needs {needed / 1e9:.2g} GB, and {free / 1e9:.2g} GB are free")
    code = f"from {__name__} import main; main()"
    command = [sys.executable, "-c", code, name, str(cell.length), str(cell.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(last)
    return int(done.stdout)


def main() -> None:
    """In the new process: contestant, length and threads from the command line."""
    name, length, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with torch.no_grad():
        softmax.FORWARD[name](*oracle.inputs(_WARM))()
        q, k, v = oracle.inputs(int(length))
        print(peak_of(lambda: softmax.FORWARD[name](q, k, v)()))


def peak_of(call: Callable[[], Tensor]) -> int:
    """Bytes by which ``call`` raises the high-water mark above what is resident before it."""
    before = _reset()
    call()
    return max(0, _mark() - before)


def available() -> int | None:
    """Bytes that a new process may use, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith("MemAvailable:")]
    return int(found[0].split()[1]) * 1024 if found else None


def _reset() -> int:
    """Bring the mark down to what is resident; returns that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _mark()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _mark() -> int:
    """The high-water mark of this process. That of ``getrusage`` may be inherited on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
