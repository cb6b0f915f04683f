"""``whorl inspect``: what a model's positions really are, and who reads them otherwise."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import whorl

from ._options import check_chart, make_length_option, replace_names
from ._output import JsonFlag, print_json, print_page, print_result

__all__ = ["inspect"]


class Parity(str, Enum):
    transformers = "transformers"


Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, a GGUF file, a preset such as llama-3.1-8b (--list), or a model"
    " in the local Hugging Face cache, such as Qwen/Qwen3-8B.",
)
Other = typer.Argument(metavar="OTHER", help="A second one, to be shown beside it.")
Length = make_length_option("What texts of so many tokens would meet.")
Extend = typer.Option(metavar="NAME", help="What a scaling would do: yarn, linear, ntk, llama3 ...")
Factor = typer.Option(metavar="F", help="New length over the trained one; else as --length needs.")
Trained = make_length_option("Tokens of training, where the config does not say.")
LayerType = typer.Option(metavar="T", help="Only the layers of this name; else all.")
Plot = typer.Option(metavar="FILE", help="Draw the wavelengths: .png, .svg, .html or .json.")
List = typer.Option("--list", help="List the presets, with their sources, and stop.")
Mistakes = typer.Option(help="Read it with the mistakes that this framework makes.")

#: Words of errors of the library, and how the command line says the same.
_NAMES = {
    "trained=N": "--trained N",
    "factor": "--factor",
    "extend": "--extend",
    "needs extend=, the name": "needs --extend NAME, that",
    "needs factor, the new length": "needs --factor, the new length",
    "or length, from": "or --length, from",
    "pass layer= or layer_type=,": "add --layer-type NAME,",
}


def inspect(
    config: Annotated[str | None, Config] = None,
    other: Annotated[str | None, Other] = None,
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

    With two configs, both are shown side by side, and where they differ.

    Exit code 0, or 2 if the config cannot be read.
    """
    if list_presets:
        _list_presets(as_json)
        return
    if config is None:
        raise ValueError("inspect: name a config.json, a folder, a preset or a model; see --help.")
    if other is not None:
        alone = {"extend": extend, "factor": factor, "trained": trained, "plot": plot}
        _refuse_for_two(alone)
        _compare(config, other, length, layer_type, parity, as_json)
        return
    check_chart(plot, "--plot")
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
        words = replace_names(str(error), _NAMES)
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


def _refuse_for_two(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"--{name} is about one model; name one, or leave it out.")


def _compare(
    config: str,
    other: str,
    length: int | None,
    layer_type: str | None,
    parity: Parity | None,
    as_json: bool,
) -> None:
    """Print two models side by side."""
    from whorl.configs import inspection

    mistakes = None if parity is None else parity.value
    found = inspection.compare_models(
        *(
            inspection.inspect(each, length=length, layer_type=layer_type, parity=mistakes)
            for each in (config, other)
        )
    )
    from whorl.configs.inspection.tables import render_difference

    print_result(found, as_json, render_difference)


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
