"""The verdict of a comparison: two sentences, from its numbers only.

The first says which encoding to choose for texts longer than trained: of the rows that keep their
loss at the longest length, those with the lowest loss there; and how RoPE does. The second says
which is best at the trained length, which are too close to call, and the size of the experiment.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ._view import ComparisonView, format_count, join_names
from .thresholds import HOLDS

__all__ = ["write_verdict"]

Row = Mapping[str, Any]
_MOST_NAMES = 4
_MOST_CHOSEN = 8


def write_verdict(view: ComparisonView) -> str:
    """Two sentences, or one if there are no rows."""
    if not view.comparison["rows"]:
        return "No run has finished, so there is nothing to compare yet."
    if not any(map(view.has_learned, view.comparison["rows"])):
        return _describe_no_learning(view)
    return f"{_judge_longer_texts(view)} {_judge_trained_length(view)}"


def _describe_no_learning(view: ComparisonView) -> str:
    """Where no model predicts better than token frequencies, nothing shows what positions do."""
    length = view.trained_length
    ranked = view.rank_rows(length)
    best = next((row for row in ranked if row["trained_as"] == row["name"]), ranked[0])
    value = view.get_value(best, length)
    found = "has no finite loss" if value is None else f"has {_format_range(view, [best], length)}"
    return (
        f"Choose nothing by this: no encoding has learned enough. After {view.settings['steps']}"
        f" steps the best one, {best['name']}, {found} at the trained length of {length}"
        f" {view.unit}, where {'guessing' if view.is_accuracy else 'token frequencies'} alone"
        f" {'gives' if view.is_accuracy else 'give'} {view.format_value(view.guess)}; train for"
        f" more steps {_describe_size(view)}."
    )


def _judge_longer_texts(view: ComparisonView) -> str:
    if view.longest <= view.trained_length:
        return (
            f"No text longer than the {view.trained_length} {view.unit} of the training was"
            " evaluated, so this does not show which encoding to choose for longer ones."
        )
    steady = _list_candidates(view)
    if steady:
        chosen = [steady[0], *view.list_close(steady[0], steady, view.longest)]
        text = _describe_choice(view, chosen, steady)
    else:
        chosen = [row for row in view.rows if view.get_value(row, view.longest) is not None][:1]
        text = _describe_no_steady_row(view, chosen)
    return f"{text}{_describe_others(view, chosen)}."


def _list_candidates(view: ComparisonView) -> list[Row]:
    """Rows that keep their loss, without scalings of an encoding that keeps a better one itself."""
    names: dict[str, Row] = {}
    for row in view.list_steady():  # the best first
        if row["trained_as"] not in names:
            names[str(row["name"])] = row
    return list(names.values())


def _describe_choice(view: ComparisonView, chosen: Sequence[Row], steady: Sequence[Row]) -> str:
    """ "For texts longer than trained, choose alibi: once trained, it keeps its loss ..."."""
    one = len(chosen) == 1
    names = join_names([str(row["name"]) for row in chosen], _MOST_CHOSEN, "or")
    values = _format_range(view, chosen, view.longest)
    start = f"For texts longer than trained, choose {names}: {_say_when(view, view.longest)}"
    if len(chosen) == len(steady):
        who = "it stays" if one else "they stay"
        return (
            f"{start} at {_format_longest(view)}, {who} {_describe_steady(view, one)}, with"
            f" {values}"
        )
    others = join_names([str(row["name"]) for row in steady], 6)
    best = "highest accuracy" if view.is_accuracy else "lowest loss"
    return (
        f"{start} {'it has' if one else 'they have'} the {best} at {_format_longest(view)}"
        f" ({values}) of the rows that stay {_describe_steady(view, False)} ({others})"
    )


def _describe_steady(view: ComparisonView, one: bool) -> str:
    """ "within 0.1 nats of their loss at 128 bytes"."""
    whose = "its" if one else "their"
    return (
        f"within {_format_bound(view)} of {whose} {view.measure} at {view.trained_length}"
        f" {view.unit}"
    )


def _describe_no_steady_row(view: ComparisonView, best: Sequence[Row]) -> str:
    rows, when = view.comparison["rows"], _say_when(view, view.longest)
    if len(rows) == 1:
        (row,) = rows
        change = _describe_change(view, row)
        return (
            f"For texts longer than trained, do not choose {row['name']}: {when} it {change} at"
            f" {_format_longest(view)}"
        )
    start = f"For texts longer than trained, choose none of these: {when}"
    if not best:
        return f"{start} no row has a finite {view.measure} at {_format_longest(view)}"
    (row,) = best
    change = _describe_change(view, row)
    return (
        f"{start} no row keeps its {view.measure} within {_format_bound(view)} at"
        f" {_format_longest(view)}, and the best there, {row['name']}, {change}"
    )


def _describe_others(view: ComparisonView, chosen: Sequence[Row]) -> str:
    """Rows that are better than the chosen ones though they do not keep their loss, and RoPE."""
    rows, length = view.rows, view.longest
    parts = []
    first = rows[0]
    better = chosen and first not in chosen and not view.list_close(first, chosen[:1], length)
    if better:
        parts.append(f"{first['name']} {_describe_change(view, first)}, which is better still")
    rope = next((row for row in rows if row["name"] == "rope"), None)
    if chosen and rope is not None and rope not in chosen and not (better and rope is first):
        parts.append(f"rope {_describe_change(view, rope)}")
    return "".join(f"; {part}" for part in parts)


def _judge_trained_length(view: ComparisonView) -> str:
    length = view.trained_length
    rows = [
        row
        for row in view.rank_rows(length)
        if view.get_value(row, length) is not None and row["trained_as"] == row["name"]
    ]
    at = f"At the trained length of {length} {view.unit}"
    if view.longest <= length:  # else the first sentence says it
        at += f", {_say_when(view, length)}"
    if not rows:
        return f"{at} no row has a finite {view.measure} {_describe_size(view)}."
    best = rows[0]
    value = _format_range(view, [best], length)
    if len(rows) == 1:
        return f"{at} {best['name']} reaches {value} {_describe_size(view)}."
    close = view.list_close(best, rows, length)
    behind = [row for row in rows if row not in close]
    catching_up = view.list_catching_up(best, behind, length)
    text = f"{at} {best['name']} is best with {value}"
    if view.has_thirds() and not view.is_settled(length):
        text += ", which it was not after a third of the steps"
    if close:
        verb = "is" if len(close) == 1 else "are"
        text += f", and {_join_rows(close)} {verb} too close to call"
    if catching_up:
        everyone = len(rows) > 2 and len(catching_up) == len(rows) - 1
        names = "every other row" if everyone else _join_rows(catching_up)
        text += f", and {names} may pass it with more steps"
    if not close and not catching_up:
        text += ", with no other row close to it"
    return f"{text} {_describe_size(view)}."


def _join_rows(rows: Sequence[Row]) -> str:
    return join_names([str(row["name"]) for row in rows], _MOST_NAMES)


def _say_when(view: ComparisonView, length: int) -> str:
    """After how many steps, and whether the best rows at ``length`` have changed since a third.

    They are still changing too if a row that keeps its loss may pass one of those to choose.
    """
    when = f"after {view.settings['steps']} steps"
    if not any(row.get("third") for row in view.comparison["rows"]):
        return f"{when},"
    settled = view.is_settled(length)
    if length == view.longest:
        steady = _list_candidates(view)
        settled &= view.has_same_steady_rows()
        if steady:
            chosen = [steady[0], *view.list_close(steady[0], steady, length)]
            behind = [row for row in steady if row not in chosen]
            settled &= not any(view.list_catching_up(row, behind, length) for row in chosen)
    return f"{when}, as after a third of them," if settled else f"{when}, and still changing,"


def _describe_change(view: ComparisonView, row: Row) -> str:
    """ "rises from 1.23 to 4.04", "keeps its loss with 1.90 to 1.92", "has no finite loss"."""
    near, far = (view.get_value(row, n) for n in (view.trained_length, view.longest))
    if far is None:
        return f"has no finite {view.measure}"
    if near is None:
        return f"has {view.format_value(far)}"
    values = f"from {view.format_value(near)} to {view.format_value(far)}"
    if row in view.list_steady():
        return f"keeps its {view.measure} too, {values}"
    verb = "rises" if far > near else "falls"
    return f"{verb} {values}"


def _describe_size(view: ComparisonView) -> str:
    seeds = format_count(len(view.settings["seeds"]), "seed")
    return f"({seeds}, {view.shape}, {view.settings['steps']} steps)"


def _format_longest(view: ComparisonView) -> str:
    times = f"{view.longest / view.trained_length:g}"
    return f"{view.longest} {view.unit}, {times} times the trained length"


def _format_range(view: ComparisonView, rows: Sequence[Row], length: int) -> str:
    """Smallest and largest value of ``rows``, with the unit."""
    found = [value for row in rows if (value := view.get_value(row, length)) is not None]
    texts = dict.fromkeys(view.format_value(value) for value in (min(found), max(found)))
    return " to ".join(texts) + ("" if view.is_accuracy else f" {view.loss_unit}")


def _format_bound(view: ComparisonView) -> str:
    bound = HOLDS[view.measure]
    return f"{100 * bound:g} points" if view.is_accuracy else f"{bound:g} nats"
