"""The first and last key that blocks of queries may see, from positions and documents.

Bounds, not masks: between them may be keys that are hidden. All blocks are looked at together, once
for a call. Spans are half open, [first, last).
"""

import torch
from torch import Tensor

__all__ = ["Span", "by_document", "by_position", "sinks_between"]

Span = tuple[int, int]


def by_position(
    at: Tensor, keys_at: Tensor, steps: list[Span], causal: bool, window: int | None
) -> list[Span]:
    """For queries at [T] or [B, T] and keys [S] or [B, S] in any order, in blocks ``steps``."""
    low, high = [0] * len(steps), [keys_at.shape[-1]] * len(steps)
    if not causal and window is None:
        return list(zip(low, high, strict=True))
    at, keys = _together(at, keys_at)
    least, most = (
        torch.stack([getattr(at[:, a:b], end)(-1) for a, b in steps], -1)  # [B, blocks]
        for end in ("amin", "amax")
    )
    # The least position from each key on, which never falls: one that is out of sight hides all
    # keys after it. And the greatest up to each key, from the front.
    behind = keys.flip(-1).cummin(-1).values.flip(-1).contiguous()
    if causal:
        ends = torch.searchsorted(behind, most, right=True)
    else:
        assert window is not None
        ends = torch.searchsorted(behind, most + window)
    high = ends.amax(0).tolist()
    if window is not None:
        front = keys.cummax(-1).values.contiguous()
        low = torch.searchsorted(front, least - window, right=True).amin(0).tolist()
    return list(zip(low, high, strict=True))


def by_document(mine: Tensor, theirs: Tensor, steps: list[Span]) -> list[Span]:
    """For ids of queries [T] or [B, T], the last of the keys' [S] or [B, S]."""
    count, (first, last, named) = mine.shape[-1], _ends(theirs)
    named = named[:, named.shape[1] - count :]
    begun, ended = first.gather(1, named), last.gather(1, named)
    low = torch.stack([begun[:, a:b].amin() for a, b in steps]).tolist()
    high = torch.stack([ended[:, a:b].amax() for a, b in steps]).tolist()
    return [(a, b + 1) for a, b in zip(low, high, strict=True)]


def sinks_between(keys_at: Tensor, sinks: int) -> Span:
    """The first and last key at positions 0 .. sinks - 1, in any row."""
    keys = keys_at if keys_at.dim() == 2 else keys_at.unsqueeze(0)
    found = ((keys >= 0) & (keys < sinks)).any(0).nonzero().flatten().tolist()
    return (found[0], found[-1] + 1) if found else (0, 0)


def _together(at: Tensor, keys_at: Tensor) -> tuple[Tensor, Tensor]:
    """Both [B, .] and of one dtype."""
    if at.is_floating_point() or keys_at.is_floating_point():
        at, keys_at = at.double(), keys_at.double()
    both = [x if x.dim() == 2 else x.unsqueeze(0) for x in (at, keys_at)]
    rows = max(x.shape[0] for x in both)
    return both[0].expand(rows, -1), both[1].expand(rows, -1)


def _ends(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First and last key of each id in each row, [B, N]; and ids [B, S] as 0 .. N - 1."""
    ids = ids if ids.dim() == 2 else ids.unsqueeze(0)
    names, named = torch.unique(ids, return_inverse=True)
    B, S = ids.shape
    place = torch.arange(S, device=ids.device).expand(B, S)
    first = torch.full((B, len(names)), S, device=ids.device)
    last = torch.full_like(first, -1)
    return (
        first.scatter_reduce(1, named, place, "amin"),
        last.scatter_reduce(1, named, place, "amax"),
        named,
    )
