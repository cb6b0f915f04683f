"""``whorl stream``: the loss of a trained run along texts far past its trained length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import whorl

from ._options import check_chart, make_length_option, name_options
from ._output import JsonFlag, open_progress_bar, print_result
from .generate import RunFolder

if TYPE_CHECKING:
    from whorl.lab.streams import StreamInterval, StreamLoss

__all__ = ["stream"]

Length = typer.Option(
    metavar="N, 4k, 10x", help="Tokens of each text, or a multiple of the trained length."
)
Window = make_length_option(
    "Keys that a token sees, itself and the sinks included; else the trained length."
)
Sinks = typer.Option(help="How many of these keys are the first ones, with sinks.")
Streams = typer.Option(help="Texts at most, over which the intervals are.")
File = typer.Option(
    "--text", metavar="FILE", help="Text to read; else what was held out of the training."
)
Chart = typer.Option(metavar="FILE", help="Also draw it: .png, .svg, .html or .json.")

_NAMES = {name: f"--{name}" for name in ("length", "window", "sinks", "streams", "text")}
_NAMES |= {"text=FILE": "--text FILE"}


def stream(
    run: Annotated[Path, RunFolder],
    length: Annotated[str, Length] = "10x",
    window: Annotated[int | None, Window] = None,
    sinks: Annotated[int, Sinks] = 4,
    streams: Annotated[int, Streams] = 16,
    text: Annotated[Path | None, File] = None,
    chart: Annotated[Path | None, Chart] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure the loss along texts far longer than the trained length, with four kinds of memory.

    dense keeps all keys, window the latest ones, sinks the first few and the latest. recomputed
    reads the window before each token afresh: slow, and what the others are compared with. All are
    judged on the same tokens. The numbers are kept in stream.json of the run.
    """
    check_chart(chart)
    with name_options(_NAMES), open_progress_bar() as show:
        found = whorl.lab.stream_run(
            run,
            length=length,
            window=window,
            sinks=sinks,
            streams=streams,
            text=text,
            progress=show,
        )
    if chart is not None:
        drawn = whorl.plots.catalogue.entry("stream").draw(found.to_dict())
        whorl.plots.save(drawn, chart)
    print_result(found, as_json, _render)


def _render(found: StreamLoss) -> list[Table | Text | str]:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("cache")
    table.add_column("keys")
    table.add_column(f"loss to {found.beyond}", justify="right")
    table.add_column(f"{found.beyond} to {found.length}", justify="right")
    table.add_column("less recomputed", justify="right")
    for policy in found.policies:
        apart = "" if policy.difference is None else _format_interval(policy.difference)
        losses = (f"{part.loss:.3f}" for part in (policy.inside, policy.beyond))
        table.add_row(policy.name, policy.keys, *losses, apart)
    note = (
        f"{found.encoding}, trained on {found.trained_length} {found.unit}; nats per"
        f" {found.unit.removesuffix('s')}, one in {found.every} judged;"
        f" {found.streams} texts of {found.length}, 95 % intervals over texts."
    )
    reasons = [Text(f"{name} left out: {why}") for name, why in found.left_out.items()]
    return [table, "", Text(note), *reasons]


def _format_interval(found: StreamInterval) -> str:
    if found.low is None or found.high is None:
        return f"{found.loss:+.3f}"
    return f"{found.loss:+.3f} \u00b1 {found.high - found.loss:.3f}"  # it is symmetric
