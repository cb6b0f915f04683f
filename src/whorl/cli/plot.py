"""``whorl plot``: any chart by name, as a file or as its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import whorl
from whorl._support.words import quote

from ._options import check_chart, make_length_option, replace_names
from ._output import JsonFlag, print_json, print_page

__all__ = ["plot"]


class ThemeName(str, Enum):
    light = "light"
    dark = "dark"


Name = typer.Argument(metavar="NAME", help="Which chart; --list shows them.")
Out = typer.Option("--out", metavar="FILE", help="Where to: .png, .svg, .html or .json.")
List = typer.Option("--list", help="Show every chart, or NAME's options.")
Dim = typer.Option("--dim", help="Width of a head.")
Length = make_length_option("Tokens, or the farthest distance.", "--length")
Encoding = typer.Option("--encoding", metavar="NAME", help="Such as alibi or rope+alibi.")
Config = typer.Option(
    "--config", metavar="CONFIG", help="A model: its config.json, or its name as for inspect."
)
RunFolder = typer.Option("--run", metavar="FOLDER", help="A run of whorl train or compare.")
Set = typer.Option("--set", metavar="KEY=VALUE", help="Any option of the chart; repeat it.")

_FLAGS = ("dim", "base", "length", "encoding", "config", "run")
#: Words of errors of the library, and how the command line says the same.
_NAMES = {
    "sets dim and base": "sets --dim and --base",
    "set option 'layer_type' to": "add --set layer_type=NAME,",
    "set run=FOLDER": "add --run FOLDER",
    "RoPE: head_dim": "--dim",
    " Pass rotary_dim= to rotate an even part of the head.": "",
}
_NAMES |= {f"does not use {name}": f"does not use --{name}" for name in _FLAGS}


def plot(
    name: Annotated[str | None, Name] = None,
    out: Annotated[Path | None, Out] = None,
    show: Annotated[bool, List] = False,
    theme: Annotated[ThemeName, typer.Option(help="Colours.")] = ThemeName.light,
    dim: Annotated[int | None, Dim] = None,
    base: Annotated[float | None, typer.Option(help="Base of the frequencies.")] = None,
    length: Annotated[int | None, Length] = None,
    encoding: Annotated[str | None, Encoding] = None,
    config: Annotated[str | None, Config] = None,
    run: Annotated[str | None, RunFolder] = None,
    given: Annotated[list[str] | None, Set] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw a chart of the analysis, or print its numbers with --json.

    The same name gives the same chart in every format. HTML stands alone and shows values on hover.
    """
    if show or name is None:
        _list(name, as_json)
        return
    options: dict[str, Any] = {"dim": dim, "base": base, "length": length, "encoding": encoding}
    options |= {"config": config, "run": run}
    options = {key: value for key, value in options.items() if value is not None}
    options |= dict(_parse_pair(text) for text in given or ())
    whorl.plots.catalogue.entry(name)
    if out is None and not as_json:
        raise ValueError(
            f"say where the chart goes: whorl plot {name} --out {name}.png; or --json."
        )
    check_chart(out, "--out")
    with _name_options():
        found = whorl.plots.catalogue.numbers(name, **options).to_dict()
    if out is not None:
        whorl.plots.save(whorl.plots.catalogue.entry(name).draw(found), out, theme=theme.value)
    if as_json:
        print_json(found)
    else:
        print(out)


@contextmanager
def _name_options() -> Iterator[None]:
    """Let an error about an option of a chart say it as it is typed: --config, --set context."""
    try:
        yield
    except ValueError as error:
        words = replace_names(str(error), _NAMES)
        raise ValueError(re.sub(r"\boption '(\w+)'", _format_flag, words)) from None


def _format_flag(match: re.Match[str]) -> str:
    return f"--{match[1]}" if match[1] in _FLAGS else f"--set {match[1]}"


def _parse_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set takes KEY=VALUE, such as --set context=8192; got {quote(text)}.")
    return key.strip(), value.strip()


def _list(name: str | None, as_json: bool) -> None:
    entries = (
        list(whorl.plots.catalogue.CHARTS.values())
        if name is None
        else [whorl.plots.catalogue.entry(name)]
    )
    if as_json:
        print_json([_describe_chart(each) for each in entries])
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    group = None
    for each in entries:
        if each.group != group:
            table.add_row(Text(each.group, "dim"))
        group = each.group
        table.add_row(f"  {each.name}", each.summary)
    if name is not None:
        for option, default in entries[0].options.items():
            table.add_row(
                f"    {option}",
                Text(whorl.plots.catalogue.format_default(default) or "not set", "dim"),
            )
    more = "\nwhorl plot decay --list shows its options; --set changes any of them."
    print_page(table, *([Text(more, "dim")] if name is None else []))


def _describe_chart(each: whorl.plots.catalogue.ChartEntry) -> dict[str, Any]:
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in each.options.items()}
    return {"name": each.name, "group": each.group, "summary": each.summary, "options": options}
