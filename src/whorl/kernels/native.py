"""Loads the C library beside this file and calls it; ABI in csrc/whorl.h.

A missing library never breaks the import: ``problem()`` says why it is not in use.
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

__all__ = [
    "ISAS",
    "PreparedRotation",
    "RotatedChannels",
    "Table",
    "TableRows",
    "allocate_like",
    "build_steps",
    "build_table",
    "find_library",
    "find_problem",
    "get_best_isa",
    "get_max_threads",
    "prepare_rotation",
    "rotate",
    "run_rotation",
    "use_huge_pages",
]

ABI = 4
ISAS = {"auto": 0, "scalar": 1, "avx2": 2}
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_LAYOUTS = {"half": 0, "interleaved": 1}
_BAD_ROW, _CHANGED = 2, 4

# A job is 11 numbers and two operands of 19, all int64: one pack and one pointer per call cost
# 0.8 us, forty ctypes arguments several.
_ONE = struct.Struct("30q").pack
_TWO = struct.Struct("49q").pack
_ROW_SOURCE = struct.Struct("4qd").pack
_UNUSED = bytes(19 * 8)

# Up to this many head vectors one thread does it all: a decode step of 32 sequences, 32 + 8 heads.
# Not tuned; a busy neighbour can hold up a second thread for milliseconds.
_SMALL_VECTORS = 1280

# Rows that a table keeps of those that torch built past it, once calls follow one another.
_RECENT_ROWS = 128

# Positions that surely stay within int64, whatever the length of a tensor.
_FAR = 1 << 62

# New results of these sizes ask for huge pages. Larger ones do not: 671 MB on huge pages once took
# 1.6 s on a virtual machine. Why was not established; the kernel counted no compaction.
_HUGE_BYTES = range(1 << 21, (1 << 27) + 1)


class RotatedChannels(NamedTuple):
    """Which channels rotate and how they are paired, before and after."""

    layout: str
    out_layout: str
    start: int

    def reversed(self) -> "RotatedChannels":
        """The band of the inverse: it reads what the rotation wrote."""
        return RotatedChannels(self.out_layout, self.layout, self.start)


class Table:
    """cos and sin by row, [N, 2, P] or [B, N, 2, P]; float64 for float64 tensors, else float32.

    Row n of one without B belongs to position n; with ``steps`` of its frequencies and ``growth``,
    times ``scale``, the kernel builds the rows of all other positions itself. axes: int64 [P], the
    axis whose row each pair is taken from where positions have several.
    build: makes the rows first .. first + length - 1 where the kernel may not.
    """

    __slots__ = (
        "_kept",
        "_turns",
        "axes",
        "batch",
        "batch_stride",
        "build",
        "count",
        "entries",
        "growth",
        "pairs",
        "past",
        "pointer",
        "scale",
        "steps",
    )

    def __init__(
        self,
        entries: Tensor,
        steps: Tensor | None = None,
        scale: float = 1.0,
        growth: Tensor | None = None,
        axes: Tensor | None = None,
        build: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        self.entries = entries.contiguous()
        *_, self.count, _, self.pairs = entries.shape
        self.batch = entries.shape[0] if entries.dim() == 4 else 1
        self.batch_stride = 2 * self.pairs * self.count if self.batch != 1 else 0
        self.pointer = self.entries.data_ptr()
        self.steps, self.scale, self.growth, self.axes = steps, scale, growth, axes
        self.build = build
        self._kept: tuple[Table, int] | None = None
        self.past = 0  # the end of an operand
        if steps is not None or axes is not None:
            at = [0 if t is None else t.data_ptr() for t in (steps, growth, axes)]
            count = 0 if axes is None else max(axes.tolist(), default=0) + 1
            self._turns = ctypes.create_string_buffer(_ROW_SOURCE(*at, count, scale))
            self.past = ctypes.addressof(self._turns)

    def has(self, first: int, length: int) -> bool:
        """Whether there are rows first .. first + length - 1, or the kernel builds them."""
        if self.steps is not None:
            return -_FAR < first < _FAR
        return 0 <= first <= self.count - length

    def find(self, first: int, length: int) -> "tuple[Table, int] | None":
        """A table that has these rows, and the first of them there; None: a call must build them.

        The rows of a few positions are kept for the next call, which may be that of another layer,
        and where a call goes on from the last one those of its successors are built with them.
        """
        if self.has(first, length):
            return self, first
        if self.build is None or length > _RECENT_ROWS // 4 or not -_FAR < first < _FAR:
            return None
        count = length
        if (kept := self._kept) is not None:  # read once: another thread may put another there
            table, at = kept[0], first - kept[1]
            if table.has(at, length):
                return table, at
            count = _RECENT_ROWS if at <= table.count <= at + length else length
        with torch.inference_mode(False):  # they must serve training later
            table = Table(self.build(first, count))
        self._kept = table, first
        return table, 0


class TableRows(NamedTuple):
    """Where each position of a tensor finds its cos and sin: row first + t, or first + at[t].

    at: int64 [T] or [B, T]; [n, T] or [n, B, T] where the table has axes.
    """

    table: Table
    first: int = 0
    at: Tensor | None = None


def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor] | None,
    rows: Sequence[TableRows],
    band: RotatedChannels,
    transpose: bool,
    isa: int = 0,
    apart: bool = False,
) -> list[Tensor] | None:
    """Rotate one or two tensors [B, H, T, D] into ``outs``, or into new ones.

    None, with nothing written, if a row is not in its table. ``outs`` may be ``xs``. A tensor whose
    last dimension is not contiguous is copied once, and so is a result that would be written over
    what is still to be read; ``apart`` says that none is. The caller has checked shapes, dtypes
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
            if not apart and (out is not x or band.layout != band.out_layout):
                out = _choose_target(xs[n:], x, out, band)
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
        numbers += (first, table.past)
        targets.append(out)
    if not run_rotation(x.dtype, batch, width, band, table.pairs, vectors, numbers, transpose, isa):
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
    band: RotatedChannels,
    pairs: int,
    vectors: int,
    numbers: Sequence[int],
    transpose: bool = False,
    isa: int = 0,
) -> bool:
    """Run a job of one or two operands; False, with nothing written, if a row is not there.

    numbers: 19 for each operand, as csrc/whorl.h has them. vectors: how many rotate in all.
    """
    layout, out_layout, start = band
    threads = 1 if vectors <= _SMALL_VECTORS else torch.get_num_threads()
    count = len(numbers) // 19
    head = (_DTYPES[dtype], count, batch, width, start, pairs)
    turn = (_LAYOUTS[layout], _LAYOUTS[out_layout], transpose, threads, isa)
    if count == 2:
        status = _call(_TWO(*head, *turn, *numbers))
    else:
        status = _call(_ONE(*head, *turn, *numbers) + _UNUSED)
    if status == _CHANGED:
        raise RuntimeError(
            "whorl: positions changed while they were read, so part of the result may be written;"
            " let no other thread write to positions or offset during a call."
        )
    if status and status != _BAD_ROW:
        raise AssertionError(f"whorl_rotate: status {status} for {head}, {turn}, {numbers}")
    return not status


