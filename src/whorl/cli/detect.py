"""``whorl detect``: which layout the weights of a checkpoint have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import whorl

from ._output import JsonFlag, open_progress_bar, print_json, print_page
from ._sizes import HeadDim, Heads, KeyHeads, Patterns, RotaryDim, RotaryStart, parse_sizes

__all__ = ["UNCLEAR", "detect"]

UNCLEAR = 3

Source = typer.Argument(
    metavar="CHECKPOINT",
    help="A folder, a .safetensors file, its index, a .gguf file, or a model in the local Hugging"
    " Face cache.",
)


def detect(
    checkpoint: Annotated[Path, Source],
    pattern: Patterns = None,
    head_dim: HeadDim = None,
    heads: Heads = None,
    kv_heads: KeyHeads = None,
    rotary_dim: RotaryDim = None,
    rotary_start: RotaryStart = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell from the weights of q and k which layout they have: half or interleaved.

    Exit code 0 if they show one, 3 if they show none or several, 2 if they cannot be read.
    """
    from whorl.configs.names import resolve_model
    from whorl.weights.config_file import read_stated_layout

    checkpoint = resolve_model(checkpoint, "CHECKPOINT")
    patterns, stated = parse_sizes(pattern, head_dim, heads, kv_heads, rotary_dim, rotary_start)
    with open_progress_bar() as show:
        found = whorl.weights.detect(checkpoint, patterns=patterns, stated=stated, progress=show)
    said = read_stated_layout(checkpoint) if _has_config(checkpoint) else None
    if as_json:
        print_json({**found.to_dict(), "config": said})
    else:
        print_page(_render_table(found), Text(), *map(Text, _describe(found, said)))
    if found.layout is None:
        raise typer.Exit(UNCLEAR)


def _has_config(path: Path) -> bool:
    return path.suffix == ".gguf" or (path / "config.json").is_file()


def _render_table(found: whorl.weights.Detection) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("layer", overflow="fold")
    for name in ("half", "interleaved", "layout", "confidence"):
        table.add_column(name, justify="left" if name == "layout" else "right", no_wrap=True)
    for layer in found.layers:
        table.add_row(Text(layer.name), *_render_layer(layer))
    table.add_section()
    table.add_row(Text(found.name, "bold"), *_render_layer(found))
    return table


def _render_layer(finding: whorl.weights.LayerFinding) -> list[Text]:
    from whorl.weights.evidence import LAYOUTS

    z = [Text(f"{finding.z[layout]:+.1f}") for layout in LAYOUTS]
    if isinstance(finding, whorl.weights.Detection) and finding.mixed:
        return [*z, Text("mixed", "red"), Text("")]
    if finding.crossed is not None:
        return [*z, Text("q not as k", "red"), Text(f"{finding.confidence:.1%}")]
    if finding.layout is not None:
        return [*z, Text(finding.layout, "green"), Text(f"{finding.confidence:.1%}")]
    likelier = Text(f"{_describe_likelier(finding)}{finding.confidence:.1%}", "dim")
    return [*z, Text("can't tell", "dim"), likelier]


def _describe_likelier(finding: whorl.weights.LayerFinding) -> str:
    chances = finding.probabilities
    return "half " if chances.half >= chances.interleaved else "interleaved "


def _describe(found: whorl.weights.Detection, said: str | None) -> list[str]:
    lines = [
        "half, interleaved: standard deviations above pairings that no model has.",
        "confidence: probability of the likelier layout, which is named from 90% on.",
    ]
    if found.not_finite:
        bad = [layer.name for layer in found.layers if layer.not_finite]
        more = f" and {len(bad) - 3} more layers" if len(bad) > 3 else ""
        lines.append(
            f"Numbers of q and k that are NaN or infinite: {found.not_finite:,}, in"
            f" {', '.join(bad[:3])}{more}; their heads were left out."
        )
    if found.mixed:
        lines.append(f"Mixed: {found.in_words()}. No program can read all of them rightly.")
    elif found.crossed is not None:
        z = found.crossed_z[found.crossed]
        lines.append(
            f"q and k have different layouts: {found.crossed} ({z:+.1f}); one of them was converted"
            " without the other."
        )
    elif found.layout is None:
        lines.append("The weights show neither layout: untrained, hardly trained, or not rotary.")
    elif said is not None and said != found.layout:
        lines.append(f"The config stands for the {said} layout: it does not fit these weights.")
    elif said is not None:
        lines.append(f"The config stands for the {said} layout too.")
    return lines
