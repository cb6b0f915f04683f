"""The table of the report page: a row for each encoding, sortable, best values in bold."""

from html import escape

from ._columns import (
    Column,
    Row,
    build_change_column,
    build_field_column,
    build_result_columns,
)
from ._view import ComparisonView, read_number

__all__ = ["render_results"]


def render_results(view: ComparisonView) -> str:
    """The table as HTML."""
    rows = view.rows
    columns = _build_columns(view)
    marks = [column.find_best(rows) for column in columns]
    heads = [_render_head("encoding", "")]
    for column in columns:
        sort = ' aria-sort="ascending"' if column.length == view.longest else ""
        if view.is_accuracy:
            sort = sort.replace("ascending", "descending")
        trained = ' class="trained"' if column.length == view.trained_length else ""
        heads.append(_render_head(column.head, sort + trained))
    body = []
    for n, row in enumerate(rows):
        name = escape(str(row["name"]))
        cells = [f'<th scope="row" data-v="{name}"{_render_origin(row)}>{name}</th>']
        cells += [
            _render_cell(view, column, row, n in best)
            for column, best in zip(columns, marks, strict=True)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{"".join(heads)}</tr></thead>\n'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _build_columns(view: ComparisonView) -> list[Column]:
    columns = build_result_columns(view)
    if view.longest != view.trained_length:
        columns.insert(len(view.lengths), build_change_column(view))
    return [
        *columns,
        build_field_column("memory (MB)", "memory_mb", ",.0f", most=False),
        build_field_column("own parameters", "encoding_parameters", ",.0f"),
        build_field_column("learning rate", "learning_rate", "g"),
        build_field_column("rate of own parameters", "encoding_learning_rate", "g"),
    ]


def _render_head(text: str, attributes: str) -> str:
    return f'<th scope="col"{attributes}><button type="button">{escape(text)}</button></th>'


def _render_origin(row: Row) -> str:
    """A title attribute that names the trained encoding, for rows with a scaling."""
    if row["trained_as"] == row["name"]:
        return ""
    return f' title="trained as {escape(str(row["trained_as"]))}"'


def _render_cell(view: ComparisonView, column: Column, row: Row, best: bool) -> str:
    value, text = column.value(row), escape(column.words(row))
    text = f"<b>{text}</b>" if best else text
    data = "" if value is None else f' data-v="{value!r}"'
    if column.length is None or value is None:
        return f"<td{data}>{text}</td>"
    classes = "heat trained" if column.length == view.trained_length else "heat"
    half = view.compute_half_width(row, column.length)
    title = ""
    if half is not None:
        cell = view.get_cell(row, column.length)
        low, high = (view.format_value(read_number(cell[key])) for key in ("low", "high"))
        title = f' title="{low} to {high}"'
        if len(view.settings["seeds"]) > 1:
            points = f"{100 * half:.1f}" if view.is_accuracy else f"{half:.2f}"
            text += f"<small>\u00b1{points}</small>"
    heat = f' style="--t:{_compute_heat(view, value):.2f}"'
    return f'<td class="{classes}"{data}{heat}{title}>{text}</td>'


def _compute_heat(view: ComparisonView, value: float) -> float:
    """Depth of the shade: 0 for the best value of the table, 1 for a far worse one."""
    values = [view.get_value(row, n) for row in view.comparison["rows"] for n in view.lengths]
    known = sorted(v for v in values if v is not None)
    if view.is_accuracy:
        return min(1.0, max(0.0, 1.0 - value / (known[-1] or 1.0)))
    # Differences below 0.2 nats stay pale. The worst tenth has the deepest shade, so that one
    # diverged row does not make all others pale.
    least, far = known[0], known[(9 * (len(known) - 1)) // 10]
    return min(1.0, (value - least) / max(0.2, far - least))
