"""The shortest way to the kernel: ordinary tensors at positions first, first + 1, ... of one table.

A decode step rotates 20 KB, so what it costs is asking its tensors about themselves. Here each is
asked once, in the cheapest way, and anything unusual sends the caller the general way, which also
has the words for what is wrong.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import native
from .native import Band, Rows, Table
from .ops import are_batched, is_plain, is_watched, rotate_back

__all__ = ["rotate"]

_BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}


class _Kind(NamedTuple):
    """What all tensors of a call must agree in."""

    dtype: torch.dtype
    item: int  # bytes of an element
    batch: int
    length: int
    width: int
    tracked: bool  # whether a tensor that needs a gradient would get one


# heads; the strides of B, H and T; elements from the first to the end of the last; the address
_Place = tuple[int, tuple[int, int, int], int, int]


def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor] | None,
    table: Table,
    first: int,
    band: Band,
    width: int,
) -> list[Tensor] | None:
    """Rotate one or two tensors [B, H, T, width] into ``outs``, or into new ones; None: declined.

    The caller has checked nothing, and where None comes back nothing has been written.
    """
    if is_watched():
        return None
    if outs is not None and (type(outs) not in (tuple, list) or len(outs) != len(xs)):
        return None
    kind = _kind(xs[0], width)
    if kind is None or not 0 <= first <= table.count - kind.length:
        return None
    if kind.tracked and outs is None and any(type(x) is Tensor and x.requires_grad for x in xs):
        return _differentiably(xs, _Turn(table, first, kind.length, band, False), kind)
    job = _Job(table, first, kind, band)
    for n, x in enumerate(xs):
        if not job.take(x, None if outs is None else outs[n]):
            return None
    if outs is not None and not _are_apart(job.spans):
        return None
    vectors = job.heads * kind.batch * kind.length
    native.submit(kind.dtype, kind.batch, width, band, table.pairs, vectors, job.numbers)
    if outs is not None:
        increment_version(job.targets)  # so that autograd notices, as with torch's own writes
    return job.targets


class _Job:
    """The operands of a call so far; spans: the first byte of each tensor, and where it ends."""

    __slots__ = ("_band", "_end", "_kind", "heads", "numbers", "spans", "targets")

    def __init__(self, table: Table, first: int, kind: _Kind, band: Band) -> None:
        self._kind, self._band, self.heads = kind, band, 0
        self._end = (table.pointer, table.count, table.batch_stride, 0, 0, 0, first)
        self.targets: list[Tensor] = []
        self.numbers: list[int] = []
        self.spans: list[tuple[int, int]] = []

    def take(self, x: Tensor, out: Tensor | None) -> bool:
        """Add ``x`` and where it goes, a new tensor for None; False: declined."""
        kind = self._kind
        if (source := _place(x, kind)) is None:
            return False
        heads, strides, size, at = source
        self.spans.append((at, at + size * kind.item))
        if out is None:
            out = native.new_like(x)
            # A new one lies as ``x`` does where that is dense, and asking takes a microsecond.
            target = (heads, strides, size, out.data_ptr()) if x.is_contiguous() else None
            target = target or _place(out, kind)
        elif out is x:
            target = source if self._band.layout == self._band.out_layout else None
        elif (target := _place(out, kind)) is not None:
            to, reach = target[3], target[2] * kind.item
            self.spans.append((to, to + reach))
        if target is None or target[0] != heads:
            return False
        self.numbers += (at, target[3], heads, kind.length, *strides, *target[1], *self._end)
        self.targets.append(out)
        self.heads += heads
        return True


def _kind(x: Tensor, width: int) -> _Kind | None:
    if type(x) is not Tensor or len(shape := x.shape) != 4:
        return None
    item = _BYTES.get(dtype := x.dtype)
    if item is None:
        return None
    return _Kind(dtype, item, shape[0], shape[2], width, torch.is_grad_enabled())


def _place(x: Tensor, kind: _Kind) -> _Place | None:
    """Where ``x`` lies in memory; None unless it is an ordinary tensor of this kind."""
    dtype, _, batch, length, width, tracked = kind
    if type(x) is not Tensor or x.dtype is not dtype or not x.is_cpu or x.is_neg():
        return None
    if tracked and x.requires_grad:
        return None
    shape = x.shape
    if len(shape) != 4:
        return None
    rows, heads, steps, channels = shape
    if rows != batch or steps != length or channels != width:
        return None
    if x.is_contiguous():  # the strides follow, and asking for them takes longer
        head = length * width
        row = heads * head
        size = batch * row
        strides = row, head, width
    else:
        row, head, step, last = x.stride()
        if last != 1 or row <= 0 or head <= 0 or step <= 0:
            return None
        size = (batch - 1) * row + (heads - 1) * head + (length - 1) * step + width
        strides = row, head, step
    return (heads, strides, size, x.data_ptr()) if size > 0 else None


def _are_apart(spans: list[tuple[int, int]]) -> bool:
    """Whether each ends before the next begins."""
    spans.sort()
    last = 0
    for begin, end in spans:
        if begin < last:
            return False
        last = end
    return True


class _Turn(NamedTuple):
    """Rows first .. first + length - 1 of a table, and how they are applied."""

    table: Table
    first: int
    length: int
    band: Band
    transpose: bool

    def back(self) -> "_Turn":
        return self._replace(band=self.band.reversed(), transpose=not self.transpose)

    def run(self, xs: Sequence[Tensor]) -> list[Tensor]:
        rows = [Rows(self.table, self.first)] * len(xs)
        done = native.rotate(xs, None, rows, self.band, self.transpose)
        assert done is not None, "the table has these rows"
        return done


class _Differentiable(torch.autograd.Function):
    """Its backward pass is itself with sin negated; the table is a constant, nothing is saved."""

    @staticmethod
    def forward(ctx: Any, turn: _Turn, *xs: Tensor) -> tuple[Tensor, ...]:
        ctx.turn = turn
        return tuple(turn.run(xs))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        turn = ctx.turn.back()
        if is_plain(grads, gradless=True) and not are_batched(grads):
            return None, *turn.run(grads)
        rows = turn.table.entries[turn.first : turn.first + turn.length]
        return None, *rotate_back(grads, [rows] * len(grads), turn.band, turn.transpose, "native")


def _differentiably(xs: Sequence[Tensor], turn: _Turn, kind: _Kind) -> list[Tensor] | None:
    kind = kind._replace(tracked=False)
    if any(_place(x, kind) is None for x in xs):
        return None
    return list(_Differentiable.apply(turn, *xs))  # type: ignore[no-untyped-call]
