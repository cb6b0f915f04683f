"""``whorl inspect``: what a model's positions really are, and who reads them otherwise."""

from __future__ import annotations

import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import whorl

from ._options import make_length_option, replace_names
from ._output import JsonFlag, print_json, print_page, print_result

__all__ = ["inspect"]


class Parity(str, Enum):
    transformers = "transformers"


Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, a GGUF file, a preset such as llama-3.1-8b (--list), or a model"
    " in the local Hugging Face cache, such as Qwen/Qwen3-8B.",
)
Length = make_length_option("What texts of so many tokens would meet.")
Extend = typer.Option(metavar="NAME", help="What a scaling would do: yarn, linear, ntk, llama3 ...")
Factor = typer.Option(metavar="F", help="New length over the trained one; else as --length needs.")
Trained = make_length_option("Tokens of training, where the config does not say.")
LayerType = typer.Option(metavar="T", help="Only the layers of this name; else all.")
Plot = typer.Option(metavar="FILE", help="Draw the wavelengths: .png, .svg, .html or .json.")
List = typer.Option("--list", help="List the presets, with their sources, and stop.")
Mistakes = typer.Option(help="Read it with the mistakes that this framework makes.")


def inspect(
    config: Annotated[str | None, Config] = None,
    length: Annotated[int | None, Length] = None,
    extend: Annotated[str | None, Extend] = None,
    factor: Annotated[float | None, Factor] = None,
    trained: Annotated[int | None, Trained] = None,
    layer_type: Annotated[str | None, LayerType] = None,
    parity: Annotated[Parity | None, Mistakes] = None,
    plot: Annotated[Path | None, Plot] = None,
    list_presets: Annotated[bool, List] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what a model's positions really are: layout, wavelengths, reach, who reads it otherwise.

    Exit code 0, or 2 if the config cannot be read.
    """
    if list_presets:
        _list_presets(as_json)
        return
    if config is None:
        raise ValueError("inspect: name a config.json, a folder, a preset or a model; see --help.")
    if plot is not None:
        whorl.plots.check_path(plot)
    from whorl.configs import inspection

    try:
        found = inspection.inspect(
            config,
            length=length,
            extend=extend,
            factor=factor,
            trained=trained,
            layer_type=layer_type,
            parity=None if parity is None else parity.value,
        )
    except whorl.configs.ConfigError as error:
        words = replace_names(str(error), {"trained=N": "--trained N"})
        raise ValueError(f"{words}{_count_errors(config)}") from None
    if plot is not None:
        whorl.plots.save(whorl.plots.inspection(found.to_dict()), plot)
    from whorl.configs.inspection.tables import render_terminal

    print_result(found, as_json, render_terminal)


def _count_errors(config: str) -> str:
    """Where a config cannot be read: how much is wrong with it, and what says more."""
    from whorl.configs import diagnosis

    try:
        count = len(diagnosis.diagnose(config).errors)
    except ValueError:  # no config at all
        return ""
    errors = "1 error" if count == 1 else f"{count} errors"
    return f" whorl doctor {shlex.quote(config)} explains {errors} in it." if count else ""


def _list_presets(as_json: bool) -> None:
    from whorl.configs import presets

    found = presets.describe()
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for each in found:
        table.add_row(f"  {each['name']}", f"{each['context']:,}", Text(each["repository"], "dim"))
    print_page(
        f"{len(found)} presets: the keys about positions of published models, and their context.",
        table,
        Text("whorl inspect llama-3.1-8b reads one; --list --json has dates and copies.", "dim"),
    )
