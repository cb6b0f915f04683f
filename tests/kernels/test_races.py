"""Positions that another thread writes to during a call: never a read outside the table."""

import threading
import time
from contextlib import suppress

import pytest
import torch

import whorl
from whorl.kernels import native
from whorl.kernels.native import RotatedChannels
from whorl.kernels.row_table import Table, TableRows

pytestmark = pytest.mark.skipif(native.find_problem() is not None, reason="no native library")

FAR = 10**12


def test_a_row_that_changes_after_it_was_checked() -> None:
    """The result lies where the rows are: rotating the first sequence changes the second's row."""
    x = torch.tensor([[0, FAR], [5, 6]]).view(torch.float64).view(2, 1, 1, 2)
    out = torch.zeros_like(x)
    at = out.view(torch.int64).view(4)[:2].view(2, 1)
    rows = TableRows(Table(torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)), 0, at)
    words = r"positions changed while they were read.*no other thread"
    with pytest.raises(RuntimeError, match=words):
        native.rotate([x], [out], [rows], RotatedChannels("half", "half", 0), False, disjoint=True)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_offsets_that_change_during_a_decode_step(precision: whorl.Precision) -> None:
    """The kernel builds rows for float64 angles, and has to read the table for the others."""
    rope, stop = whorl.RoPE(8, table_length=1, precision=precision), threading.Event()
    q = torch.ones(512, 1, 1, 8)
    offsets = torch.zeros(512, dtype=torch.int64)

    def toggle() -> None:
        while not stop.is_set():
            offsets[-1] = FAR
            offsets[-1] = 0

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        end, steps = time.monotonic() + 1.0, 0
        while time.monotonic() < end or not steps:
            # It says so, or it did not meet the change; rows past a float32 table are PyTorch's.
            with suppress(RuntimeError, IndexError):
                done = rope.rotate(q, offset=offsets)
                assert torch.equal(done[:-1], q[:-1])
            steps += 1
    finally:
        stop.set()
        thread.join()
