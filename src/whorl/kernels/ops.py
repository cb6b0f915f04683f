"""The torch operator ``whorl::rotate``: schema, fake, autograd and vmap, and calls without it.

    rotate(Tensor[] xs, Tensor[] tables, ...) -> Tensor[]     queries and keys in one dispatch

Its backward pass is itself with sin negated, so with fixed frequencies nothing but the tables is
saved. Ordinary CPU tensors do not go through the dispatcher: an operator written in Python costs
7 us, 14 us with autograd, as much as a whole decode step takes without it.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from whorl._support.storage import check_storage
from whorl._support.tensors import ORDINARY, is_intercepted
from whorl._support.words import quote

from . import native, reference
from .native import RotatedChannels
from .row_table import Table, TableRows
from .tables import choose_table_dtype

__all__ = [
    "Route",
    "are_batched",
    "choose_impl",
    "choose_route",
    "is_plain",
    "resolve_gradients",
    "rotate",
    "rotate_gradients",
]


#: See ``choose_route``.
Route = Literal["kernel", "autograd", "reference", "operator"]


def choose_impl(impl: str, where: str) -> str:
    """ "native" or "reference", also for "auto"; refuse "native" if the library is not loaded."""
    if impl not in ("auto", "native", "reference"):
        raise ValueError(
            f"{where}: impl must be 'auto', 'native' or 'reference'; got {quote(impl)}."
        )
    problem = native.find_problem()
    if impl == "native" and problem:
        raise ValueError(f"{where}: impl='native' cannot run: {problem}, or use impl='auto'.")
    if impl == "auto":
        return "reference" if problem else "native"
    return impl


def is_plain(xs: Sequence[Tensor], gradless: bool = False) -> bool:
    """Whether ``xs`` are ordinary CPU tensors, and torch only computes with them.

    gradless: whether, in addition, none of them needs a gradient.
    """
    if is_intercepted():
        return False
    tracked = gradless and torch.is_grad_enabled()
    for x in xs:  # all() is slower, and this runs at every decode step
        if type(x) not in ORDINARY or not x.is_cpu or x.is_neg() or (tracked and x.requires_grad):
            return False
    return True


def choose_route(xs: Sequence[Tensor], impl: str) -> Route:
    """How tensors are rotated, decided once for a call.

    kernel     the C library: ordinary CPU tensors that need no gradient
    autograd   the C library in an autograd function: ordinary CPU tensors
    reference  plain PyTorch: forward-mode differentiation and torch.func.grad
    operator   ``whorl::rotate``: other devices, compilers, transforms and modes
    """
    if impl == "native" and is_plain(xs) and xs[0].dtype == xs[-1].dtype:
        tracked = torch.is_grad_enabled() and any(x.requires_grad for x in xs)
        return "autograd" if tracked else "kernel"
    if not torch.compiler.is_compiling() and _is_differentiated():
        return "reference"
    return "operator"


def rotate(
    xs: Sequence[Tensor],
    tables: Sequence[Tensor],
    channels: RotatedChannels,
    transpose: bool,
    impl: str,
    outs: Sequence[Tensor] | None = None,
    route: Route | None = None,
) -> list[Tensor]:
    """Rotate [B, H, T, D] tensors, into ``outs`` if given; differentiable, on any device.

    tables: one [T, 2, P] or [B, T, 2, P] for each tensor. route: what ``choose_route`` gave, if the
    caller has asked already.
    """
    route = route or choose_route(xs, impl)
    if route == "kernel" and torch.is_grad_enabled() and any(t.requires_grad for t in tables):
        route = "autograd"
    if route == "kernel":
        return _rotate_natively(xs, tables, channels, transpose, outs)
    if route == "autograd":
        results = list(_RotationFunction.apply(channels, transpose, len(xs), *xs, *tables))  # type: ignore[no-untyped-call]
    elif route == "reference":
        results = [
            _rotate_by_reference(x, t, channels, transpose) for x, t in zip(xs, tables, strict=True)
        ]
    else:
        results = torch.ops.whorl.rotate(list(xs), list(tables), *channels, transpose, impl)
    if outs is None:
        return results
    for out, result in zip(outs, results, strict=True):
        out.copy_(result)
    return list(outs)


def _rotate_natively(
    xs: Sequence[Tensor],
    tables: Sequence[Tensor],
    channels: RotatedChannels,
    transpose: bool,
    outs: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    rows = [TableRows(Table(t.to(choose_table_dtype(x)))) for x, t in zip(xs, tables, strict=True)]
    done = native.rotate(xs, outs, rows, channels, transpose)
    assert done is not None, "a table with one row per position has every row"
    return done


def _rotate_by_reference(
    x: Tensor, table: Tensor, channels: RotatedChannels, transpose: bool
) -> Tensor:
    layout, out_layout, start = channels
    return reference.rotate(
        x, table, layout=layout, out_layout=out_layout, start=start, transpose=transpose
    )


class _RotationFunction(torch.autograd.Function):
    """Autograd for plain tensors; the operator below has its own for everything else."""

    @staticmethod
    def forward(
        ctx: Any, channels: RotatedChannels, transpose: bool, count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        xs, tables = tensors[:count], tensors[count:]
        ctx.channels, ctx.transpose, ctx.impl = channels, transpose, "native"
        _save_for_backward(ctx, xs, tables)
        return tuple(_rotate_natively(xs, tables, channels, transpose))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x_grads, table_grads = _compute_gradients(ctx, grads)
        return None, None, None, *x_grads, *table_grads


def _save_for_backward(ctx: Any, xs: Sequence[Tensor], tables: Sequence[Tensor]) -> None:
    """Trained frequencies need the inputs again; fixed ones need only the tables."""
    ctx.count = len(xs)
    ctx.trained = any(table.requires_grad for table in tables)
    ctx.save_for_backward(*tables, *(xs if ctx.trained else ()))


def _compute_gradients(
    ctx: Any, grads: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor | None]]:
    saved = ctx.saved_tensors  # once: checkpointing hands each tensor out a single time
    tables, xs = saved[: ctx.count], saved[ctx.count :]
    grads = resolve_gradients(grads)
    x_grads = rotate_gradients(grads, tables, ctx.channels.reverse(), not ctx.transpose, ctx.impl)
    if not ctx.trained:
        return x_grads, [None] * ctx.count
    return x_grads, [
        _compute_table_gradient(x, grad, table, ctx.channels, ctx.transpose)
        for x, grad, table in zip(xs, grads, tables, strict=True)
    ]


def resolve_gradients(grads: Sequence[Tensor]) -> list[Tensor]:
    """Torch's zero tensors as ordinary zeros; refuse gradients whose storage was freed."""
    found = []
    for grad in grads:
        if type(grad) is Tensor and grad._is_zerotensor():
            grad = grad + torch.zeros(grad.shape, dtype=grad.dtype, device=grad.device)
        check_storage(grad, "backward of a rotation", "the gradient")
        found.append(grad)
    return found


