"""The list of commands; each lives in the file of its name."""

from typing import Annotated

import typer

import whorl

from .bench import bench
from .compare import compare
from .info import info
from .train import train

__all__ = ["app"]

app = typer.Typer(
    help="Position encodings for PyTorch: which to choose, and how fast they are here.",
    epilog="Example: whorl compare",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"whorl {whorl.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


app.command(epilog="Example: whorl compare --encodings rope,alibi --seeds 3")(compare)
app.command(epilog="Example: whorl train --encoding rope --steps 1000 --export model")(train)
app.command(epilog="Example: whorl info --json")(info)
app.command(epilog="Example: whorl bench --quick --out bench.json --chart bench.png")(bench)
