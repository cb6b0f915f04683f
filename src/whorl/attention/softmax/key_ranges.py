"""The range of keys that each block of queries may see, by positions and by documents.

A range (start, stop) contains every visible key, but hidden keys may lie in it too: it says what to
read, not what to mask. The ranges of all blocks are computed together, once for a call.
"""

import torch
from torch import Tensor

__all__ = ["Range", "find_ranges_by_document", "find_ranges_by_position", "find_sink_range"]

Range = tuple[int, int]


def find_ranges_by_position(
    query_positions: Tensor,
    key_positions: Tensor,
    blocks: list[Range],
    causal: bool,
    window: int | None,
) -> list[Range]:
    """For each block of queries, the keys that the causal mask and the window may leave visible.

    query_positions [T] or [B, T], key_positions [S] or [B, S], in any order.
    """
    starts, stops = [0] * len(blocks), [key_positions.shape[-1]] * len(blocks)
    if not causal and window is None:
        return list(zip(starts, stops, strict=True))
    queries, keys = _expand_rows(query_positions, key_positions)
    least, most = (
        torch.stack([getattr(queries[:, a:b], end)(-1) for a, b in blocks], -1)  # [B, blocks]
        for end in ("amin", "amax")
    )
    # The least position from each key on never falls: where it is too large for a block, this key
    # and all after it are hidden. The greatest position up to each key serves the other end.
    least_after = keys.flip(-1).cummin(-1).values.flip(-1).contiguous()
    if causal:
        ends = torch.searchsorted(least_after, most, right=True)
    else:
        assert window is not None
        ends = torch.searchsorted(least_after, most + window)
    stops = ends.amax(0).tolist()
    if window is not None:
        most_before = keys.cummax(-1).values.contiguous()
        starts = torch.searchsorted(most_before, least - window, right=True).amin(0).tolist()
    return list(zip(starts, stops, strict=True))


def find_ranges_by_document(query_ids: Tensor, key_ids: Tensor, blocks: list[Range]) -> list[Range]:
    """For each block of queries, the keys from the first to the last of the same documents.

    query_ids [T] or [B, T] are the last T of key_ids [S] or [B, S].
    """
    first, last, number = _find_ends(key_ids)
    number = number[:, number.shape[1] - query_ids.shape[-1] :]
    first, last = first.gather(1, number), last.gather(1, number)
    starts = torch.stack([first[:, a:b].amin() for a, b in blocks]).tolist()
    stops = torch.stack([last[:, a:b].amax() for a, b in blocks]).tolist()
    return [(a, b + 1) for a, b in zip(starts, stops, strict=True)]


def find_sink_range(key_positions: Tensor, sinks: int) -> Range:
    """The keys from the first to the last that is at one of positions 0 .. sinks - 1 in any row."""
    keys = key_positions if key_positions.dim() == 2 else key_positions.unsqueeze(0)
    found = ((keys >= 0) & (keys < sinks)).any(0).nonzero().flatten().tolist()
    return (found[0], found[-1] + 1) if found else (0, 0)


def _expand_rows(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Both positions as [B, tokens], in one dtype."""
    if queries.is_floating_point() or keys.is_floating_point():
        queries, keys = queries.double(), keys.double()
    both = [x if x.dim() == 2 else x.unsqueeze(0) for x in (queries, keys)]
    rows = max(x.shape[0] for x in both)
    return both[0].expand(rows, -1), both[1].expand(rows, -1)


def _find_ends(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First and last key of each document in each row, [B, N], and documents as 0 .. N - 1."""
    ids = ids if ids.dim() == 2 else ids.unsqueeze(0)
    names, number = torch.unique(ids, return_inverse=True)
    B, S = ids.shape
    index = torch.arange(S, device=ids.device).expand(B, S)
    first = torch.full((B, len(names)), S, device=ids.device)
    last = torch.full_like(first, -1)
    return (
        first.scatter_reduce(1, number, index, "amin"),
        last.scatter_reduce(1, number, index, "amax"),
        number,
    )
