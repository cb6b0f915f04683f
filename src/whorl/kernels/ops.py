"""The torch operator ``whorl::rotate``: schema, fake, autograd and vmap, and the short way past it.

    rotate(Tensor[] xs, Tensor[] tables, ...) -> Tensor[]     queries and keys in one dispatch

Its backward pass is the operator itself with sin negated, so with fixed frequencies nothing but
the tables is saved. Calls on plain CPU tensors that need no gradient skip the dispatcher, which
costs more than a decode step's whole rotation (13.9 us against 2.5 us for an empty operator).
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import native, reference
from .native import Band, Rows, Table

__all__ = ["Impl", "Layout", "chosen_impl", "is_plain", "rotate"]

Layout = Literal["half", "interleaved"]
Impl = Literal["auto", "native", "reference"]


def chosen_impl(impl: str, where: str) -> str:
    """Resolve "auto"; refuse "native" where the library is not loaded."""
    if impl not in ("auto", "native", "reference"):
        raise ValueError(f"{where}: impl must be 'auto', 'native' or 'reference'; got {impl!r}.")
    problem = native.problem()
    if impl == "native" and problem:
        raise ValueError(f"{where}: impl='native' cannot run: {problem}, or use impl='auto'.")
    if impl == "auto":
        return "reference" if problem else "native"
    return impl


def is_plain(xs: Sequence[Tensor]) -> bool:
    """Whether ``xs`` are ordinary CPU tensors without gradients, outside any tracing or mode."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if forward_ad._current_level >= 0:
        return False
    wanted = torch.is_grad_enabled()
    for x in xs:  # a loop, not any(): this runs at every decode step
        if type(x) not in _PLAIN or not x.is_cpu or (wanted and x.requires_grad):
            return False
    return True


_PLAIN = (Tensor, torch.nn.Parameter)


def rotate(
    xs: Sequence[Tensor], tables: Sequence[Tensor], band: Band, transpose: bool, impl: str
) -> list[Tensor]:
    """Rotate [B, H, T, D] tensors through the operator: traceable, differentiable, any device.

    tables: one [T, 2, P] or [B, T, 2, P] for each tensor.
    """
    if not torch.compiler.is_compiling() and _is_differentiated():
        return [
            reference.rotate(
                x,
                table,
                layout=band.layout,
                out_layout=band.out_layout,
                start=band.start,
                transpose=transpose,
            )
            for x, table in zip(xs, tables, strict=True)
        ]
    result: list[Tensor] = torch.ops.whorl.rotate(
        list(xs), list(tables), band.layout, band.out_layout, band.start, transpose, impl
    )
    return result


def _is_differentiated() -> bool:
    """Whether forward mode or torch.func.grad is at work, where an operator is no help.

    The first drops its tangents without a word, the second refuses its backward pass.
    """
    layers = torch._C._functorch.get_interpreter_stack() or ()
    grad = torch._C._functorch.TransformType.Grad
    return forward_ad._current_level >= 0 or any(layer.key() == grad for layer in layers)


torch.library.define(
    "whorl::rotate",
    "(Tensor[] xs, Tensor[] tables, str layout, str out_layout, int start, bool transpose,"
    " str impl) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


@torch.library.impl("whorl::rotate", "CompositeExplicitAutograd")
def _rotate(
    xs: list[Tensor],
    tables: list[Tensor],
    layout: str,
    out_layout: str,
    start: int,
    transpose: bool,
    impl: str,
) -> list[Tensor]:
    outs = [native.new_like(x) if x.is_cpu else torch.empty_like(x) for x in xs]
    band = Band(layout, out_layout, start)
    if impl == "native" and all(x.is_cpu for x in xs):
        for part in _same_kind(xs):
            rows = [Rows(Table(tables[n].to(_table_dtype(xs[n])))) for n in part]
            some, into = [xs[n] for n in part], [outs[n] for n in part]
            done = native.rotate(some, into, rows, band, transpose)
            assert done is not None, "a table with one row per position has every row"
        return outs
    for x, table, out in zip(xs, tables, outs, strict=True):
        out.copy_(
            reference.rotate(
                x, table, layout=layout, out_layout=out_layout, start=start, transpose=transpose
            )
        )
    return outs


def _table_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _same_kind(xs: list[Tensor]) -> list[list[int]]:
    """Indices of tensors that one native call can take together."""
    if len(xs) == 2 and xs[0].dtype == xs[1].dtype:
        return [[0, 1]]
    return [[n] for n in range(len(xs))]


@torch.library.register_fake("whorl::rotate")  # type: ignore[untyped-decorator]
def _rotate_fake(xs: list[Tensor], tables: list[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(x) for x in xs]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    xs, tables, ctx.layout, ctx.out_layout, ctx.start, ctx.transpose, ctx.impl = inputs
    ctx.count = len(xs)
    ctx.trained = any(table.requires_grad for table in tables)
    # Trained frequencies need the inputs again; fixed ones need only the tables.
    ctx.save_for_backward(*tables, *(xs if ctx.trained else ()))


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    tables, xs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
    band = Band(ctx.layout, ctx.out_layout, ctx.start)
    x_grads = rotate(grads, tables, band.reversed(), not ctx.transpose, ctx.impl)
    table_grads: list[Tensor | None] = [None] * ctx.count
    if ctx.trained:
        table_grads = [
            _table_grad(x, grad, table, band, ctx.transpose)
            for x, grad, table in zip(xs, grads, tables, strict=True)
        ]
    return x_grads, table_grads, None, None, None, None, None


def _table_grad(x: Tensor, grad: Tensor, table: Tensor, band: Band, transpose: bool) -> Tensor:
    """d cos = sum over heads of a' a + b' b, d sin = sum of b' a - a' b (primes: gradients)."""
    width = 2 * table.shape[-1]
    channels = slice(band.start, band.start + width)
    a, b = reference.split(x[..., channels].to(table.dtype), band.layout)
    ga, gb = reference.split(grad[..., channels].to(table.dtype), band.out_layout)
    d_cos, d_sin = ga * a + gb * b, gb * a - ga * b
    entries = torch.stack((d_cos, -d_sin if transpose else d_sin), dim=-2).sum(1)  # [B, T, 2, P]
    return entries if table.dim() == 4 else entries.sum(0)


torch.library.register_autograd("whorl::rotate", _backward, setup_context=_setup_context)


def _vmap(
    info: Any, in_dims: tuple[Any, ...], xs: list[Tensor], tables: list[Tensor], *options: Any
) -> tuple[list[Tensor], list[int]]:
    """Heads are independent, so the mapped axis joins them: [B, N, H, T, D] -> [B, N H, T, D]."""
    if any(dim is not None for dim in in_dims[1]):
        raise NotImplementedError(
            "whorl::rotate: vmap over the tables of cos and sin is not supported, because all heads"
            " of one call share them; map over queries and keys, and pass positions [B, T] instead."
        )
    size = info.batch_size
    folded = [
        (x.unsqueeze(1).expand(-1, size, -1, -1, -1) if dim is None else x.movedim(dim, 1)).flatten(
            1, 2
        )
        for x, dim in zip(xs, in_dims[0], strict=True)
    ]
    outs = torch.ops.whorl.rotate(folded, tables, *options)
    return [out.unflatten(1, (size, -1)) for out in outs], [1] * len(outs)


torch.library.register_vmap("whorl::rotate", _vmap)
