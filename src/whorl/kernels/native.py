"""Loads the C library beside this file and calls it; ABI in csrc/whorl.h.

A missing library never breaks the import: ``find_problem()`` says why it is not in use.
"""

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from .row_table import Table, TableRows

__all__ = [
    "CHANGED_POSITIONS",
    "ISAS",
    "PreparedRotation",
    "RotatedChannels",
    "allocate_like",
    "build_steps",
    "build_table",
    "find_library",
    "find_problem",
    "gather_scores",
    "get_best_isa",
    "get_max_threads",
    "prepare_rotation",
    "rotate",
    "run_rotation",
    "scatter_scores",
    "use_huge_pages",
]

ABI = 5
ISAS = {"auto": 0, "scalar": 1, "avx2": 2}
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_LAYOUTS = {"half": 0, "interleaved": 1}
_BAD_ROW, _CHANGED = 2, 4

# A job is 11 numbers and two operands of 19, all int64: one pack and one pointer per call cost
# 0.8 us, forty ctypes arguments several.
_ONE = struct.Struct("30q").pack
_TWO = struct.Struct("49q").pack
_UNUSED = bytes(19 * 8)

# Up to this many head vectors one thread does it all: a decode step of 32 sequences, 32 + 8 heads.
# Not tuned; a busy neighbour can hold up a second thread for milliseconds.
_SMALL_VECTORS = 1280


CHANGED_POSITIONS = (
    "whorl: positions changed while they were read, so part of the result may be written;"
    " let no other thread write to positions or offset during a call."
)

# New results of these sizes ask for huge pages. Larger ones do not: 671 MB on huge pages once took
# 1.6 s on a virtual machine. Why was not established; the kernel counted no compaction.
_HUGE_BYTES = range(1 << 21, (1 << 27) + 1)


class RotatedChannels(NamedTuple):
    """The channels that rotate, and how they are paired in the input and in the result."""

    layout: str
    out_layout: str
    start: int

    def reverse(self) -> "RotatedChannels":
        """The channels of the inverse: it reads what the rotation wrote."""
        return RotatedChannels(self.out_layout, self.layout, self.start)


def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor] | None,
    rows: Sequence[TableRows],
    channels: RotatedChannels,
    transpose: bool,
    isa: int = 0,
    disjoint: bool = False,
) -> list[Tensor] | None:
    """Rotate one or two tensors [B, H, T, D] into ``outs``, or into new ones.

    None, with nothing written, if a row is not in its table. ``outs`` may be ``xs``. A tensor whose
    last dimension is not contiguous is copied once, and so is a result that would overwrite what is
    still to be read; ``disjoint`` says that there is none. The caller has checked shapes, dtypes
    and devices.
    """
    numbers: list[int] = []
    vectors = 0
    targets, copies = [], []  # copies must outlive the call
    for n, x in enumerate(xs):  # one flat loop, because it is half the time of a decode step
        batch, heads, length, width = x.shape
        xb, xh, xt, last = x.stride()
        if last != 1:
            x = x.contiguous()
            copies.append(x)
            xb, xh, xt, _ = x.stride()
        vectors += batch * heads * length
        if outs is None:
            out = allocate_like(x)
        else:
            out = outs[n]
            if not disjoint and (out is not x or channels.layout != channels.out_layout):
                out = _choose_target(xs[n:], x, out, channels)
        ob, oh, ot, last = out.stride()
        if last != 1:  # the new tensor of one whose positions overlap, as unfold makes
            out = torch.empty_like(x, memory_format=torch.contiguous_format)
            ob, oh, ot, _ = out.stride()
        table, first, index = rows[n]
        assert table.batch in (1, batch), f"a table for {table.batch} rows and a batch of {batch}"
        numbers += (x.data_ptr(), out.data_ptr(), heads, length, xb, xh, xt, ob, oh, ot)
        numbers += (table.pointer, table.count, table.batch_stride)
        numbers += (
            (0, 0, 0, 0) if index is None else _get_index_layout(index, table.axes is not None)
        )
        numbers += (first, table.source_pointer)
        targets.append(out)
    if not run_rotation(
        x.dtype, batch, width, channels, table.pairs, vectors, numbers, transpose, isa
    ):
        return None
    if outs is None:
        return targets
    for n, target in enumerate(targets):
        if target is not outs[n]:
            outs[n].copy_(target)
    increment_version(targets)  # so that autograd notices, as it does with torch's own writes
    return list(outs)


