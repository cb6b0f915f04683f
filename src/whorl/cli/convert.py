"""``whorl convert``: a checkpoint in the other layout, in a new folder, without loss."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import whorl

from ._output import JsonFlag, open_progress_bar, print_result
from ._sizes import HeadDim, Heads, KeyHeads, Patterns, RotaryDim, RotaryStart, parse_sizes

__all__ = ["convert"]

_MB = 10**6


class Target(str, Enum):
    half = "half"
    interleaved = "interleaved"


Source = typer.Argument(
    metavar="SOURCE",
    help="A folder, a .safetensors file, its index, or a model in the local Hugging Face cache.",
)
Out = typer.Argument(metavar="OUT", help="A folder that does not exist yet.")
To = typer.Option("--to", help="The layout to write.", show_default=False)
Check = typer.Option(
    "--check", help="Convert back and compare every byte; compare scores; judge the output."
)
Force = typer.Option(
    "--force",
    help="Convert although it seems to have that layout already or several, or lacks k or layers.",
)


def convert(
    source: Annotated[Path, Source],
    out: Annotated[Path, Out],
    to: Annotated[Target, To],
    check: Annotated[bool, Check] = False,
    force: Annotated[bool, Force] = False,
    pattern: Patterns = None,
    head_dim: HeadDim = None,
    heads: Heads = None,
    kv_heads: KeyHeads = None,
    rotary_dim: RotaryDim = None,
    rotary_start: RotaryStart = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a checkpoint again in the other layout: the same numbers, rows of q and k moved.

    The source is only read. OUT appears when it is complete, or not at all.

    Exit code 0 if it is there, 2 if it is not.
    """
    from whorl.configs.names import resolve_model

    source = resolve_model(source, "SOURCE")
    patterns, stated = parse_sizes(pattern, head_dim, heads, kv_heads, rotary_dim, rotary_start)
    with open_progress_bar() as show:
        done = whorl.weights.convert(
            source,
            out,
            to=to.value,
            patterns=patterns,
            stated=stated,
            check=check,
            force=force,
            progress=lambda n, total, label: show(n // _MB, total // _MB, f"MB  {label}"),
        )
    print_result(done, as_json, lambda done: [_render_table(done)])


def _render_table(done: whorl.weights.Conversion) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    found = done.found.layout
    unclear = done.found.in_words() if done.found.evident else "not to be told from the weights"
    was = f"{found} ({done.found.confidence:.1%})" if found else unclear
    table.add_row("layout", Text(f"{done.to}; it was {was}"))
    table.add_row("moved", f"rows of {len(done.tensors):,} tensors")
    table.add_row("written", f"{done.bytes / _MB:,.1f} MB of weights")
    if done.left_out:
        table.add_row("left out", Text(", ".join(done.left_out)))
    if done.check is not None:
        scores = f"scores of {done.check.heads} heads equal within {done.check.largest:.0e}"
        none = "no layer with both q and k to compare scores of"
        shows = f"its weights show {done.check.layout} ({done.check.confidence:.1%})"
        open_ = "its weights show no one layout, so that they prove none"
        table.add_row("checked", f"back again bit for bit; {scores if done.check.heads else none}")
        table.add_row("evidence", shows if done.check.layout else open_)
    table.add_row("kept in", Text(str(done.out)))
    for note in done.notes:
        table.add_row("note", Text(f"{note}."))
    return table
