"""``whorl explain``: an encoding step by step, on numbers that can be followed by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import whorl

from ._options import make_position_option
from ._output import JsonFlag, print_result

__all__ = ["explain"]

Name = typer.Argument(metavar="ENCODING", help="Such as rope, alibi or rope+alibi.")
Position = make_position_option("The position, or distance, to look at.")
Dim = typer.Option("--dim", help="Width of a head [8].")
Heads = typer.Option("--heads", help="Number of heads [4].")
Base = typer.Option("--base", help="Base of the frequencies, where it has one.")

_SMALL, _LARGE = 1e-5, 1e9  # columns of such numbers have powers of ten
_ROWS = 64  # of a table of learned positions, as far as the position allows


def explain(
    encoding: Annotated[str, Name],
    position: Annotated[int, Position] = 3,
    dim: Annotated[int | None, Dim] = None,
    heads: Annotated[int | None, Heads] = None,
    base: Annotated[float | None, Base] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what an encoding does at a position: pairs, angles, rotation, biases, terms.

    The last table has scores at several places: equal differences, equal scores? Options that the
    encoding does not use are refused.
    """
    from whorl.analysis.sizes import make_for_sizes, refuse_unused

    given = {"dim": dim, "heads": heads, "base": base}
    refuse_unused(
        [encoding], [word for word, value in given.items() if value is not None], "explain"
    )
    found = whorl.analysis.explain(
        make_for_sizes(
            encoding,
            num_heads=4 if heads is None else heads,
            head_dim=8 if dim is None else dim,
            max_length=max(_ROWS, position + 1),
            **({} if base is None else {"base": base}),
        ),
        position,
    )
    if "max_length=" in found.encoding and position >= _ROWS:
        note = f"The table has {position + 1} rows instead of {_ROWS}, to hold position {position}."
        found = dataclasses.replace(found, notes=(*found.notes, note))
    print_result(found, as_json, _render_page)


def _render_page(found: whorl.analysis.Explanation) -> Iterator[Table | Text]:
    yield Text(found.encoding, "bold")
    if found.formula:
        yield Text(found.formula)
        yield Text(found.paper, "dim")
    for note in found.notes:
        yield Text(note, "yellow")
    for step in found.steps:
        yield Text()
        yield Text(step.title, "bold cyan")
        yield Text(step.words)
        if step.rows:
            yield _render_step(step)


def _render_step(step: whorl.analysis.ExplanationStep) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for n, head in enumerate(step.heads):
        text = any(isinstance(row[n], str) for row in step.rows)
        table.add_column(head, justify="left" if text else "right", no_wrap=True)
    columns = [_format_column(column) for column in zip(*step.rows, strict=True)]
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _format_column(values: Sequence[str | int | float]) -> list[str]:
    """Numbers of a column with as many decimals each; the fewer, the larger they are."""
    known = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v)]
    most = max(known, default=0.0)
    form = ".6g" if most >= _LARGE or 0 < most < _SMALL else ",.3f" if most >= 100 else ",.6f"
    return [f"{v + 0.0:{form}}" if isinstance(v, float) else str(v) for v in values]
