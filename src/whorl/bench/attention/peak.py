"""Peak memory of one call, which the system measures in a separate process.

    bytes = high-water mark of resident memory after the call - resident memory before it

A small call comes first, so that threads, libraries and their buffers do not count. Where the mark
cannot be reset, as outside Linux, the new process makes the result the same.
"""

import subprocess
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from whorl._support import memory

from . import oracle, softmax
from .plan import Cell

__all__ = ["main", "measure_growth", "measure_peak"]

_WARM = 256


def measure_peak(name: str, cell: Cell) -> int:
    """Bytes that a contestant needs besides q, k and v; its result counts."""
    if name == "matrix":
        softmax.check_memory(cell.length)
    code = f"from {__name__} import main; main()"
    command = [sys.executable, "-c", code, name, str(cell.length), str(cell.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(last)
    return int(done.stdout)


def main() -> None:
    """The separate process: takes contestant, length and threads from the command line."""
    name, length, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with torch.no_grad():
        softmax.MEMORY[name](*oracle.make_inputs(_WARM))()
        q, k, v = oracle.make_inputs(int(length))
        print(measure_growth(lambda: softmax.MEMORY[name](q, k, v)()))


def measure_growth(call: Callable[[], Tensor]) -> int:
    """Bytes by which ``call`` raises the high-water mark above what is resident before it."""
    before = memory.reset_peak()
    call()
    return max(0, memory.read_peak() - before)