def run_rotation(
    dtype: torch.dtype,
    batch: int,
    width: int,
    channels: RotatedChannels,
    pairs: int,
    vectors: int,
    numbers: Sequence[int],
    transpose: bool = False,
    isa: int = 0,
) -> bool:
    """Run a job of one or two operands; False, with nothing written, if a row is not in its table.

    numbers: 19 for each operand, as csrc/whorl.h has them. vectors: how many rotate in all.
    """
    layout, out_layout, start = channels
    threads = 1 if vectors <= _SMALL_VECTORS else torch.get_num_threads()
    count = len(numbers) // 19
    head = (_DTYPES[dtype], count, batch, width, start, pairs)
    options = (_LAYOUTS[layout], _LAYOUTS[out_layout], transpose, threads, isa)
    if count == 2:
        status = _call(_TWO(*head, *options, *numbers))
    else:
        status = _call(_ONE(*head, *options, *numbers) + _UNUSED)
    if status == _CHANGED:
        raise RuntimeError(CHANGED_POSITIONS)
    if status and status != _BAD_ROW:
        raise AssertionError(f"whorl_rotate: status {status} for {head}, {options}, {numbers}")
    return not status


class PreparedRotation:
    """A job whose tensors stay at their addresses: only the first row changes between calls."""

    __slots__ = ("_bytes", "_numbers", "_outs", "_pointers", "_storages", "_tensors", "table")

    def __init__(
        self, numbers: Sequence[int], xs: Sequence[Tensor], outs: Sequence[Tensor], table: Table
    ) -> None:
        self._numbers = (ctypes.c_int64 * len(numbers)).from_buffer(bytearray(_TWO(*numbers)))
        self._tensors, self._outs = (*xs, *outs), list(outs)
        self.table = table  # the job has only its address
        self._pointers = [t.data_ptr() for t in self._tensors]
        self._storages = [t.untyped_storage() for t in self._tensors]
        self._bytes = list(map(len, self._storages))

    def is_valid(self) -> bool:
        """Whether every tensor still has the address and the memory that it had."""
        if list(map(len, self._storages)) != self._bytes:
            return False
        return [t.data_ptr() for t in self._tensors] == self._pointers

    def __call__(self, first: int) -> None:
        """Rotate by the table's rows first, first + 1, ..., which the caller knows to be there."""
        self._numbers[28] = self._numbers[47] = first  # of each operand
        if status := _call(self._numbers):
            raise AssertionError(f"whorl_rotate: status {status} for a prepared job")
        increment_version(self._outs)


