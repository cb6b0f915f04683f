"""The words that options are written in."""

from typing import Literal

__all__ = ["Impl", "Layout", "Precision", "QueryKeyNorm"]

#: Which channels form a pair: i with i + R/2, or 2i with 2i + 1.
Layout = Literal["half", "interleaved"]
#: Who computes: the C library, PyTorch, or whichever of them can.
Impl = Literal["auto", "native", "reference"]
#: The precision that angles are formed in, before cos and sin are rounded to the table's.
Precision = Literal["float64", "float32"]
#: Where queries and keys are normalized: nowhere, or before or after they are rotated.
QueryKeyNorm = Literal["none", "before", "after"]
