"""Options that ``whorl detect`` and ``whorl convert`` share: names and sizes of q and k."""

from __future__ import annotations

from typing import Annotated

import typer

import whorl

from ._options import name_options

__all__ = ["HeadDim", "Heads", "KeyHeads", "Patterns", "RotaryDim", "RotaryStart", "parse_sizes"]

_PANEL = "What config.json does not say"

Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        metavar="ROLE=REGEX",
        rich_help_panel=_PANEL,
        help="Tensors whose name the regex finds are q, k, concatenated, grouped, codegen (fused q,"
        " k, v) or leave; several times if you like.",
    ),
]
HeadDim = Annotated[int | None, typer.Option(rich_help_panel=_PANEL, help="Channels of a head.")]
Heads = Annotated[int | None, typer.Option(rich_help_panel=_PANEL, help="Query heads.")]
KeyHeads = Annotated[
    int | None, typer.Option("--kv-heads", rich_help_panel=_PANEL, help="Key heads.")
]
RotaryDim = Annotated[
    int | None, typer.Option(rich_help_panel=_PANEL, help="Rotated channels of a head (all).")
]
RotaryStart = Annotated[
    int | None, typer.Option(rich_help_panel=_PANEL, help="The first rotated channel [0].")
]


#: Names of ``Stated`` in errors, and the options.
_NAMES = {
    "head_dim": "--head-dim",
    "num_heads": "--heads",
    "num_kv_heads": "--kv-heads",
    "rotary_dim": "--rotary-dim",
    "rotary_start": "--rotary-start",
    "pattern": "--pattern",
}


def parse_sizes(
    patterns: list[str] | None,
    head_dim: int | None,
    heads: int | None,
    kv_heads: int | None,
    rotary_dim: int | None,
    rotary_start: int | None,
) -> tuple[list[whorl.weights.Pattern], whorl.weights.Stated]:
    """The options as the library takes them."""
    with name_options(_NAMES):
        stated = whorl.weights.Stated(head_dim, heads, kv_heads, rotary_dim, rotary_start)
        return [whorl.weights.parse_pattern(text) for text in patterns or []], stated
