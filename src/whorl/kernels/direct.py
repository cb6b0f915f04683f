"""The fastest way to the kernel: ordinary tensors at positions first, first + 1, ... of one table.

A decode step rotates 20 KB, so most of its time goes into reading the properties of its tensors.
Here each property is read once, in the cheapest way. For anything unusual the result is None, and
the caller takes the general way, which also has the error messages.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from whorl._support.tensors import is_intercepted

from . import native
from .native import RotatedChannels
from .native_tables import read_rows
from .ops import are_batched, is_plain, resolve_gradients, rotate_gradients
from .row_table import Table, TableRows

__all__ = ["rotate"]

_BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}

_NO_INDEX = (0, 0, 0, 0)  # its address and strides

# Plain tuples: a named one takes 0.4 us to make, a plain one 0.1, as long as reading a property.
# What all tensors of a call have in common: dtype, B, T, D, and whether gradients are recorded.
_CallKind = tuple[torch.dtype, int, int, int, bool]
# Heads; the strides of B, H and T; elements from the first to the last, inclusive; the address.
_MemoryLayout = tuple[int, tuple[int, int, int], int, int]
# The memory of each tensor and of its result; the results.
_Targets = tuple[list[tuple[_MemoryLayout, _MemoryLayout]], list[Tensor]]


def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor] | None,
    table: Table,
    first: int,
    channels: RotatedChannels,
    width: int,
) -> list[Tensor] | None:
    """Rotate one or two tensors [B, H, T, width] into ``outs``, or into new ones.

    The caller need not check anything. None, with nothing written, if something is unusual.
    """
    if is_intercepted() or (kind := _get_call_kind(xs[0], width)) is None:
        return None
    dtype, batch, length, _, tracked = kind
    if not table.has_rows(first, length):
        if (found := table.find_rows(first, length)) is None:
            return None
        table, first = found
    if outs is not None:
        targets = _check_targets(xs, outs, kind, channels)
    elif tracked and any(type(x) is Tensor and x.requires_grad for x in xs):
        return _rotate_with_gradient(
            xs, _TableRotation(table, first, length, channels, False), kind
        )
    else:
        targets = _allocate_targets(xs, kind)
    if targets is None:
        return None
    memory, results = targets
    numbers: list[int] = []
    vectors, end = (
        0,
        (table.pointer, table.count, table.batch_stride, *_NO_INDEX, first, table.source_pointer),
    )
    for (heads, strides, _, pointer), (_, out_strides, _, out_pointer) in memory:
        numbers += (pointer, out_pointer, heads, length, *strides, *out_strides, *end)
        vectors += heads * batch * length
    native.run_rotation(dtype, batch, width, channels, table.pairs, vectors, numbers)
    if outs is not None:
        increment_version(results)  # so that autograd notices, as with torch's own writes
    return results


def _allocate_targets(xs: Sequence[Tensor], kind: _CallKind) -> _Targets | None:
    """New tensors for the results; None if one of ``xs`` is unusual."""
    memory, results = [], []
    for x in xs:
        if (source := _get_memory_layout(x, kind)) is None:
            return None
        out = native.allocate_like(x)
        if x.is_contiguous():  # then the new one has the same strides
            target: _MemoryLayout | None = (source[0], source[1], source[2], out.data_ptr())
        else:
            target = _get_memory_layout(out, kind)
        if target is None:
            return None
        memory.append((source, target))
        results.append(out)
    return memory, results


def _check_targets(
    xs: Sequence[Tensor], outs: Sequence[Tensor], kind: _CallKind, channels: RotatedChannels
) -> _Targets | None:
    """``outs`` as targets; None if the kernel cannot write to them as they are."""
    if type(outs) not in (tuple, list) or len(outs) != len(xs):
        return None
    guarded = not torch.is_inference_mode_enabled()  # then inference tensors are read-only
    memory, item = [], _BYTES[kind[0]]
    spans = []  # the first byte of each tensor, and the one after its last
    for x, out in zip(xs, outs, strict=True):
        if not isinstance(out, Tensor):
            return None
        if (source := _get_memory_layout(x, kind)) is None or (guarded and out.is_inference()):
            return None
        _, _, size, pointer = source
        spans.append((pointer, pointer + size * item))
        if out is x:
            target = source if channels.layout == channels.out_layout else None
        elif (target := _get_memory_layout(out, kind)) is not None:
            _, _, size, pointer = target
            spans.append((pointer, pointer + size * item))
        if target is None or target[0] != source[0] or not _has_distinct_vectors(target, kind):
            return None
        memory.append((source, target))
    return (memory, list(outs)) if _are_disjoint(spans) else None


def _get_call_kind(x: Tensor, width: int) -> _CallKind | None:
    if type(x) is not Tensor or x.dtype not in _BYTES or x.is_nested:
        return None
    if len(shape := x.shape) != 4:
        return None
    return x.dtype, shape[0], shape[2], width, torch.is_grad_enabled()


def _get_memory_layout(x: Tensor, kind: _CallKind) -> _MemoryLayout | None:
    """The memory of ``x``; None unless it is an ordinary tensor of this kind."""
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
    pointer = x.data_ptr()  # 0: freed, or a zero tensor; a view into freed memory has another
    if size <= 0 or not pointer or (x.storage_offset() + size) * _BYTES[dtype] > held:
        return None
    return heads, strides, size, pointer


def _has_distinct_vectors(memory: _MemoryLayout, kind: _CallKind) -> bool:
    """Whether no two vectors share memory, in the order [B, H, T, D] or [B, T, H, D]."""
    heads, (row, head, step), _, _ = memory
    _, _, length, width, _ = kind
    if step >= width and head >= length * step and row >= heads * head:
        return True
    return head >= width and step >= heads * head and row >= length * step


def _are_disjoint(spans: list[tuple[int, int]]) -> bool:
    """Whether each range of bytes ends before the next one begins."""
    spans.sort()
    last = 0
    for begin, end in spans:
        if begin < last:
            return False
        last = end
    return True


class _TableRotation(NamedTuple):
    """A rotation by rows first .. first + length - 1 of a table, or past it."""

    table: Table
    first: int
    length: int
    channels: RotatedChannels
    transpose: bool

    def invert(self) -> "_TableRotation":
        return self._replace(channels=self.channels.reverse(), transpose=not self.transpose)

    def run(self, xs: Sequence[Tensor]) -> list[Tensor]:
        rows = [TableRows(self.table, self.first)] * len(xs)
        done = native.rotate(xs, None, rows, self.channels, self.transpose)
        assert done is not None, "the table has these rows"
        return done


class _TableRotationFunction(torch.autograd.Function):
    """Its backward pass is itself with sin negated; the table is a constant, nothing is saved."""

    @staticmethod
    def forward(ctx: Any, rotation: _TableRotation, *xs: Tensor) -> tuple[Tensor, ...]:
        ctx.rotation = rotation
        return tuple(rotation.run(xs))

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Any, ...]:
        inverse, grads = ctx.rotation.invert(), resolve_gradients(given)
        if is_plain(grads, gradless=True) and not are_batched(grads):
            return None, *inverse.run(grads)
        rows = read_rows(inverse.table, inverse.first, inverse.length)
        return None, *rotate_gradients(
            grads, [rows] * len(grads), inverse.channels, inverse.transpose, "native"
        )


def _rotate_with_gradient(
    xs: Sequence[Tensor], rotation: _TableRotation, kind: _CallKind
) -> list[Tensor] | None:
    kind = *kind[:4], False
    if any(_get_memory_layout(x, kind) is None for x in xs):
        return None
    return list(_TableRotationFunction.apply(rotation, *xs))  # type: ignore[no-untyped-call]
