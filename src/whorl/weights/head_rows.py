"""Rows of one head out of a file, as numbers."""

from typing import IO

import torch
from torch import Tensor

from .plan import RowMove
from .safetensors_file import read_range

__all__ = ["read_head"]

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def read_head(file: IO[bytes], move: RowMove, index: int) -> Tensor:
    """Head ``index`` of a tensor as [rows, inner] in its own dtype."""
    before = sum(head.rows for head in move.heads[:index])
    begin = move.entry.begin + before * move.row_bytes
    rows = move.heads[index].rows
    data = bytearray().join(read_range(file, begin, begin + rows * move.row_bytes))
    if not data:  # torch.frombuffer takes no empty buffer
        return torch.zeros(rows, 0, dtype=_DTYPES[move.entry.dtype])
    return torch.frombuffer(data, dtype=_DTYPES[move.entry.dtype]).view(rows, -1)
