"""The table of the report page: a row for each encoding, sortable, the best of a column bold."""

from html import escape

from ._columns import (
    Column,
    Row,
    build_change_column,
    build_field_column,
    build_result_columns,
)
from ._reading import ComparisonView, read_number

__all__ = ["render_results"]


def render_results(reading: ComparisonView) -> str:
    rows = reading.rows
    columns = _build_columns(reading)
    marks = [column.find_best(rows) for column in columns]
    heads = [_render_head("encoding", "")]
    for column in columns:
        sort = ' aria-sort="ascending"' if column.length == reading.far else ""
        if reading.accuracy:
            sort = sort.replace("ascending", "descending")
        trained = ' class="trained"' if column.length == reading.near else ""
        heads.append(_render_head(column.head, sort + trained))
    body = []
    for n, row in enumerate(rows):
        name = escape(str(row["name"]))
        cells = [f'<th scope="row" data-v="{name}"{_render_origin(row)}>{name}</th>']
        cells += [
            _render_cell(reading, column, row, n in best)
            for column, best in zip(columns, marks, strict=True)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{"".join(heads)}</tr></thead>\n'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _build_columns(reading: ComparisonView) -> list[Column]:
    columns = build_result_columns(reading)
    if reading.far != reading.near:
        columns.insert(len(reading.lengths), build_change_column(reading))
    return [
        *columns,
        build_field_column("memory (MB)", "memory_mb", ",.0f", most=False),
        build_field_column("own parameters", "encoding_parameters", ",.0f"),
        build_field_column("learning rate", "learning_rate", "g"),
    ]


def _render_head(text: str, attributes: str) -> str:
    return f'<th scope="col"{attributes}><button type="button">{escape(text)}</button></th>'


def _render_origin(row: Row) -> str:
    """Whose weights a row has that was not trained itself."""
    if row["trained_as"] == row["name"]:
        return ""
    return f' title="trained as {escape(str(row["trained_as"]))}"'


def _render_cell(reading: ComparisonView, column: Column, row: Row, best: bool) -> str:
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
        low, high = (reading.words(read_number(cell[key])) for key in ("low", "high"))
        shown = f' title="{low} to {high}"'
        if len(reading.settings["seeds"]) > 1:
            points = f"{100 * half:.1f}" if reading.accuracy else f"{half:.2f}"
            text += f"<small>\u00b1{points}</small>"
    heat = f' style="--t:{_compute_heat(reading, value):.2f}"'
    return f'<td class="{classes}"{data}{heat}{shown}>{text}</td>'


def _compute_heat(reading: ComparisonView, value: float) -> float:
    """0 for the best value of the table, 1 for far worse, the same at every length."""
    values = [reading.value(row, n) for row in reading.comparison["rows"] for n in reading.lengths]
    known = sorted(v for v in values if v is not None)
    if reading.accuracy:
        return min(1.0, max(0.0, 1.0 - value / (known[-1] or 1.0)))
    # Differences below 0.2 nats stay pale.
    # The last tenth shares the deepest shade, so that a diverged row does not bleach the others.
    least, far = known[0], known[(9 * (len(known) - 1)) // 10]
    return min(1.0, (value - least) / max(0.2, far - least))
