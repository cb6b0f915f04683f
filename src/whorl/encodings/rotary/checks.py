"""Checks of the arguments of a rotation; each error says what must hold, what came, what to do."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.scaling import Frequencies

__all__ = [
    "check_context",
    "check_delta",
    "check_frequencies",
    "check_input",
    "check_no_gradient",
    "check_outputs",
    "check_pair",
    "check_positions",
    "check_table",
]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_input(x: Tensor, head_dim: int, where: str, what: str) -> tuple[int, int]:
    """Batch size and length of ``x``; refuse all but floating-point [B, H, T, head_dim]."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{where}: {what} must be a tensor [B, H, T, D]; got {type(x).__name__}.")
    if x.dtype not in _DTYPES:
        raise TypeError(
            f"{where}: {what} must be float32, float64, bfloat16 or float16, because rotated values"
            f" are fractions; got {x.dtype}. Convert it with {what}.float()."
        )
    if x.layout is not torch.strided or x.is_nested:
        kind = "a nested tensor" if x.is_nested else x.layout
        raise TypeError(
            f"{where}: {what} must be an ordinary dense tensor; got {kind}. Convert it, as with"
            f" {what}.to_dense() or torch.nested.to_padded_tensor."
        )
    shape = x.shape
    if len(shape) != 4 or shape[3] != head_dim:
        raise ValueError(
            f"{where}: {what} must be [B, H, T, D] with D = head_dim = {head_dim};"
            f" got {list(shape)}. Reshape a [B, T, H * D] tensor with"
            f" {what}.unflatten(-1, (-1, {head_dim})).transpose(1, 2)."
        )
    check_storage(x, where, what)
    return shape[0], shape[2]


def check_outputs(outs: Sequence[Tensor], xs: Sequence[Tensor], where: str) -> bool:
    """Refuse an ``out`` that the result cannot be written to; ``x`` itself is allowed.

    True if none of ``outs`` shares memory with another or with one of ``xs``.
    """
    if not isinstance(outs, (tuple, list)) or len(outs) != len(xs):
        raise ValueError(f"{where}: out must be a pair of tensors, one for q and one for k.")
    for n, out in enumerate(outs):
        _check_output(out, xs[n], where)
    check_no_gradient(outs, where)
    if outs is not xs:
        check_no_gradient(xs, where)
        if not torch.compiler.is_compiling() and _are_disjoint(outs, xs):
            return True
    if len(outs) == 2 and not torch.compiler.is_compiling() and _can_overlap(outs[0], outs[1]):
        raise ValueError(
            f"{where}: q and k would be written to memory that they share; give each a tensor of"
            " its own."
        )
    return False


