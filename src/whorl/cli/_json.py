"""One JSON document on standard output, which is all that ``--json`` may put there."""

import json
import sys
from typing import Annotated, Any

import typer

__all__ = ["JsonFlag", "print_json"]

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def print_json(document: Any) -> None:
    """Print ``document``, indented."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")
