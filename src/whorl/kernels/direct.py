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
from .native import RotatedChannels, Table, TableRows
from .native_tables import read_rows
from .ops import are_batched, is_plain, is_watched, resolve_gradients, rotate_gradients

__all__ = ["rotate"]

_BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}

_NO_ROWS = (0, 0, 0, 0)  # no index, and its strides

# Plain tuples: a named one takes 0.4 us to make, a plain one 0.1, a question to a tensor as much.
# What all tensors of a call agree in: dtype, B, T, D, and whether gradients are recorded.
_CallKind = tuple[torch.dtype, int, int, int, bool]
# Heads; the strides of B, H and T; elements from the first to the end of the last; the address.
_MemoryLayout = tuple[int, tuple[int, int, int], int, int]
# Where each tensor is and where it goes; what is returned.
_Targets = tuple[list[tuple[_MemoryLayout, _MemoryLayout]], list[Tensor]]


def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor] | None,
    table: Table,
    first: int,
    band: RotatedChannels,
    width: int,
) -> list[Tensor] | None:
    """Rotate one or two tensors [B, H, T, width] into ``outs``, or into new ones; None: declined.

    The caller has checked nothing, and where None comes back nothing has been written.
    """
    if is_watched() or (kind := _get_call_kind(xs[0], width)) is None:
        return None
    dtype, batch, length, _, tracked = kind
    if not table.has(first, length):
        if (found := table.find(first, length)) is None:
            return None
        table, first = found
    if outs is not None:
        job = _check_targets(xs, outs, kind, band)
    elif tracked and any(type(x) is Tensor and x.requires_grad for x in xs):
        return _rotate_with_gradient(xs, _TableRotation(table, first, length, band, False), kind)
    else:
        job = _allocate_targets(xs, kind)
    if job is None:
        return None
    places, targets = job
    numbers: list[int] = []
    vectors, end = 0, (table.pointer, table.count, table.batch_stride, *_NO_ROWS, first, table.past)
    for (heads, strides, _, at), (_, to_strides, _, to) in places:
        numbers += (at, to, heads, length, *strides, *to_strides, *end)
        vectors += heads * batch * length
    native.run_rotation(dtype, batch, width, band, table.pairs, vectors, numbers)
    if outs is not None:
        increment_version(targets)  # so that autograd notices, as with torch's own writes
    return targets


def _allocate_targets(xs: Sequence[Tensor], kind: _CallKind) -> _Targets | None:
    places, targets = [], []
    for x in xs:
        if (source := _get_memory_layout(x, kind)) is None:
            return None
        out = native.allocate_like(x)
        if x.is_contiguous():  # then the new one lies as ``x`` does
            target: _MemoryLayout | None = (source[0], source[1], source[2], out.data_ptr())
        else:
            target = _get_memory_layout(out, kind)
        if target is None:
            return None
        places.append((source, target))
        targets.append(out)
    return places, targets


def _check_targets(
    xs: Sequence[Tensor], outs: Sequence[Tensor], kind: _CallKind, band: RotatedChannels
) -> _Targets | None:
    if type(outs) not in (tuple, list) or len(outs) != len(xs):
        return None
    guarded = not torch.is_inference_mode_enabled()  # then inference tensors are only read
    places, item = [], _BYTES[kind[0]]
    spans = []  # the first byte of each tensor, and where it ends
    for x, out in zip(xs, outs, strict=True):
        if not isinstance(out, Tensor):
            return None
        if (source := _get_memory_layout(x, kind)) is None or (guarded and out.is_inference()):
            return None
        _, _, size, at = source
        spans.append((at, at + size * item))
        if out is x:
            target = source if band.layout == band.out_layout else None
        elif (target := _get_memory_layout(out, kind)) is not None:
            _, _, size, at = target
            spans.append((at, at + size * item))
        if target is None or target[0] != source[0] or not _is_spread(target, kind):
            return None
        places.append((source, target))
    return (places, list(outs)) if _are_apart(spans) else None


def _get_call_kind(x: Tensor, width: int) -> _CallKind | None:
    if type(x) is not Tensor or x.dtype not in _BYTES or x.is_nested:
        return None
    if len(shape := x.shape) != 4:
        return None
    return x.dtype, shape[0], shape[2], width, torch.is_grad_enabled()


def _get_memory_layout(x: Tensor, kind: _CallKind) -> _MemoryLayout | None:
    """Where ``x`` lies in memory; None unless it is an ordinary tensor of this kind."""
    dtype, batch, length, width, tracked = kind
    if type(x) is not Tensor or x.dtype is not dtype or not x.is_cpu or x.is_neg():
        return None
    if tracked and x.requires_grad:
        return None
    try:
        held = len(x.untyped_storage())  # bytes
        shape = x.shape
    except RuntimeError:  # sparse; nested
        return None
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
    at = x.data_ptr()  # 0: freed, or a zero tensor; a view into freed memory has another
    if size <= 0 or not at or (x.storage_offset() + size) * _BYTES[dtype] > held:
        return None
    return heads, strides, size, at


def _is_spread(place: _MemoryLayout, kind: _CallKind) -> bool:
    """Whether its vectors lie apart, in one of the orders [B, H, T, D] and [B, T, H, D]."""
    heads, (row, head, step), _, _ = place
    _, _, length, width, _ = kind
    if step >= width and head >= length * step and row >= heads * head:
        return True
    return head >= width and step >= heads * head and row >= length * step


def _are_apart(spans: list[tuple[int, int]]) -> bool:
    """Whether each ends before the next begins."""
    spans.sort()
    last = 0
    for begin, end in spans:
        if begin < last:
            return False
        last = end
    return True


class _TableRotation(NamedTuple):
    """Rows first .. first + length - 1 of a table or past it, and how they are applied."""

    table: Table
    first: int
    length: int
    band: RotatedChannels
    transpose: bool

    def back(self) -> "_TableRotation":
        return self._replace(band=self.band.reversed(), transpose=not self.transpose)

    def run(self, xs: Sequence[Tensor]) -> list[Tensor]:
        rows = [TableRows(self.table, self.first)] * len(xs)
        done = native.rotate(xs, None, rows, self.band, self.transpose)
        assert done is not None, "the table has these rows"
        return done


class _TableRotationFunction(torch.autograd.Function):
    """Its backward pass is itself with sin negated; the table is a constant, nothing is saved."""

    @staticmethod
    def forward(ctx: Any, turn: _TableRotation, *xs: Tensor) -> tuple[Tensor, ...]:
        ctx.turn = turn
        return tuple(turn.run(xs))

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Any, ...]:
        turn, grads = ctx.turn.back(), resolve_gradients(given)
        if is_plain(grads, gradless=True) and not are_batched(grads):
            return None, *turn.run(grads)
        rows = read_rows(turn.table, turn.first, turn.length)
        return None, *rotate_gradients(
            grads, [rows] * len(grads), turn.band, turn.transpose, "native"
        )


def _rotate_with_gradient(
    xs: Sequence[Tensor], turn: _TableRotation, kind: _CallKind
) -> list[Tensor] | None:
    kind = *kind[:4], False
    if any(_get_memory_layout(x, kind) is None for x in xs):
        return None
    return list(_TableRotationFunction.apply(turn, *xs))  # type: ignore[no-untyped-call]