class PreparedRotation:
    """A job whose tensors keep their places: only the first row changes from call to call."""

    __slots__ = ("_at", "_bytes", "_numbers", "_outs", "_storages", "_tensors", "table")

    def __init__(
        self, numbers: Sequence[int], xs: Sequence[Tensor], outs: Sequence[Tensor], table: Table
    ) -> None:
        self._numbers = (ctypes.c_int64 * len(numbers)).from_buffer(bytearray(_TWO(*numbers)))
        self._tensors, self._outs = (*xs, *outs), list(outs)
        self.table = table  # the job has only its address
        self._at = [t.data_ptr() for t in self._tensors]
        self._storages = [t.untyped_storage() for t in self._tensors]
        self._bytes = list(map(len, self._storages))

    def stays(self) -> bool:
        """Whether every tensor is where it was, in as much memory."""
        if list(map(len, self._storages)) != self._bytes:
            return False
        return [t.data_ptr() for t in self._tensors] == self._at

    def __call__(self, first: int) -> None:
        """Rotate by the table's rows first, first + 1, ..., which the caller knows to be there."""
        self._numbers[28] = self._numbers[47] = first  # of each operand
        if status := _call(self._numbers):
            raise AssertionError(f"whorl_rotate: status {status} for a prepared job")
        increment_version(self._outs)


