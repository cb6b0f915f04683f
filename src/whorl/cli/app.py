"""The list of commands; each lives in the file of its name."""

from typing import Annotated

import typer

import whorl

from .bench import bench
from .info import info

__all__ = ["app"]

app = typer.Typer(
    help="Position encodings for PyTorch: what is installed, and how fast it is here.",
    epilog="Example: whorl info",
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


app.command(epilog="Example: whorl info --json")(info)
app.command(epilog="Example: whorl bench --quick --out bench.json --chart bench.png")(bench)
