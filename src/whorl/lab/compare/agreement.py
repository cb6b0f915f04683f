"""Whether two comparisons agree: a short one with a long one.

Ranks of the rows are compared by Spearman's correlation at each length. Rows within TIE nats of
each other are tied, and there are two ways to rank them:

    free order    tied rows stand in either order, if possible as in the other comparison: only rows
                  that differ by more than TIE can disagree
    shared ranks  the rank of a row is one more than the number of rows that are better by more than
                  TIE, plus half the number of rows that are tied with it: rows that are tied in one
                  comparison and not in the other disagree

Ranks say little where nearly all rows of the long comparison are tied, as they are at the trained
length when all have learned. Pairs that differ in both are therefore counted, and those of them
that are in another order are listed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import correlation
from typing import Any

__all__ = [
    "TIE",
    "measure_agreement",
    "order_with_ties",
    "rank_with_ties",
    "select_third",
]

TIE = 0.05


def measure_agreement(
    short: Mapping[str, Any], long: Mapping[str, Any], *, reference: str = "rope"
) -> dict[str, Any]:
    """How the rows that two comparisons share rank in both.

    Returns by length, under "correlation" and "correlation_of_shared_ranks", Spearman's correlation
    with tied rows in a free order and with shared ranks, under "decided", how many pairs of rows
    differ by more than TIE in both, and under "reversed", those of them that are in another order;
    and by row, under "differences", the difference to ``reference`` at the trained length in
    the short and in the long one.
    """
    tables = [{row["name"]: row["by_length"] for row in one["rows"]} for one in (short, long)]
    names = [name for name in tables[0] if name in tables[1]]
    if len(names) < 3 or reference not in names:
        raise ValueError(
            f"the comparisons must share at least three rows, {reference} among them; they share"
            f" {', '.join(names) or 'none'}."
        )
    lengths = [n for n in short["settings"]["lengths"] if n in long["settings"]["lengths"]]
    losses = {
        length: [[float(table[name][str(length)]["mean"]) for name in names] for table in tables]
        for length in lengths
    }
    trained = losses[short["settings"]["length"]]
    index = names.index(reference)
    return {
        "rows": names,
        "correlation": {length: _correlate_free_orders(*pair) for length, pair in losses.items()},
        "correlation_of_shared_ranks": {
            length: _correlate_shared_ranks(*pair) for length, pair in losses.items()
        },
        "decided": {length: len(_list_decided(*pair)) for length, pair in losses.items()},
        "reversed": {
            length: [
                (names[a], names[b]) for a, b in _list_decided(*pair) if pair[1][a] > pair[1][b]
            ]
            for length, pair in losses.items()
        },
        "differences": {
            name: tuple(column[n] - column[index] for column in trained)
            for n, name in enumerate(names)
        },
    }


def select_third(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The losses of the runs with a third of the steps, as a comparison for measure_agreement."""
    rows = [
        {"name": row["name"], "by_length": {n: {"mean": loss} for n, loss in row["third"].items()}}
        for row in comparison["rows"]
        if row.get("third")
    ]
    settings = comparison["settings"]
    return {"settings": {**settings, "steps": settings["steps"] // 3}, "rows": rows}


def _list_decided(short: Sequence[float], long: Sequence[float]) -> list[tuple[int, int]]:
    """Pairs of rows that are tied in neither comparison, the better one in the short one first."""
    found = []
    for pair in combinations(range(len(short)), 2):
        a, b = sorted(pair, key=short.__getitem__)
        if short[b] - short[a] > TIE and abs(long[b] - long[a]) > TIE:
            found.append((a, b))
    return found


def order_with_ties(losses: Sequence[float], wanted: Sequence[float]) -> list[int]:
    """Rank of each row from 0, the lowest loss first; tied rows stand as in ``wanted``.

    The next row is always one within TIE of the lowest loss that is left, and of those the one
    whose number in ``wanted`` is the lowest.

    >>> order_with_ties([1.0, 1.04, 2.0], wanted=[7.0, 6.0, 5.0])
    [1, 0, 2]
    """
    left, ranks = set(range(len(losses))), [0] * len(losses)
    for rank in range(len(losses)):
        least = min(losses[row] for row in left)
        row = min((wanted[row], row) for row in left if losses[row] <= least + TIE)[1]
        ranks[row] = rank
        left.remove(row)
    return ranks


def _correlate_free_orders(short: Sequence[float], long: Sequence[float]) -> float:
    """Spearman's correlation where tied rows stand as in the other comparison if they can."""
    theirs = order_with_ties(long, short)
    return correlation(order_with_ties(short, theirs), theirs)


def _correlate_shared_ranks(short: Sequence[float], long: Sequence[float]) -> float:
    """Spearman's correlation where tied rows share a rank; NaN if all rows of one are tied."""
    ranks = [rank_with_ties(column) for column in (short, long)]
    return correlation(*ranks) if all(len({*column}) > 1 for column in ranks) else math.nan


def rank_with_ties(losses: Sequence[float]) -> list[float]:
    """Ranks from 1, the lowest loss first; losses within TIE of each other share a rank.

    >>> rank_with_ties([1.0, 1.04, 2.0])
    [1.5, 1.5, 3.0]
    """
    return [
        1
        + sum(other < loss - TIE for other in losses)
        + (sum(abs(other - loss) <= TIE for other in losses) - 1) / 2
        for loss in losses
    ]