def prepare_rotation(
    xs: tuple[Tensor, Tensor], outs: tuple[Tensor, Tensor], table: Table, band: RotatedChannels
) -> PreparedRotation | None:
    """A job for two tensors and their results; None where these need copies on the way."""
    for n, (x, out) in enumerate(zip(xs, outs, strict=True)):
        if x.stride(3) != 1 or not x.numel() or _choose_target(xs[n:], x, out, band) is not out:
            return None
    batch, _, _, width = xs[0].shape
    vectors = sum(x.numel() // width for x in xs)
    threads = 1 if vectors <= _SMALL_VECTORS else torch.get_num_threads()
    numbers: list[int] = [_DTYPES[xs[0].dtype], 2, batch, width, band.start, table.pairs]
    numbers += [_LAYOUTS[band.layout], _LAYOUTS[band.out_layout], False, threads, ISAS["auto"]]
    for x, out in zip(xs, outs, strict=True):
        numbers += [x.data_ptr(), out.data_ptr(), *x.shape[1:3], *x.stride()[:3], *out.stride()[:3]]
        numbers += [table.pointer, table.count, table.batch_stride, 0, 0, 0, 0, 0, table.past]
    return PreparedRotation(numbers, xs, outs, table)


def allocate_like(x: Tensor) -> Tensor:
    """An uninitialised tensor like ``x``, on huge pages where it is large.

    Faults on 4 KiB pages take three times as long as rotating a fresh 84 MB result does; NumPy
    advises its large arrays alike.
    """
    out = torch.empty_like(x)
    # No dtype has more than 8 bytes, and this question is the cheapest.
    return out if x.numel() < _HUGE_BYTES.start // 8 else use_huge_pages(out)


def use_huge_pages(out: Tensor) -> Tensor:
    """``out``, a new and ordinary CPU tensor, whose memory should come in huge pages if large."""
    if out.nbytes in _HUGE_BYTES and _library is not None:
        _library.whorl_prefer_huge_pages(out.data_ptr(), out.nbytes)
    return out


def _choose_target(
    unread: Sequence[Tensor], x: Tensor, out: Tensor, band: RotatedChannels
) -> Tensor:
    """``out``, or a new tensor where the kernel cannot write to it.

    It can if that destroys nothing still to be read, of ``x`` or of the tensors in ``unread[1:]``;
    when in doubt it cannot.
    """
    if out.stride(3) != 1:
        return torch.empty_like(x)
    begin, end = _get_byte_range(out)
    for y in unread[1:]:
        if _can_overlap(y, begin, end):
            return torch.empty_like(x)
    if x.data_ptr() == begin and x.stride() == out.stride():
        return out if band.layout == band.out_layout else torch.empty_like(x)
    return torch.empty_like(x) if _can_overlap(x, begin, end) else out


def _can_overlap(x: Tensor, begin: int, end: int) -> bool:
    first, last = _get_byte_range(x)
    return first < end and begin < last


def _get_byte_range(x: Tensor) -> tuple[int, int]:
    """First byte and the one after the last that ``x`` may touch."""
    begin = x.data_ptr()
    if x.is_contiguous():
        return begin, begin + x.nbytes
    reach = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return begin, begin + ((reach + 1) * x.element_size() if x.numel() else 0)


def _get_index_layout(index: Tensor, several: bool) -> tuple[int, int, int, int]:
    per_axis = index.stride(0) if several else 0
    per_row = index.stride(-2) if index.dim() == 2 + several else 0
    return index.data_ptr(), per_row, index.stride(-1), per_axis


def build_steps(inv_freq: int, growth: int, pairs: int, steps: int) -> None:
    """Fill ``steps``; all are addresses but ``pairs``. ``native_tables`` has the words."""
    assert _library is not None, _problem
    status = _library.whorl_build_steps(inv_freq, growth, pairs, steps)
    assert status == 0, f"whorl_build_steps refused {pairs} pairs with status {status}"


def build_table(job: bytes) -> None:
    """Build the ``whorl_table`` packed in ``job``; ``native_tables`` makes them."""
    assert _library is not None, _problem
    status = _library.whorl_build_table(job)
    assert status == 0, f"whorl_build_table refused its job with status {status}"


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
    for name in ("rotate", "build_table"):
        getattr(library, f"whorl_{name}").argtypes = [ctypes.c_void_p]
    at = ctypes.c_void_p
    library.whorl_build_steps.argtypes = [at, at, ctypes.c_int64, at]
    library.whorl_prefer_huge_pages.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    numbers = ("rotate", "best_isa", "max_threads", "prefer_huge_pages")
    for name in (*numbers, "build_table", "build_steps"):
        getattr(library, f"whorl_{name}").restype = ctypes.c_int64
    return library, None


_library, _problem = _load_library()


def _raise_missing_library(job: Any) -> int:
    raise AssertionError(f"callers ask problem() first: {_problem}")


_call: Callable[[Any], int] = (
    _library.whorl_rotate if _library is not None else _raise_missing_library
)
