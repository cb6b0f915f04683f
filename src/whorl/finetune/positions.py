"""Positions of short training sequences that cover the positions of long texts.

"all" counts from 0. "pose" cuts a sequence into two chunks at a random token and moves the second
one by a random number of positions, so that it ends at or before the target: within a chunk tokens
are neighbours, as in real texts (Zhu et al. 2023, PoSE, https://arxiv.org/abs/2309.10400; the text
itself is not skipped here). "random" takes as many different positions below the target as there
are tokens, in ascending order (Ruoss et al. 2023, https://arxiv.org/abs/2305.16843).

    all      0 1 2 3 4 5 6 7
    pose     0 1 2 19 20 21 22 23
    random   2 3 9 10 17 24 28 31
"""

import torch
from torch import Tensor

from .settings import Positions

__all__ = ["sample_positions"]


def sample_positions(
    kind: Positions, rows: int, length: int, target: int, source: torch.Generator
) -> Tensor | None:
    """Positions [rows, length] below ``target``; None for those that count from 0.

    >>> source = torch.Generator().manual_seed(0)
    >>> sample_positions("pose", 1, 8, 32, source).tolist()
    [[0, 1, 2, 3, 4, 19, 20, 21]]
    """
    if kind == "all":
        return None
    if kind == "random":
        drawn = [torch.randperm(target, generator=source)[:length] for _ in range(rows)]
        return torch.stack(drawn).sort(1).values
    cuts = torch.randint(1, length, (rows, 1), generator=source)
    skips = torch.randint(0, target - length + 1, (rows, 1), generator=source)
    order = torch.arange(length)
    return order + skips * (order >= cuts)
