"""Columns of the tables of a comparison: Markdown, terminal and page share them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ._view import MISSING, ComparisonView, read_number

__all__ = ["Column", "Row", "build_change_column", "build_field_column", "build_result_columns"]

Row = Mapping[str, Any]


class Column(NamedTuple):
    """The head of a column, and functions for the value of a row as a number and as text.

    most: whether the largest value is best; None if no value is better than another.
    length: the evaluation length, in columns of results.
    """

    head: str
    value: Callable[[Row], float | None]
    words: Callable[[Row], str]
    most: bool | None
    length: int | None = None

    def find_best(self, rows: Sequence[Row]) -> set[int]:
        """Indices of the rows with the best value, and of those with the same text."""
        values = [self.value(row) for row in rows]
        known = [value for value in values if value is not None]
        if self.most is None or not known:
            return set()
        texts = [self.words(row) for row in rows]
        best = texts[values.index(max(known) if self.most else min(known))]
        return {n for n, text in enumerate(texts) if text == best}


def build_result_columns(view: ComparisonView) -> list[Column]:
    """Columns of each evaluation length, the other measure, the last tenth of training, its speed.

    The other measure is the accuracy, or where the columns of lengths show that, the loss. It and
    the speed are left out if no row has them.
    """
    found = [_build_length_column(view, length) for length in view.lengths]
    found += [_build_other_column(view)] if view.has_other_measure else []
    found.append(_build_last_tenth_column(view))
    if view.has_speed:
        speed = build_field_column("tokens/s", "tokens_per_second", ",.0f", most=True)
        found.append(speed._replace(words=view.format_speed))
    return found


def _build_other_column(view: ComparisonView) -> Column:
    """The accuracy at the trained length, or the loss where the table shows the accuracy."""

    def words(row: Row) -> str:
        return view.format_other_measure(view.get_other_measure(row))

    head = f"{view.other_measure} at {view.trained_length}"
    return Column(head, view.get_other_measure, words, not view.is_accuracy)


def _build_last_tenth_column(view: ComparisonView) -> Column:
    """The change of the validation loss in the last tenth of the steps."""

    def value(row: Row) -> float | None:
        found = read_number(row.get("last_tenth"))
        return None if found is None else -found

    return Column("last tenth", value, view.format_last_tenth, None)


def build_change_column(view: ComparisonView) -> Column:
    """The column of the change from the trained length to the longest one."""
    sign = -1 if view.is_accuracy else 1

    def value(row: Row) -> float | None:
        worse = view.compute_degradation(row)
        return None if worse is None else sign * worse

    head = f"{view.trained_length} to {view.longest}"
    return Column(head, value, view.format_change, view.is_accuracy)


def build_field_column(head: str, key: str, form: str, *, most: bool | None = None) -> Column:
    """The column of the numbers under ``key``, in the format ``form``."""

    def value(row: Row) -> float | None:
        return read_number(row.get(key))

    def words(row: Row) -> str:
        found = value(row)
        return MISSING if found is None else format(found, form)

    return Column(head, value, words, most)


def _build_length_column(view: ComparisonView, length: int) -> Column:
    def value(row: Row) -> float | None:
        return view.get_value(row, length)

    def words(row: Row) -> str:
        return view.format_value(value(row))

    head = f"{length} (trained)" if length == view.trained_length else str(length)
    return Column(head, value, words, view.is_accuracy, length)
