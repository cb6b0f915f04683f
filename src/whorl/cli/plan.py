"""``whorl plan``: what a model needs at a length, computed on paper."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from ._options import make_length_option, name_options
from ._output import JsonFlag, print_json, print_page

__all__ = ["plan"]

_SIZES = "Sizes of the model, instead of those of a config"
_DEVICE = "The device"


class Attention(str, Enum):
    softmax = "softmax"
    linear = "linear"


class Precision(str, Enum):
    bfloat16 = "bfloat16"
    float32 = "float32"


Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, a preset such as llama-3.1-8b, or a model in the local Hugging"
    " Face cache; else --parameters.",
)
Length = make_length_option("Tokens of a sequence, in training and when generating.")
Parameters = typer.Option(metavar="N, 7e9", help="Trained numbers; other sizes follow from it.")
EncodingName = typer.Option(
    "--encoding", metavar="NAME", help="By name, or several joined by +; rope by default."
)
Kind = typer.Option(help="linear keeps a state of constant size instead of keys.")
Window = make_length_option("Keys that a query sees at most, in every layer.")
Batch = typer.Option(help="Sequences at once.")
Numbers = typer.Option(help="Of weights, activations and cache.")
Name = typer.Option(
    metavar="NAME", rich_help_panel=_DEVICE, help="h100, h200, a100-80, a100-40, l40s or cpu."
)
Memory = typer.Option(metavar="GB", rich_help_panel=_DEVICE, help="Memory of one device.")
Flops = typer.Option(
    metavar="N, 989e12", rich_help_panel=_DEVICE, help="Operations in a second, as published."
)
Bandwidth = typer.Option(
    metavar="N, 3.35e12", rich_help_panel=_DEVICE, help="Bytes of memory in a second."
)
Link = typer.Option(
    metavar="N, 450e9",
    rich_help_panel=_DEVICE,
    help="Bytes in a second to other devices, in one direction; of the slowest link.",
)
Efficiency = typer.Option(
    metavar="0..1",
    rich_help_panel=_DEVICE,
    help="The share of --flops that is reached; 0.4 by default.",
)
Layers = typer.Option(rich_help_panel=_SIZES, help="Layers.")
Width = typer.Option(rich_help_panel=_SIZES, help="Width of the model.")
Heads = typer.Option(rich_help_panel=_SIZES, help="Heads of queries.")
KeyHeads = typer.Option("--kv-heads", rich_help_panel=_SIZES, help="Heads of keys.")
Vocabulary = typer.Option(rich_help_panel=_SIZES, help="Entries of the vocabulary.")

_OPTIONS: tuple[str, ...] = (
    "length",
    "parameters",
    "encoding",
    "attention",
    "window",
    "batch",
    "precision",
)
_OPTIONS += ("device", "memory", "flops", "bandwidth", "link", "efficiency")
_OPTIONS += ("layers", "width", "heads")
_NAMES = {name: f"--{name}" for name in (*_OPTIONS, "vocabulary")} | {"kv_heads": "--kv-heads"}


def plan(
    length: Annotated[int, Length],
    config: Annotated[str | None, Config] = None,
    parameters: Annotated[float | None, Parameters] = None,
    encoding: Annotated[str | None, EncodingName] = None,
    attention: Annotated[Attention, Kind] = Attention.softmax,
    window: Annotated[int | None, Window] = None,
    batch: Annotated[int, Batch] = 1,
    precision: Annotated[Precision, Numbers] = Precision.bfloat16,
    device: Annotated[str, Name] = "h100",
    memory: Annotated[float | None, Memory] = None,
    flops: Annotated[float | None, Flops] = None,
    bandwidth: Annotated[float | None, Bandwidth] = None,
    link: Annotated[float | None, Link] = None,
    efficiency: Annotated[float | None, Efficiency] = None,
    layers: Annotated[int | None, Layers] = None,
    width: Annotated[int | None, Width] = None,
    heads: Annotated[int | None, Heads] = None,
    kv_heads: Annotated[int | None, KeyHeads] = None,
    vocabulary: Annotated[int | None, Vocabulary] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what a model needs at a length: memory, cache, devices, sharding, tokens per second.

    Computed from sizes by stated formulas; nothing is measured or loaded. Training: weights,
    gradients and AdamW over the fewest devices (FSDP2), sequences over several of them where one
    does not hold its activations. Serving: weights and cache over the fewest devices by heads.

    Exit code 0, or 2 if an option is wrong.
    """
    from whorl.plan import plan_model
    from whorl.plan.page import render_lines

    if memory is not None and not memory > 0:
        raise ValueError(f"--memory must be above 0 GB; got {memory:g}.")
    numbers: dict[str, Any] = {"flops": flops, "bandwidth": bandwidth, "link": link}
    numbers["efficiency"] = efficiency
    numbers |= {"layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads}
    with name_options(_NAMES):
        found = plan_model(
            config,
            length=length,
            parameters=parameters,
            encoding=encoding,
            attention=attention.value,
            window=window,
            batch=batch,
            precision=precision.value,
            device=device,
            memory=None if memory is None else memory * 1e9,
            vocabulary=vocabulary,
            **numbers,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        print_page("\n".join(render_lines(found)))
