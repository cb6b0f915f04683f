"""``whorl finetune``: extend a model, and train it for the longer context."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from whorl._support.launch import is_main_process

from . import INTERRUPTED
from ._options import make_length_option, name_options
from ._output import JsonFlag, open_progress_bar, print_json, print_page
from ._training import format_seconds

__all__ = ["finetune"]

_TRAINING, _LONG = "Training", "Long contexts at less cost"

Model = typer.Argument(
    metavar="MODEL",
    help="A folder of transformers with safetensors, its name in the local Hugging Face cache, or a"
    " run of whorl train.",
)
Method = typer.Option(metavar="NAME", help="Method of extension: linear, ntk, yarn, ... (yarn).")
Factor = typer.Option(help="The target over the trained length.")
Texts = typer.Option(
    "--text",
    metavar="FILE",
    help="Text to train on; repeat it. A run can go without: it has its own.",
)
Out = typer.Option(
    "--out", metavar="FOLDER", help="New folder for the result (MODEL-METHOD-FACTORx)."
)
Trained = make_length_option("Tokens of training so far, where the config does not say.")
Length = make_length_option(
    "Tokens of a training sequence: else the target; the trained length with --positions or"
    " --drop-positions.",
    rich_help_panel=_TRAINING,
)
Steps = typer.Option(rich_help_panel=_TRAINING, help="Training steps.")
Batch = typer.Option(rich_help_panel=_TRAINING, help="Sequences in a forward pass.")
Accumulation = typer.Option(rich_help_panel=_TRAINING, help="Forward passes in a step.")
Rate = typer.Option(
    rich_help_panel=_TRAINING, help="Peak learning rate (2e-5 for transformers, 1e-3 for a run)."
)
Clip = typer.Option(rich_help_panel=_TRAINING, help="Largest norm of the gradients.")
Seed = typer.Option(rich_help_panel=_TRAINING, help="Of the order of the text.")
Precision = typer.Option(
    metavar="float32|bfloat16",
    rich_help_panel=_TRAINING,
    help="Of matrix products; weights and angles are float32.",
)
Attention = typer.Option(
    metavar="dense|shifted-sparse",
    rich_help_panel=_LONG,
    help="Attention while training; the result is dense in any case.",
)
Lora = typer.Option(
    metavar="RANK",
    rich_help_panel=_LONG,
    help="Train matrices of this rank in attention, embeddings and norms (LongLoRA).",
)
Positions = typer.Option(
    metavar="all|pose|random",
    rich_help_panel=_LONG,
    help="Positions of short sequences that cover the target: skipped in chunks, or at random.",
)
DropPositions = typer.Option(
    "--drop-positions",
    rich_help_panel=_LONG,
    help="Experimental: instead of a method, take the rotation away and train without it (DroPE).",
)
Validation = typer.Option(
    rich_help_panel=_TRAINING,
    help="Windows of held-out text that are read before and after; 0 for none [8].",
)
Shard = typer.Option(
    "--shard",
    rich_help_panel=_LONG,
    help="Share out the weights over the processes of torchrun or accelerate launch (FSDP2).",
)
Force = typer.Option("--force", help="Replace the result of another fine-tuning.")

_FLAGS = (
    *("method", "factor", "trained", "length", "steps", "batch", "accumulation", "precision"),
    *("clip", "seed", "attention", "lora", "positions", "validation", "out"),
)
_NAMES = {
    **{name: f"--{name}" for name in _FLAGS},
    "learning_rate": "--learning-rate",
    "drop_positions": "--drop-positions",
    "texts": "--text",
    "model": "MODEL",
    "force=True": "--force",
    "trained=N": "--trained N",
    "shard=True": "--shard",
    "lower learning_rate": "lower --learning-rate",
}


def finetune(
    model: Annotated[str, Model],
    method: Annotated[str | None, Method] = None,
    factor: Annotated[float, Factor] = 4.0,
    text: Annotated[list[Path] | None, Texts] = None,
    out: Annotated[Path | None, Out] = None,
    trained: Annotated[int | None, Trained] = None,
    length: Annotated[int | None, Length] = None,
    steps: Annotated[int, Steps] = 200,
    batch: Annotated[int, Batch] = 4,
    accumulation: Annotated[int, Accumulation] = 1,
    learning_rate: Annotated[float | None, Rate] = None,
    clip: Annotated[float, Clip] = 1.0,
    seed: Annotated[int, Seed] = 0,
    precision: Annotated[str, Precision] = "float32",
    attention: Annotated[str, Attention] = "dense",
    lora: Annotated[int | None, Lora] = None,
    positions: Annotated[str, Positions] = "all",
    drop_positions: Annotated[bool, DropPositions] = False,
    validation: Annotated[int | None, Validation] = None,
    shard: Annotated[bool, Shard] = False,
    force: Annotated[bool, Force] = False,
    as_json: JsonFlag = False,
) -> None:
    """Extend a model and train it for the longer context; the result is a new folder.

    Stop it whenever you like: the same command goes on with the same numbers. Under torchrun or
    accelerate launch, several processes share each batch (docs/scale.md).
    """
    chosen = method if drop_positions else method or "yarn"
    given = {**locals(), "method": chosen}
    options = {name: given[name] for name in (*_FLAGS[:-1], "learning_rate", "drop_positions")}
    label = "nope" if drop_positions else chosen
    from whorl.configs.names import get_model_name

    folder = out or Path("runs") / f"{get_model_name(model)}-{label}-{factor:g}x"
    from whorl import finetune as library

    main = is_main_process()
    try:
        with name_options(_NAMES), open_progress_bar() if main else nullcontext() as show:

            def report(moment: library.FineTuningProgress) -> None:
                left = f", {format_seconds(moment.seconds_left or 0.0)} left"
                if show is not None:
                    show(moment.done, moment.total, f"loss {moment.loss:.3f}{left}")

            found = library.finetune_model(
                model,
                text or [],
                library.FineTuning(**options),
                folder,
                force=force,
                shard=shard,
                progress=report,
                command=shlex.join(["whorl", *sys.argv[1:]]),
            )
    except _get_interrupted():
        if main:
            print(f"stopped; the same command goes on with {str(folder)!r}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if main and as_json:
        print_json(found)
    elif main:
        print_page(*_render_report(found))


def _get_interrupted() -> type[Exception]:
    from whorl.lab import Interrupted

    return Interrupted


def _render_report(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The losses before and after by length, and where the result is."""
    yield Text(
        f"{found['model']} from {found['trained']:,} to {found['target']:,} tokens:"
        f" {found['steps']} steps at {found['length']:,} tokens,"
        f" {found['trained_parameters']:,} parameters, {format_seconds(found['seconds'])}",
        "bold",
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in ("validation loss at", "extended", "fine-tuned"):
        table.add_column(head, justify="right")
    for length, before in found["loss_before"].items():
        table.add_row(f"{int(length):,}", f"{before:.3f}", f"{found['loss_after'][length]:.3f}")
    if found["loss_before"]:
        yield from ("", table, "")
    yield Text(f"written to {found['folder']}")