def _are_disjoint(outs: Sequence[Tensor], xs: Sequence[Tensor]) -> bool:
    """Whether no two of these tensors can share memory; when in doubt, no."""
    spans = []
    for t in (*outs, *xs):
        begin = t.data_ptr()
        size = t.nbytes if t.is_contiguous() else _count_bytes(t, (0, 1, 2, 3))
        spans.append((begin, begin + size))
    spans.sort()
    # Sorted by their first byte, each must end before the next begins.
    return all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def _can_overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors [B, H, T, D] may share memory; slots of one fused buffer do not."""
    address, other_address = one.data_ptr(), other.data_ptr()
    if not address or not other_address:  # without memory: empty, or on the meta device
        return one is other and one.numel() > 0
    low, high, apart = (
        (one, other, other_address - address)
        if address <= other_address
        else (other, one, address - other_address)
    )
    if low.is_contiguous():
        return apart < low.nbytes
    if apart >= _count_bytes(low, (0, 1, 2, 3)):
        return False
    # In a buffer [B, T, slots, D] each token's heads form a block; blocks recur with one period.
    if [one.stride(n) for n in (0, 2)] != [other.stride(n) for n in (0, 2)]:
        return True
    size = low.element_size()
    steps = [low.stride(n) * size for n in (0, 2) if low.shape[n] > 1]
    end = apart + _count_bytes(high, (1, 3))
    return apart < _count_bytes(low, (1, 3)) or any(end > step for step in steps)


def _count_bytes(x: Tensor, axes: tuple[int, ...]) -> int:
    """Bytes from the first element to the end of the last along ``axes``."""
    return (sum((x.shape[n] - 1) * x.stride(n) for n in axes) + 1) * x.element_size()


def check_no_gradient(tensors: Sequence[Tensor], where: str) -> None:
    """Refuse to write in place, or into ``out``, a tensor that needs a gradient."""
    if not torch.is_grad_enabled():
        return
    for tensor in tensors:
        if tensor.requires_grad:
            raise ValueError(
                f"{where}: cannot write into a tensor where a gradient is needed; call it under"
                " torch.no_grad(), or without in-place and out=."
            )


def _check_output(out: Tensor, x: Tensor, where: str) -> None:
    if out is not x:
        if not isinstance(out, Tensor) or out.shape != x.shape or out.dtype != x.dtype:
            got = (
                f"{out.dtype} {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            )
            raise ValueError(
                f"{where}: out must have the shape and dtype of x, {x.dtype} {list(x.shape)};"
                f" got {got}."
            )
        if out.device != x.device:
            raise ValueError(f"{where}: out is on {out.device} but x is on {x.device}.")
        check_storage(out, where, "out")
    if torch.compiler.is_compiling():
        return
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{where}: cannot write into an inference tensor outside torch.inference_mode(), as"
            " torch itself does not; use .clone() first, or call it inside."
        )
    if _has_shared_elements(out):
        kind = "an expanded tensor" if 0 in out.stride() else "a view that overlaps itself"
        raise ValueError(
            f"{where}: cannot write into {kind}, because several elements share one place in"
            " memory; use .clone() first."
        )


def _has_shared_elements(x: Tensor) -> bool:
    """Whether two elements have the same address."""
    if not x.numel() or x.is_contiguous():
        return False
    axes = sorted((step, n) for n, step in zip(x.shape, x.stride(), strict=True) if n > 1)
    last = 0
    for step, n in axes:  # each step must be longer than all shorter ones together
        if step <= last:
            break
        last += (n - 1) * step
    else:
        return False
    offsets = torch.zeros(1, dtype=torch.int64)
    for step, n in axes:  # otherwise elements may still be distinct, so list them all
        offsets = (offsets[:, None] + step * torch.arange(n)).flatten()
    return bool((offsets.sort().values.diff() == 0).any())


def check_pair(q: Tensor, k: Tensor, key_positions: Tensor | None, where: str) -> None:
    """Refuse queries and keys that do not belong together."""
    if k.shape[0] != q.shape[0]:
        raise ValueError(
            f"{where}: q and k must have the same batch size; got {q.shape[0]} and {k.shape[0]}."
        )
    if k.device != q.device:
        raise ValueError(f"{where}: q is on {q.device} but k is on {k.device}; move one of them.")
    if k.dtype != q.dtype:
        raise TypeError(f"{where}: q is {q.dtype} but k is {k.dtype}; convert one of them.")
    if key_positions is None and k.shape[2] != q.shape[2]:
        raise ValueError(
            f"{where}: q has {q.shape[2]} tokens and k has {k.shape[2]}, so one set of positions"
            " cannot serve both; pass key_positions= for the keys."
        )


def check_table(values: Tensor | None, first: int, length: int, known: int, where: str) -> None:
    """Refuse positions outside a table of ``known`` rows."""
    if torch.compiler.is_compiling() or not length:
        return
    if values is None:
        low: float = first
        high: float = first + length - 1
    elif values.numel() and has_values(values):
        low, high = (float(v) if values.is_floating_point() else int(v) for v in values.aminmax())
    else:
        return
    if low < 0 or high > known - 1:
        raise ValueError(
            f"{where}: positions reach from {low} to {high}, but the precomputed table holds 0 to"
            f" {known - 1}; raise table_length, or use table='hybrid'."
        )


def check_context(
    context_length: int | Tensor | None, where: str, batch: int | None = None
) -> None:
    """Refuse a context length that is neither a positive int nor one number per row."""
    if context_length is None:
        return
    if isinstance(context_length, Tensor):
        whole = not (context_length.is_floating_point() or context_length.dtype == torch.bool)
        if context_length.dim() > 1 or not whole:
            raise ValueError(
                _CONTEXT.format(where, f"{context_length.dtype} {list(context_length.shape)}")
            )
        check_storage(context_length, where, "context_length")
        rows = context_length.shape[0] if context_length.dim() else 1
        if batch is not None and rows != 1 and rows != batch:
            raise ValueError(
                f"{where}: context_length has {rows} rows but the batch has {batch};"
                " give one length for each sequence, or one int for all."
            )
        if not context_length.numel() or not has_values(context_length):
            return
        context_length = int(context_length.min())
    elif not isinstance(context_length, (int, torch.SymInt)) or isinstance(context_length, bool):
        raise ValueError(_CONTEXT.format(where, quote(context_length)))
    if not torch.compiler.is_compiling() and context_length < 1:
        raise ValueError(f"{where}: context_length must be at least 1; got {context_length}.")
    if not torch.compiler.is_compiling() and context_length >= 1 << 63:
        raise ValueError(
            f"{where}: context_length must be below 2^63, as positions are; got a number of"
            f" {context_length.bit_length()} bits."
        )


_CONTEXT = "{}: context_length must be an int, or a tensor [B] with one per row; got {}."


def check_delta(
    delta: int | Tensor, batch: int, length: int, device: torch.device, where: str, axes: int
) -> Tensor:
    """Positions to move each key by, [1], [B, 1] or [B, S]; with n axes [n, 1], [n, B, 1], ..."""
    if not isinstance(delta, Tensor):
        if isinstance(delta, bool) or not isinstance(delta, (int, float)):
            raise TypeError(f"{where}: delta must be a number or a tensor; got {quote(delta)}.")
        if not abs(delta) < 1 << 63:  # also NaN
            raise ValueError(
                f"{where}: delta must be finite and within 2^63, as positions are; got"
                f" {delta if isinstance(delta, float) else f'{delta.bit_length()} bits'}."
            )
        return torch.tensor([delta], dtype=torch.float64, device=device)
    check_storage(delta, where, "delta")
    per_axis = (axes,) if axes > 1 else ()
    if delta.dim() < 2 + len(per_axis):
        delta = delta.unsqueeze(-1)
    known = [(1,), (batch, 1), (batch, length)]
    if delta.shape not in [(1,), *[(*per_axis, *shape) for shape in known]]:
        lead = "n, " if axes > 1 else ""
        raise ValueError(
            f"{where}: delta must be an int, [{lead}B] or [{lead}B, S], here"
            f" {[*per_axis, batch]} or {[*per_axis, batch, length]}; got {list(delta.shape)}."
        )
    return delta


def check_frequencies(f: Frequencies, name: str, batch: int, pairs: int, where: str) -> None:
    """Refuse frequencies that are not a result of ``rope.frequencies(...)``."""
    if not isinstance(f, Frequencies):
        raise TypeError(
            f"{where}: {name} must be Frequencies, as rope.frequencies(...) gives them;"
            f" got {type(f).__name__}."
        )
    check_storage(f.inv_freq, where, f"{name}.inv_freq")
    if f.inv_freq.shape not in ((pairs,), (1, pairs), (batch, pairs)):
        raise ValueError(
            f"{where}: {name}.inv_freq must be [R/2] or [B, R/2], here [{pairs}] or"
            f" [{batch}, {pairs}]; got {list(f.inv_freq.shape)}. Take it from"
            " rope.frequencies(...)."
        )


def check_positions(positions: Tensor | None, where: str, axes: int) -> tuple[int, int]:
    """Batch size and length of positions [T] or [B, T], with several axes [n, T] or [n, B, T]."""
    shape: tuple[int, ...] = positions.shape if isinstance(positions, Tensor) else ()
    if len(shape) not in ((1, 2) if axes == 1 else (1, 2, 3)):
        words = "[T] or [B, T]" if axes == 1 else "[n, T] or [n, B, T]"
        raise ValueError(f"{where}: positions must be a tensor {words}; got {quote(positions)}.")
    rows = shape[axes > 1 : -1]
    return (rows[0] if rows else 1), shape[-1]