def prepare_rotation(
    xs: tuple[Tensor, Tensor], outs: tuple[Tensor, Tensor], table: Table, channels: RotatedChannels
) -> PreparedRotation | None:
    """A job for two tensors and their results; None if one of them must be copied first."""
    for n, (x, out) in enumerate(zip(xs, outs, strict=True)):
        if x.stride(3) != 1 or not x.numel() or _choose_target(xs[n:], x, out, channels) is not out:
            return None
    batch, _, _, width = xs[0].shape
    vectors = sum(x.numel() // width for x in xs)
    threads = 1 if vectors <= _SMALL_VECTORS else torch.get_num_threads()
    numbers: list[int] = [_DTYPES[xs[0].dtype], 2, batch, width, channels.start, table.pairs]
    numbers += [
        _LAYOUTS[channels.layout],
        _LAYOUTS[channels.out_layout],
        False,
        threads,
        ISAS["auto"],
    ]
    for x, out in zip(xs, outs, strict=True):
        numbers += [x.data_ptr(), out.data_ptr(), *x.shape[1:3], *x.stride()[:3], *out.stride()[:3]]
        numbers += [
            table.pointer,
            table.count,
            table.batch_stride,
            0,
            0,
            0,
            0,
            0,
            table.source_pointer,
        ]
    return PreparedRotation(numbers, xs, outs, table)


def allocate_like(x: Tensor) -> Tensor:
    """An uninitialised tensor like ``x``, on huge pages if it is large.

    Page faults of 4 KiB pages take three times as long as rotating a new result of 84 MB; NumPy
    asks for huge pages in the same way.
    """
    out = torch.empty_like(x)
    # No dtype has more than 8 bytes, and numel is the cheapest test.
    return out if x.numel() < _HUGE_BYTES.start // 8 else use_huge_pages(out)


def use_huge_pages(out: Tensor) -> Tensor:
    """``out``, a new and ordinary CPU tensor; asks the system for huge pages if it is large."""
    if out.nbytes in _HUGE_BYTES and _library is not None:
        _library.whorl_prefer_huge_pages(out.data_ptr(), out.nbytes)
    return out


def _choose_target(
    unread: Sequence[Tensor], x: Tensor, out: Tensor, channels: RotatedChannels
) -> Tensor:
    """``out``, or a new tensor if the kernel cannot write to it.

    It can if that overwrites nothing still to be read, of ``x`` or of the tensors in
    ``unread[1:]``; when in doubt it cannot.
    """
    if out.stride(3) != 1:
        return torch.empty_like(x)
    begin, end = _get_byte_range(out)
    for y in unread[1:]:
        if _can_overlap(y, begin, end):
            return torch.empty_like(x)
    if x.data_ptr() == begin and x.stride() == out.stride():
        return out if channels.layout == channels.out_layout else torch.empty_like(x)
    return torch.empty_like(x) if _can_overlap(x, begin, end) else out


def _can_overlap(x: Tensor, begin: int, end: int) -> bool:
    first, last = _get_byte_range(x)
    return first < end and begin < last


def _get_byte_range(x: Tensor) -> tuple[int, int]:
    """First byte and the one after the last that ``x`` may touch."""
    begin = x.data_ptr()
    if x.is_contiguous():
        return begin, begin + x.nbytes
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return begin, begin + ((last + 1) * x.element_size() if x.numel() else 0)


def _get_index_layout(index: Tensor, several: bool) -> tuple[int, int, int, int]:
    per_axis = index.stride(0) if several else 0
    per_row = index.stride(-2) if index.dim() == 2 + several else 0
    return index.data_ptr(), per_row, index.stride(-1), per_axis


def build_steps(inv_freq: int, growth: int, pairs: int, steps: int) -> None:
    """Fill ``steps``; all arguments but ``pairs`` are addresses. See ``native_tables``."""
    assert _library is not None, _problem
    status = _library.whorl_build_steps(inv_freq, growth, pairs, steps)
    assert status == 0, f"whorl_build_steps refused {pairs} pairs with status {status}"


def build_table(job: bytes) -> None:
    """Build the ``whorl_table`` packed in ``job``; ``native_tables`` makes them."""
    assert _library is not None, _problem
    status = _library.whorl_build_table(job)
    assert status == 0, f"whorl_build_table refused its job with status {status}"


def gather_scores(job: bytes) -> None:
    """Run the ``whorl_scores`` packed in ``job``; ``scores`` makes them."""
    assert _library is not None, _problem
    status = _library.whorl_gather_scores(job)
    assert status == 0, f"whorl_gather_scores refused its job with status {status}"


def scatter_scores(job: bytes) -> None:
    """The gradient of ``gather_scores``, added to the terms of the job."""
    assert _library is not None, _problem
    status = _library.whorl_scatter_scores(job)
    assert status == 0, f"whorl_scatter_scores refused its job with status {status}"


def find_problem() -> str | None:
    """None when the native library is in use, else why it is not."""
    return _problem


def find_library() -> Path | None:
    """The shared library beside this package, or None: a pure-Python install."""
    suffix = {"darwin": "libwhorl.dylib", "win32": "whorl.dll"}.get(sys.platform, "libwhorl.so")
    for folder in sys.modules[__package__].__path__:  # an editable install has two folders here
        if (path := Path(folder) / suffix).exists():
            return path
    return None


def get_best_isa() -> str:
    """The instruction set that the library picks on this CPU."""
    number = _library.whorl_best_isa() if _library is not None else -1
    return next((name for name, value in ISAS.items() if value == number), "none")


def get_max_threads() -> int:
    """Threads the library's OpenMP runtime offers; 1 when built without OpenMP."""
    return int(_library.whorl_max_threads()) if _library is not None else 1


def _load_library() -> tuple[ctypes.CDLL | None, str | None]:
    path = find_library()
    if path is None:
        return None, (
            "the C library was not built, most likely because there was no working C compiler when"
            " whorl was installed; install one and reinstall whorl"
        )
    try:
        # torch is imported first, so its OpenMP runtime is the one this library binds to.
        library = ctypes.CDLL(str(path))
        library.whorl_abi.restype = ctypes.c_int64
        if (found := library.whorl_abi()) != ABI:
            return None, f"{path} speaks ABI {found}, this whorl needs {ABI}; reinstall whorl"
    except (OSError, AttributeError) as error:
        return None, f"{path} does not load: {error}; reinstall whorl"
    jobs = ("rotate", "build_table", "gather_scores", "scatter_scores")
    for name in jobs:
        getattr(library, f"whorl_{name}").argtypes = [ctypes.c_void_p]
    pointer = ctypes.c_void_p
    library.whorl_build_steps.argtypes = [pointer, pointer, ctypes.c_int64, pointer]
    library.whorl_prefer_huge_pages.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    for name in (*jobs, "best_isa", "max_threads", "prefer_huge_pages", "build_steps"):
        getattr(library, f"whorl_{name}").restype = ctypes.c_int64
    return library, None


_library, _problem = _load_library()


def _raise_missing_library(job: Any) -> int:
    raise AssertionError(f"callers ask find_problem() first: {_problem}")


_call: Callable[[Any], int] = (
    _library.whorl_rotate if _library is not None else _raise_missing_library
)