def rotate_gradients(
    grads: Sequence[Tensor],
    tables: Sequence[Tensor],
    channels: RotatedChannels,
    transpose: bool,
    impl: str,
) -> list[Tensor]:
    """``rotate`` of gradients, also of a whole batch of them at once."""
    if are_batched(grads):
        return [
            _rotate_by_reference(g, t, channels, transpose)
            for g, t in zip(grads, tables, strict=True)
        ]
    return rotate(grads, tables, channels, transpose, impl)


def are_batched(grads: Sequence[Tensor]) -> bool:
    """Whether ``torch.autograd.grad`` was called with is_grads_batched=True."""
    return any(map(torch._C._functorch.is_legacy_batchedtensor, grads))


def _is_differentiated() -> bool:
    """Whether forward mode or torch.func.grad is active, which operators do not support.

    The first drops the tangents of an operator silently, the second refuses its backward pass.
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
def _run_operator(
    xs: list[Tensor],
    tables: list[Tensor],
    layout: str,
    out_layout: str,
    start: int,
    transpose: bool,
    impl: str,
) -> list[Tensor]:
    outs = [native.allocate_like(x) if x.is_cpu else torch.empty_like(x) for x in xs]
    channels = RotatedChannels(layout, out_layout, start)
    if impl == "native" and all(x.is_cpu for x in xs):
        for part in _group_by_dtype(xs):
            some, rows, into = ([many[n] for n in part] for many in (xs, tables, outs))
            _rotate_natively(some, rows, channels, transpose, into)
        return outs
    for x, table, out in zip(xs, tables, outs, strict=True):
        out.copy_(_rotate_by_reference(x, table, channels, transpose))
    return outs


def _group_by_dtype(xs: list[Tensor]) -> list[list[int]]:
    """Indices of tensors that one native call can take together."""
    if len(xs) == 2 and xs[0].dtype == xs[1].dtype:
        return [[0, 1]]
    return [[n] for n in range(len(xs))]


@torch.library.register_fake("whorl::rotate")  # type: ignore[untyped-decorator]
def _make_fake_outputs(xs: list[Tensor], tables: list[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(x) for x in xs]


def _save_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    xs, tables, layout, out_layout, start, ctx.transpose, ctx.impl = inputs
    ctx.channels = RotatedChannels(layout, out_layout, start)
    _save_for_backward(ctx, xs, tables)


def _run_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    return *_compute_gradients(ctx, grads), None, None, None, None, None


def _compute_table_gradient(
    x: Tensor, grad: Tensor, table: Tensor, channels: RotatedChannels, transpose: bool
) -> Tensor:
    """d cos = sum over heads of a' a + b' b, d sin = sum of b' a - a' b (primes: gradients)."""
    width = 2 * table.shape[-1]
    part = slice(channels.start, channels.start + width)
    a, b = reference.split_pairs(x[..., part].to(table.dtype), channels.layout)
    ga, gb = reference.split_pairs(grad[..., part].to(table.dtype), channels.out_layout)
    d_cos, d_sin = ga * a + gb * b, gb * a - ga * b
    entries = torch.stack((d_cos, -d_sin if transpose else d_sin), dim=-2).sum(1)  # [B, T, 2, P]
    return entries if table.dim() == 4 else entries.sum(0)


torch.library.register_autograd("whorl::rotate", _run_backward, setup_context=_save_context)


def _map_over_heads(
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


torch.library.register_vmap("whorl::rotate", _map_over_heads)
