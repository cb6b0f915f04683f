"""``whorl check``: judge and name a rotary function by what it does."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import whorl
from whorl._support.words import quote, suggest_name

from ._output import JsonFlag, print_json

__all__ = ["WRONG", "check"]

#: Exit code where something is wrong with the function.
WRONG = 3


class Kind(str, Enum):
    x = "x"
    qk = "qk"
    cos_sin = "cos_sin"


Function = typer.Argument(metavar="MODULE:FUNCTION", help="my.model:apply_rope, or rope.py:rotate.")
HeadDim = typer.Option("--head-dim", min=2, help="Channels of one head.")
Kinds = typer.Option(help="fn(x, positions), fn(q, k, positions) or fn(q, k, cos, sin).")
Base = typer.Option(help="The base that is meant, where it is an unusual one.")
Only = typer.Option("--identify", help="Only say what it is.")


def check(
    function: Annotated[str, Function],
    head_dim: Annotated[int, HeadDim] = 64,
    kind: Annotated[Kind, Kinds] = Kind.x,
    base: Annotated[float | None, Base] = None,
    identify: Annotated[bool, Only] = False,
    as_json: JsonFlag = False,
) -> None:
    """Is a rotary function right, and which is it? Measured by calling it.

    It takes and gives NumPy arrays or torch tensors [B, H, T, D]. The module is imported, so its
    code runs. Exit code: 0 nothing is wrong, 3 something is, 2 there is no such function.
    """
    from whorl.functions.text import render_identification, render_report

    if base is not None and not base > 0:
        raise ValueError(f"--base must be above 0; got {base:g}.")
    fn, width = load(function), min(shutil.get_terminal_size().columns, 120)
    if identify:
        found = whorl.functions.identify(fn, head_dim, kind=kind.value)
        if as_json:
            print_json(found.to_dict())
        else:
            print(render_identification(found, width))
        return
    report = whorl.functions.check(fn, head_dim, kind=kind.value, base=base)
    if as_json:
        print_json(report.to_dict())
    else:
        print(render_report(report, width))
    raise typer.Exit(0 if report.ok else WRONG)


def load(text: str) -> Callable[..., Any]:
    """The function that MODULE:FUNCTION names; a module by name or by file."""
    module, colon, path = text.rpartition(":")
    if not colon or not module or not path:
        raise ValueError(
            f"check takes MODULE:FUNCTION, such as my.model:apply_rope; got {quote(text)}."
        )
    found: Any = _import_module(module)
    for name in path.split("."):
        if not hasattr(found, name):
            hint = suggest_name(name, [n for n in dir(found) if not n.startswith("_")])
            raise ValueError(f"{module} has no {quote(name)}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{text} is no function; got {type(found).__name__}.")
    function: Callable[..., Any] = found
    return function


def _import_module(name: str) -> Any:
    try:
        if not name.endswith(".py"):
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(name)
        sys.path.insert(0, str(Path(name).resolve().parent))  # as python itself does for a script
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None:
            raise ValueError(f"cannot import {name}.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except Exception as error:  # whatever their module raises
        raise ValueError(f"cannot import {name}: {type(error).__name__}: {error}") from None
