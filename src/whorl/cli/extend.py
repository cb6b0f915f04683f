"""``whorl extend``: which method makes a model longer, what it costs, and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._options import make_length_option, name_options
from ._output import JsonFlag, print_json, print_page

__all__ = ["extend"]

Config = typer.Argument(
    metavar="CONFIG", help="config.json, its folder, or a preset such as qwen3-8b."
)
To = typer.Option(
    metavar="N, 128k, 4x", help="Tokens to extend to, or a multiple of the trained length."
)
Method = typer.Option(metavar="NAME", help="Write this method; else the recommended one.")
Trained = make_length_option("Tokens of training, where the config does not say.")
Write = typer.Option(
    "--write", help="Write it into config.json and keep the original beside it; then diagnose."
)
Out = typer.Option(metavar="FILE", help="Write the extended config to this new file instead.")

_NAMES = {"to": "--to", "method": "--method", "out": "--out", "trained": "--trained"}


def extend(
    config: Annotated[str, Config],
    to: Annotated[str, To],
    method: Annotated[str | None, Method] = None,
    trained: Annotated[int | None, Trained] = None,
    write: Annotated[bool, Write] = False,
    out: Annotated[Path | None, Out] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which method makes a model longer, what it costs short texts, and what to write.

    By angles alone: no weights are read and nothing is measured. Exit code 0, or 2 if the config
    cannot be read or an option is wrong.
    """
    if write and out is not None:
        raise ValueError("--write changes config.json, --out writes another file; choose one.")
    from whorl.extend import plan_extension, write_extension

    with name_options(_NAMES):
        plan = plan_extension(config, to=to, method=method, trained=trained)
        written = write_extension(plan, out) if write or out is not None else None
    if as_json:
        print_json({**plan.to_dict(), **({} if written is None else written.to_dict())})
        return
    from whorl.extend.tables import render_terminal

    print_page(*render_terminal(plan))
    if written is not None:
        from ._diagnosis import print_diagnosis

        copied = "" if written.original is None else f"; the original is {written.original}"
        print(f"\nwritten to {written.path}{copied}\nwhat the doctor says about it:")
        print_diagnosis(str(written.path), written.remaining, None)
