"""Rows of cos and sin: how angles are formed, and how rows are read from a table.

    table[..., 0, i] = scale cos(p theta_i)      table[..., 1, i] = scale sin(p theta_i)

Angles are formed in float64 and rounded once at the end, so an unscaled entry is within 6e-8 of the
truth at every position up to 2^24. precision="float32" forms them in float32, as most models were
trained: entries then differ by 8e-4 at position 4096 and 8e-3 at 131,072.
"""

import torch
from torch import Tensor

from whorl._support.tensors import ORDINARY, has_values, is_intercepted

from . import native, native_tables

__all__ = [
    "LOOK_UP_ROWS",
    "build_float32_rows",
    "can_build_float32",
    "choose_table_dtype",
    "compute_angles",
    "compute_rows",
    "look_up_rows",
    "select_positions",
]

#: Above 10,000 torch's cos and sin of a float32 take ten times as long on x86, and so do those of
#: the seven numbers beside it.
_LARGE_ANGLE = 8192.0
#: Angles that are computed together, so that they stay in the cache.
_ANGLES_AT_ONCE = 1 << 17
#: Fewer are computed sooner in one step.
_FEW_ANGLES = 1 << 13


def choose_table_dtype(x: Tensor) -> torch.dtype:
    """Tables for float64 inputs are float64, all others float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def compute_angles(
    positions: Tensor, inv_freq: Tensor, precision: str = "float64", axes: Tensor | None = None
) -> Tensor:
    """positions [T] or [B, T] times inv_freq [P] or [B, P]: [T, P], or [B, T, P].

    axes: int64 [P]: pair i rotates by positions[axes[i]], of positions [n, T] or [n, B, T].
    """
    dtype = torch.float64 if precision == "float64" else torch.float32
    inv_freq = inv_freq.to(dtype)
    if inv_freq.dim() == 2:
        inv_freq = inv_freq.unsqueeze(1)  # [B, 1, P]
    return select_positions(positions, axes).to(dtype) * inv_freq


def select_positions(positions: Tensor, axes: Tensor | None) -> Tensor:
    """The position that each pair rotates by: [T, 1] if there is one axis, else [T, P]."""
    return positions.unsqueeze(-1) if axes is None else positions[axes].movedim(0, -1)


def compute_rows(
    angles: Tensor, scale: float | Tensor, dtype: torch.dtype, growth: Tensor | None = None
) -> Tensor:
    """Rows of scale cos and scale sin, [..., P] -> [..., 2, P]; scale: a number, or [B].

    growth: log2 of a further factor on cos and sin of each angle, [..., P].
    """
    table = torch.stack((angles.cos(), angles.sin()), dim=-2)
    if isinstance(scale, Tensor):
        table = table * scale.to(table.dtype)[..., None, None, None]
    elif scale != 1.0:
        table = table * scale
    if growth is not None:
        table = table * growth.exp2().unsqueeze(-2)
    return table.to(dtype)


def can_build_float32(inv_freq: Tensor, dtype: torch.dtype) -> bool:
    """Whether ``build_float32_rows`` takes these frequencies: on the CPU, without a gradient."""
    if dtype != torch.float32 or inv_freq.dim() != 1 or type(inv_freq) not in ORDINARY:
        return False
    differentiated = inv_freq.requires_grad and torch.is_grad_enabled()
    return inv_freq.is_cpu and not differentiated and not is_intercepted()


def build_float32_rows(
    positions: Tensor, inv_freq: Tensor, scale: float, growth: Tensor | None = None
) -> Tensor:
    """Rows of float32 angles, [...] -> [..., 2, P]: what ``compute_rows`` gives, bit for bit.

    It is faster for many positions: they are computed some at a time, and pairs with large angles,
    for which cos and sin are slow, apart from the others.
    """
    flat, pairs = positions.reshape(-1), inv_freq.shape[0]
    count, powers = flat.shape[0], None if growth is None else growth.double()
    if count * pairs <= _FEW_ANGLES:
        angles = compute_angles(positions, inv_freq, "float32")
        exponents = None if powers is None else positions.double().unsqueeze(-1) * powers
        return compute_rows(angles, scale, torch.float32, exponents)
    where, inv_freq = flat.to(torch.float32), inv_freq.detach().to(torch.float32)
    large = _count_large_pairs(where, inv_freq)
    rows = torch.empty(count, 2, pairs, dtype=torch.float32, device="cpu")
    native.use_huge_pages(rows)
    step = max(1, _ANGLES_AT_ONCE // pairs)
    for begin in range(0, count, step):
        part, at = rows[begin : begin + step], where[begin : begin + step]
        angles = at.unsqueeze(-1) * inv_freq[large:]
        torch.cos(angles, out=part[:, 0, large:])
        torch.sin(angles, out=part[:, 1, large:])
        if large:  # angles of one pair side by side: the slow ones then share no vector with others
            angles = inv_freq[:large].unsqueeze(-1) * at
            part[:, 0, :large] = angles.cos().t()
            part[:, 1, :large] = angles.sin().t()
        if scale != 1.0:
            part.mul_(scale)
    if powers is not None:
        step = max(1, step // 8)  # float64 needs more room in the cache
        for begin in range(0, count, step):
            exponents = flat[begin : begin + step].double().unsqueeze(-1) * powers
            rows[begin : begin + step].mul_(exponents.exp2_().unsqueeze(-2))  # rounded once
    return rows.view(*positions.shape, 2, pairs)


def _count_large_pairs(positions: Tensor, inv_freq: Tensor) -> int:
    """Pairs up to the last one that has a large angle at one of the positions."""
    low, high = positions.aminmax()
    reached = inv_freq.abs() * torch.maximum(-low, high)
    found = (reached > _LARGE_ANGLE).nonzero()
    return int(found[-1]) + 1 if found.numel() else 0


def look_up_rows(
    table: Tensor,
    inv_freq: Tensor,
    positions: Tensor | None,
    first: int,
    length: int,
    scale: float,
    precision: str,
    axes: Tensor | None = None,
    growth: Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Rows for ``positions``, or first .. first + length - 1: read from ``table``, built past it.

    ``table`` holds positions 0 .. N - 1; the result never depends on N.
    axes: as for ``compute_angles``. growth: log2 of a further factor per position, [P].
    native: whether the C library built the table and builds what lies past it.
    """
    known = table.shape[0]
    if positions is None:
        if first >= 0 and first + length <= known:
            return table[first : first + length]
        axes = None  # the same position on all of them
    elif positions.numel() and not positions.is_floating_point() and has_values(positions):
        low, high = positions.aminmax()
        if int(low) >= 0 and int(high) < known:
            return table[positions] if axes is None else _select_by_axis(table, positions, axes)
    if native and native_tables.can_build(table.dtype, precision, (positions, inv_freq)):
        return native_tables.build_table(positions, first, length, inv_freq, scale, axes, growth)
    if positions is None and 0 <= first < known:  # only what is missing
        past = (inv_freq, None, known, first + length - known, scale, precision, None, growth)
        return torch.cat((table[first:], look_up_rows(table, *past)))
    if positions is None:
        positions = torch.arange(first, first + length, device=table.device)
    if axes is None and precision == "float32" and can_build_float32(inv_freq, table.dtype):
        return build_float32_rows(positions, inv_freq, scale, growth)
    angles = compute_angles(positions, inv_freq, precision, axes)
    exponents = None if growth is None else select_positions(positions, axes).double() * growth
    return compute_rows(angles, scale, table.dtype, exponents)


