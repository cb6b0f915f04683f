"""``copy_``, which all times are divided by, and whorl in all its modes."""

from whorl import Layout, RoPE
from whorl.bench.rotation.case import BASE, RotationCase

from .base import Peer, PeerCall, build_torch_call

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
    """RoPE with a table that is long enough for the cell, and with a shorter one."""

    name = "whorl"
    title = "whorl"
    package = "whorl"
    note = "decode: cos and sin looked up from the offset, where peers get them ready-made"

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
        return entries
