"""Whether two comparisons agree: a short one with a long one.

Ranks of the rows are compared by Spearman's correlation at each length. Rows within TIE nats of
each other are tied: the rank of a row is one more than the number of rows that are better by more
than that, plus half the number of rows that are tied with it.

Ranks say nothing where nearly all rows of the long comparison are tied, as they are at the trained
length when all have learned. Pairs that are in another order are therefore listed too.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import correlation
from typing import Any

__all__ = ["TIE", "measure_agreement", "rank_with_ties", "select_third"]

TIE = 0.05


def measure_agreement(
    short: Mapping[str, Any], long: Mapping[str, Any], *, reference: str = "rope"
) -> dict[str, Any]:
    """How the rows that two comparisons share rank in both.

    Returns by length, under "correlation", Spearman's correlation, under "decided", how many pairs
    of rows differ by more than TIE in both, and under "reversed", those of them that are in another
    order; and by row, under "differences", the difference to ``reference`` at the trained length in
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
        "correlation": {
            length: correlation(*(rank_with_ties(column) for column in pair))
            for length, pair in losses.items()
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
