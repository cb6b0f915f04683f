"""The permutation between the two layouts, for the rows of a projection.

    half          channel i of a head pairs with i + R/2     (GPT-NeoX, Hugging Face)
    interleaved   channel 2i pairs with 2i + 1               (the paper, Meta's Llama)

Pair i is the same pair in both; only its place differs. A projection whose rows move so gives the
same channels in another order, and q and k in the same order have the same scores. That holds for
everything that has one number or row per channel: weights, biases, the gains of a norm on q and k,
the outer factor B of a LoRA. Only rows of q and k move: values are not rotated.

A tensor is a sequence of heads, each some rows of q, k or v. Head counts, grouped queries and every
way of fusing q, k and v into one tensor are different sequences and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whorl.types import Layout

__all__ = ["PACKINGS", "Head", "Packing", "Part", "list_fused_heads", "reorder_rows"]

Part = Literal["q", "k", "v"]
#: How q, k and v share a tensor.
Packing = Literal["concatenated", "grouped", "codegen"]
PACKINGS: tuple[Packing, ...] = ("concatenated", "grouped", "codegen")


@dataclass(frozen=True)
class Head:
    """The rows of one head: ``rows`` of them, of which ``width`` from ``start`` are rotated."""

    part: Part
    rows: int
    start: int = 0
    width: int = 0

    @property
    def moves(self) -> bool:
        """Whether the layout decides where its rows are; one pair is the same in both."""
        return self.part != "v" and self.width > 2


def reorder_rows(head: Head, to: Layout) -> list[int]:
    """Where each row of the converted head comes from.

    >>> reorder_rows(Head("q", 6, width=6), "interleaved")
    [0, 3, 1, 4, 2, 5]
    >>> reorder_rows(Head("q", 6, width=6), "half")
    [0, 2, 4, 1, 3, 5]
    >>> reorder_rows(Head("k", 6, start=2, width=4), "interleaved")
    [0, 1, 2, 4, 3, 5]
    """
    rows, pairs = list(range(head.rows)), head.width // 2
    if not head.moves:
        return rows
    band = rows[head.start : head.start + head.width]
    if to == "interleaved":
        band = [row for both in zip(band[:pairs], band[pairs:], strict=True) for row in both]
    else:
        band = band[0::2] + band[1::2]
    return rows[: head.start] + band + rows[head.start + head.width :]


def list_fused_heads(packing: Packing, q: Sequence[Head], k: Sequence[Head]) -> list[Head]:
    """The heads of a fused tensor, in the order of its rows; each key head has a value head.

    concatenated   all q, all k, all v: Phi-3, ChatGLM, Baichuan; also one key head for all (Falcon)
    grouped        for each key head its q, then k, then v: InternLM2, Falcon 40B; with as many key
                   heads as queries that is q, k, v of one head after the other: GPT-NeoX
    codegen        four blocks of q, v, k: CodeGen, which was trained on four devices

    >>> q, k = [Head("q", 8, width=8)] * 4, [Head("k", 8, width=8)] * 2
    >>> "".join(head.part for head in list_fused_heads("grouped", q, k))
    'qqkvqqkv'
    """
    values = [Head("v", head.rows) for head in k]
    if packing == "concatenated":
        return [*q, *k, *values]
    if packing == "grouped":
        each = len(q) // len(k)
        groups = zip(k, values, strict=True)
        return [h for n, kv in enumerate(groups) for h in (*q[n * each : (n + 1) * each], *kv)]
    each = len(q) // 4
    blocks = [slice(n * each, (n + 1) * each) for n in range(4)]
    return [head for block in blocks for head in (*q[block], *values[block], *k[block])]
