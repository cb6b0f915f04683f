"""The table of the report page: a row for each encoding, sortable, the best of a column bold."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from ._reading import MISSING, Reading, number

__all__ = ["results"]

Row = Mapping[str, Any]


class _Column(NamedTuple):
    """most: whether the largest value is best; None if no value is better than another."""

    head: str
    value: Callable[[Row], float | None]
    words: Callable[[Row], str]
    most: bool | None
    length: int | None = None


def results(reading: Reading) -> str:
    rows = reading.rows
    columns = _columns(reading)
    marks = [_best(reading, column, rows) for column in columns]
    heads = [_head("encoding", "")]
    for column in columns:
        sort = ' aria-sort="ascending"' if column.length == reading.far else ""
        if reading.accuracy:
            sort = sort.replace("ascending", "descending")
        trained = ' class="trained"' if column.length == reading.near else ""
        heads.append(_head(column.head, sort + trained))
    body = []
    for n, row in enumerate(rows):
        name = escape(str(row["name"]))
        cells = [f'<th scope="row" data-v="{name}"{_origin(row)}>{name}</th>']
        cells += [
            _cell(reading, column, row, n in best)
            for column, best in zip(columns, marks, strict=True)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{"".join(heads)}</tr></thead>\n'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _columns(reading: Reading) -> list[_Column]:
    found = []
    for length in reading.lengths:

        def value(row: Row, length: int = length) -> float | None:
            return reading.value(row, length)

        def words(row: Row, length: int = length) -> str:
            return reading.words(reading.value(row, length))

        head = f"{length} (trained)" if length == reading.near else str(length)
        found.append(_Column(head, value, words, reading.accuracy, length))
    sign = -1 if reading.accuracy else 1

    def change(row: Row) -> float | None:
        worse = reading.loss_of(row)
        return None if worse is None else sign * worse

    if reading.far != reading.near:
        head = f"{reading.near} to {reading.far}"
        found.append(_Column(head, change, reading.change, reading.accuracy))
    if reading.has_speed:

        def speed(row: Row) -> float | None:
            return number(row.get("tokens_per_second"))

        found.append(_Column("tokens/s", speed, reading.speed, True))
    found += [
        _field("memory (MB)", "memory_mb", ",.0f", most=False),
        _field("own parameters", "encoding_parameters", ",.0f", most=None),
        _field("learning rate", "learning_rate", "g", most=None),
    ]
    return found


def _field(head: str, key: str, form: str, *, most: bool | None) -> _Column:
    def value(row: Row) -> float | None:
        return number(row.get(key))

    def words(row: Row) -> str:
        found = value(row)
        return MISSING if found is None else format(found, form)

    return _Column(head, value, words, most)


def _best(reading: Reading, column: _Column, rows: Sequence[Row]) -> set[int]:
    if column.most is None:
        return set()
    texts = [column.words(row) for row in rows]
    return reading.best(texts, [column.value(row) for row in rows], column.most)


def _head(text: str, attributes: str) -> str:
    return f'<th scope="col"{attributes}><button type="button">{escape(text)}</button></th>'


def _origin(row: Row) -> str:
    """Whose weights a row has that was not trained itself."""
    if row["trained_as"] == row["name"]:
        return ""
    return f' title="trained as {escape(str(row["trained_as"]))}"'


def _cell(reading: Reading, column: _Column, row: Row, best: bool) -> str:
    value, text = column.value(row), escape(column.words(row))
    text = f"<b>{text}</b>" if best else text
    data = "" if value is None else f' data-v="{value!r}"'
    if column.length is None or value is None:
        return f"<td{data}>{text}</td>"
    classes = "heat trained" if column.length == reading.near else "heat"
    half = reading.half_width(row, column.length)
    shown = ""
    if half is not None:
        cell = reading.cell(row, column.length)
        low, high = (reading.words(number(cell[key])) for key in ("low", "high"))
        shown = f' title="{low} to {high}"'
        if len(reading.settings["seeds"]) > 1:
            points = f"{100 * half:.1f}" if reading.accuracy else f"{half:.2f}"
            text += f"<small>\u00b1{points}</small>"
    heat = f' style="--t:{_heat(reading, value):.2f}"'
    return f'<td class="{classes}"{data}{heat}{shown}>{text}</td>'


def _heat(reading: Reading, value: float) -> float:
    """0 for the best value of the table, 1 for far worse, the same at every length."""
    values = [reading.value(row, n) for row in reading.comparison["rows"] for n in reading.lengths]
    known = sorted(v for v in values if v is not None)
    if reading.accuracy:
        return min(1.0, max(0.0, 1.0 - value / (known[-1] or 1.0)))
    # Differences below 0.2 nats stay pale.
    # The last tenth shares the deepest shade, so that a diverged row does not bleach the others.
    least, far = known[0], known[(9 * (len(known) - 1)) // 10]
    return min(1.0, (value - least) / max(0.2, far - least))
