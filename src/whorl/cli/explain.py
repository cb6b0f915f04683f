"""``whorl explain``: an encoding or a scaling step by step, on numbers to follow by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import whorl
from whorl._support.words import quote, suggest_name

from ._options import make_length_option, make_position_option, name_options
from ._output import JsonFlag, print_result

__all__ = ["explain"]

Name = typer.Argument(
    metavar="NAME",
    help="An encoding, such as rope, alibi or rope+alibi, or a scaling, such as yarn.",
)
Position = make_position_option("The position, or distance, to look at [3; else the last].")
Dim = typer.Option("--dim", help="Width of a head [8].")
Heads = typer.Option("--heads", help="Number of heads [4].")
Base = typer.Option("--base", help="Base of the frequencies, where it has one.")
Factor = typer.Option("--factor", help="Of a scaling: new length over the trained one [4].")
Trained = make_length_option("Of a scaling: tokens of training [4096].", "--trained")

#: Words of errors of the library, and how the command line says the same.
_NAMES = {
    **{f"explain: {name}": f"--{name}" for name in ("position", "factor", "trained")},
    **{f"does not use {name}": f"does not use --{name}" for name in ("dim", "heads", "base")},
    "RoPE: head_dim": "--dim",
    "head_dim must": "--dim must",
    "num_heads must": "--heads must",
    " Pass rotary_dim= to rotate an even part of the head.": "",
}

_SMALL, _LARGE = 1e-5, 1e9  # columns of such numbers have powers of ten
_ROWS = 64  # of a table of learned positions, as far as the position allows


def explain(
    encoding: Annotated[str, Name],
    position: Annotated[int | None, Position] = None,
    dim: Annotated[int | None, Dim] = None,
    heads: Annotated[int | None, Heads] = None,
    base: Annotated[float | None, Base] = None,
    factor: Annotated[float | None, Factor] = None,
    trained: Annotated[int | None, Trained] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what an encoding does at a position, or a scaling to a longer context, step by step.

    Of an encoding: pairs, angles, rotation, biases, terms, and scores at several places: equal
    differences, equal scores? Of a scaling: which pairs it slows, and which angles follow. Options
    that are not used are refused.
    """
    from whorl.scaling import names as scaling_names

    given = {"dim": dim, "heads": heads, "base": base, "factor": factor, "trained": trained}
    options = {name: value for name, value in given.items() if value is not None}
    with name_options(_NAMES):
        if encoding in scaling_names():
            found = _explain_scaling(encoding, position, options)
        else:
            found = _explain_encoding(encoding, 3 if position is None else position, options)
    print_result(found, as_json, _render_page)


def _explain_scaling(
    name: str, position: int | None, options: dict[str, Any]
) -> whorl.analysis.Explanation:
    if "heads" in options:
        raise ValueError("--heads is about an encoding; a scaling is the same for all heads.")
    if "base" in options and not options["base"] > 1:
        raise ValueError(f"--base must be above 1; got {options['base']:g}.")
    if "dim" in options:
        options["head_dim"] = options.pop("dim")
    return whorl.analysis.explain_scaling(name, position, **options)


def _explain_encoding(
    encoding: str, position: int, options: dict[str, Any]
) -> whorl.analysis.Explanation:
    from whorl.analysis.sizes import make_for_sizes, refuse_unused

    for name in ("factor", "trained"):
        if name in options:
            raise ValueError(f"--{name} is about a scaling, such as yarn; leave it out.")
    _suggest_scaling(encoding)
    refuse_unused([encoding], list(options), "explain")
    found = whorl.analysis.explain(
        make_for_sizes(
            encoding,
            num_heads=options.get("heads", 4),
            head_dim=options.get("dim", 8),
            max_length=max(_ROWS, position + 1),
            **({"base": options["base"]} if "base" in options else {}),
        ),
        position,
    )
    if "max_length=" in found.encoding and position >= _ROWS:
        note = f"The table has {position + 1} rows instead of {_ROWS}, to hold position {position}."
        found = dataclasses.replace(found, notes=(*found.notes, note))
    return found


def _suggest_scaling(name: str) -> None:
    """Refuse a name that is like that of a scaling, and like that of no encoding."""
    from whorl.scaling import names as scaling_names

    for part in name.split("+"):
        if part.strip() in scaling_names():
            raise ValueError(
                f"{quote(part.strip())} is a scaling, which is explained alone:"
                f" whorl explain {part.strip()}."
            )
    known = [*whorl.names(), *scaling_names()]
    if "+" not in name and name not in known:
        raise ValueError(
            f"unknown name {quote(name)}{suggest_name(name, known)} Encodings:"
            f" {', '.join(whorl.names())}. Scalings: {', '.join(scaling_names())}."
        )


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
