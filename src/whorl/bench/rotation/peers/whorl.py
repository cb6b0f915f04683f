"""``copy_``, which all times are divided by, and whorl in all its modes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from whorl import AxialRoPE, Layout, MRoPE, RoPE, XPos
from whorl.bench.rotation.case import BASE, RotationCase

from .base import CallMode, Peer, PeerCall, build_torch_call

__all__ = ["Copy", "Whorl"]


class Copy(Peer):
    """``copy_`` of q and k into preallocated tensors; in training, of the gradients too.

    Times are divided by that of ``copy_``. It is the only contestant that is not verified.
    """

    name = "copy"
    title = "copy_"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        pairs = [(case.q_out, case.q), (case.k_out, case.k)]
        if case.training:
            pairs += [(case.q_inplace, case.q_grad), (case.k_inplace, case.k_grad)]

        def call() -> None:
            for target, source in pairs:
                target.copy_(source)

        return [PeerCall("training" if case.training else "out", call, lambda: ())]


class Whorl(Peer):
    """RoPE with a table that is long enough for the cell, and with a shorter one.

    Where there is a shorter one, XPos, M-RoPE and AxialRoPE are measured with both tables too.
    """

    name = "whorl"
    title = "whorl"
    package = "whorl"
    note = (
        "decode: cos and sin looked up from the offset, where peers get them ready-made; XPos,"
        " M-RoPE and AxialRoPE with options and positions by which they rotate as RoPE does"
    )

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        cell, shape = case.cell, case.cell.shape
        first = shape.first
        layout: Layout = "half" if cell.layout == "half" else "interleaved"
        ropes = [
            RoPE(shape.head_dim, base=BASE, layout=layout, table_length=length)
            for length in (first + shape.length, shape.short_table or 0)
        ]
        rope, short = ropes
        fresh = build_torch_call(case, lambda q, k: rope(q, k, offset=first))
        if case.training:
            return [fresh]
        q, k, q_out, k_out = case.q, case.k, case.q_out, case.k_out
        q_own, k_own = case.q_inplace, case.k_inplace

        def out() -> object:
            return rope(q, k, offset=first, out=(q_out, k_out))

        def inplace() -> object:
            return rope.forward_(q_own, k_own, offset=first)

        def past() -> object:
            return short.forward_(q_own, k_own, offset=first)

        bound = rope.bind(q, k, out=(q_out, k_out))
        entries = [
            PeerCall("inplace", inplace, lambda: (inplace(), (q_own, k_own))[1]),
            PeerCall("out", out, lambda: (out(), (q_out, k_out))[1]),
            fresh,
            PeerCall("bound", lambda: bound(first), lambda: bound(first)),
        ]
        if shape.short_table is not None:
            entries.append(PeerCall("past", past, lambda: (past(), (q_own, k_own))[1]))
            entries += _build_other_calls(case, layout, first + shape.length, past=False)
            entries += _build_other_calls(case, layout, shape.short_table, past=True)
        return entries


# Positions over which a pair of XPos decays: so many that its factors are 1 but for rounding.
_NO_DECAY = 1e15


def _build_other_calls(
    case: RotationCase, layout: Layout, table_length: int, *, past: bool
) -> list[PeerCall]:
    """XPos, M-RoPE and AxialRoPE in place, with tables of ``table_length`` positions.

    Their options, and coordinates that are equal on all axes, make each the same rotation as RoPE,
    so that its results are verified in the same way, and calls in place do not change norms.
    """
    width, first = case.cell.shape.head_dim, case.cell.shape.first
    pairs, third = width // 2, width // 6
    inv_freq = BASE ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    sections = (pairs - 2 * third, third, third)
    table: dict[str, Any] = {"layout": layout, "table_length": table_length}
    xpos = XPos(width, base=BASE, scale_base=_NO_DECAY, **table)
    mrope = MRoPE(width, base=BASE, sections=sections, **table)
    axial = AxialRoPE(width, inv_freq=inv_freq.tolist(), **table)
    q, k = case.q_inplace, case.k_inplace
    on_two, on_three = case.positions.repeat(2, 1), case.positions.repeat(3, 1)  # [axes, T]
    calls: list[tuple[CallMode, CallMode, Callable[[], object]]] = [
        ("xpos", "xpos-past", lambda: xpos.forward_(q, k, offset=first)),
        ("mrope", "mrope-past", lambda: mrope.forward_(q, k, on_three)),
        ("axial", "axial-past", lambda: axial.forward_(q, k, on_two)),
    ]

    def get_results(call: Callable[[], object]) -> tuple[Tensor, Tensor]:
        call()
        return q, k

    return [
        PeerCall(name_past if past else name, call, partial(get_results, call))
        for name, name_past, call in calls
    ]