def _select_by_axis(table: Tensor, positions: Tensor, axes: Tensor) -> Tensor:
    """Rows of tokens with several positions, each pair from the row of its axis: [..., T, 2, P]."""
    rows = table[positions[0]]
    for axis in range(1, positions.shape[0]):  # whole rows: half the time of gathering by pair
        rows = torch.where(axes == axis, table[positions[axis]], rows)
    return rows


# Inside torch.compile the choice between reading and building must not be traced: it would tie the
# graph to a length, or to the values of positions.
torch.library.define(
    "whorl::lookup",
    "(Tensor table, Tensor inv_freq, Tensor? positions, SymInt first, SymInt length, float scale,"
    " str precision, Tensor? axes=None, Tensor? growth=None, bool native=False) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


@torch.library.impl("whorl::lookup", "CompositeExplicitAutograd")
def _run_lookup(
    table: Tensor,
    inv_freq: Tensor,
    positions: Tensor | None,
    first: int,
    length: int,
    scale: float,
    precision: str,
    axes: Tensor | None = None,
    growth: Tensor | None = None,
    native: bool = False,
) -> Tensor:
    rows = look_up_rows(
        table, inv_freq, positions, first, length, scale, precision, axes, growth, native
    )
    # An operator must not return a view of what it was given.
    shared = rows.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
    return rows.clone() if shared else rows


@torch.library.register_fake("whorl::lookup")  # type: ignore[untyped-decorator]
def _make_fake_rows(
    table: Tensor,
    inv_freq: Tensor,
    positions: Tensor | None,
    first: int,
    length: int,
    scale: float,
    precision: str,
    axes: Tensor | None = None,
    growth: Tensor | None = None,
    native: bool = False,
) -> Tensor:
    if positions is None:
        shape: tuple[int, ...] = (length,)
    else:
        shape = tuple(positions.shape if axes is None else positions.shape[1:])
    return table.new_empty((*shape, 2, inv_freq.shape[-1]))


LOOK_UP_ROWS = torch.ops.whorl.lookup.default
