"""The list of commands; each lives in the file of its name."""

from collections.abc import Callable
from inspect import cleandoc
from typing import Annotated

import typer

import whorl

from ._start import print_start
from .bench import bench
from .check import check
from .compare import compare
from .convert import convert
from .detect import detect
from .doctor import doctor
from .experiment import experiment
from .explain import explain
from .explore import explore
from .extend import extend
from .finetune import finetune
from .generate import generate
from .info import info
from .inspect import inspect
from .plan import plan
from .plot import plot
from .properties import properties
from .stream import stream
from .train import train

__all__ = ["app"]

app = typer.Typer(
    help="Position encodings for PyTorch: which to choose, and how fast they are here.",
    epilog="Example: whorl compare",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"whorl {whorl.__version__}")
        raise typer.Exit


@app.callback()
def _handle_root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print_start()


def _join_lines(command: Callable[..., None]) -> str:
    """The docstring with a line for each paragraph: typer would break lines where the source does.

    Lines that are indented stay, as in a table.
    """
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(p if "\n " in p else p.replace("\n", " ") for p in paragraphs)


# In the order of the help, which has a panel for each question that a user comes with.
_PANELS: dict[str, tuple[tuple[Callable[..., None], str], ...]] = {
    "Which encoding?": (
        (compare, "whorl compare --encodings rope,alibi --seeds 3"),
        (experiment, "whorl experiment base --budget quick"),
        (train, "whorl train --encoding rope --steps 1000 --export model"),
        (generate, 'whorl generate runs/rope --prompt "def read(" --length 300'),
        (stream, "whorl stream runs/rope --length 10x --chart stream.png"),
        (properties, "whorl properties --encodings rope,alibi,learned"),
    ),
    "How does it work?": (
        (explain, "whorl explain rope --position 3 --dim 6"),
        (plot, "whorl plot decay --out decay.png --length 4096"),
        (explore, "whorl explore llama-3.1-8b --runs runs/quick"),
    ),
    "What does this model do?": (
        (inspect, "whorl inspect llama-3.1-8b --extend yarn --factor 4"),
        (extend, "whorl extend qwen3-8b --to 128k"),
        (finetune, "whorl finetune runs/rope --method yarn --factor 4 --steps 200"),
        (plan, "whorl plan --parameters 7e9 --length 131072 --encoding rope"),
        (doctor, "whorl doctor model --length 131072 --strict"),
        (check, "whorl check rope.py:rotate --head-dim 128"),
        (detect, "whorl detect my-llama --json"),
        (convert, "whorl convert my-llama out --to interleaved --check"),
    ),
    "How fast is it here?": (
        (info, "whorl info --json"),
        (bench, "whorl bench --quick --out bench.json --chart bench.png"),
    ),
}
for _panel, _commands in _PANELS.items():
    for _command, _example in _commands:
        app.command(
            help=_join_lines(_command), epilog=f"Example: {_example}", rich_help_panel=_panel
        )(_command)
