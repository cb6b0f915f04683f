"""``whorl train``: one small model from text to results, resumed by the same command."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import whorl
from whorl._support.bounded_json import RESULTS, parse_json
from whorl._support.launch import is_main_process
from whorl._support.lengths import parse_length
from whorl._support.words import quote

from . import INTERRUPTED, _setup
from ._options import name_options, split_words
from ._output import JsonFlag, print_json, print_page
from ._setup import CONFIG_NAMES, build_config, name_setting
from ._training import open_training_bar, run_table

__all__ = ["train"]

Encoding = typer.Option(
    metavar="NAME", help="An encoding, or several: learned+rope, 'rope(base=100)'."
)
Set = typer.Option(
    "--set",
    metavar="KEY=VALUE",
    help="An option of the encoding, such as layout=interleaved; repeat it.",
)
Out = typer.Option("--out", metavar="FOLDER", help="Where the run is kept (runs/ENCODING).")
From = typer.Option(
    "--from",
    metavar="FOLDER",
    help="Start from the weights of this run, or of this folder that --export wrote. Settings that"
    " are not given are those of that run, except steps and learning rates.",
)
Rate = typer.Option(help="Peak learning rate of matrices; else the one tuned for the encoding.")
EncodingRate = typer.Option(help="Peak learning rate of the encoding's own parameters; else tuned.")
Export = typer.Option(
    metavar="FOLDER", help="Write the trained model in Hugging Face format (rope only)."
)
Scalings = typer.Option(metavar="A,B", help="Also evaluate with these put in, such as yarn.")
Threads = typer.Option(help="Threads; the same number gives the same numbers again.")
_SEVERAL = "Large models and several processes (torchrun, accelerate launch)"
Shard = typer.Option(
    "--shard",
    rich_help_panel=_SEVERAL,
    help="Share out the weights over the processes too (FSDP2), for models that fit in none.",
)
Passes = typer.Option(
    rich_help_panel=_SEVERAL,
    help="Forward passes that share the sequences of a step, for less memory [1].",
)
ShowConfig = typer.Option("--show-config", help="Print the settings as TOML, and stop.")

_NAMES = {name: f"--{name}" for name in ("threads", "scalings", "batch", "passes")}
_NAMES |= {"precision": "--precision", "shard=True": "--shard"}


def train(
    config: _setup.ConfigFile = None,
    encoding: Annotated[str | None, Encoding] = None,
    set_: Annotated[list[str] | None, Set] = None,
    out: Annotated[Path | None, Out] = None,
    start: Annotated[str | None, From] = None,
    files: _setup.Files = None,
    tokenizer: _setup.Tokenizer = None,
    task: _setup.Task = None,
    length: _setup.Length = None,
    batch: _setup.Batch = None,
    steps: _setup.Steps = None,
    layers: _setup.Layers = None,
    width: _setup.Width = None,
    heads: _setup.Heads = None,
    kv_heads: Annotated[int | None, typer.Option(help="Key heads, for grouped queries.")] = None,
    kind: _setup.Kind = None,
    architecture: _setup.Architecture = None,
    attention: _setup.Attention = None,
    qk_norm: _setup.QkNorm = None,
    learning_rate: Annotated[float | None, Rate] = None,
    encoding_learning_rate: Annotated[float | None, EncodingRate] = None,
    precision: Annotated[str | None, typer.Option(metavar="float32|bfloat16")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and the order of data.")] = None,
    scalings: Annotated[str | None, Scalings] = None,
    threads: Annotated[int | None, Threads] = None,
    export: Annotated[Path | None, Export] = None,
    shard: Annotated[bool, Shard] = False,
    passes: Annotated[int, Passes] = 1,
    force: _setup.Force = False,
    as_json: JsonFlag = False,
    show_config: Annotated[bool, ShowConfig] = False,
) -> None:
    """Train one small model and judge it at 0.5 to 16 times its trained length.

    Stop it whenever you like: the same command goes on with the same numbers. To go on from
    trained weights, at another length or with another encoding: --from runs/rope --length 512.
    To train at several lengths, give CONFIG.toml several stages (docs/lab.md). Under torchrun or
    accelerate launch, several processes share each step (docs/scale.md).
    """
    given = config is not None or start is not None
    options = locals() | {"encoding": _read_encoding(encoding, set_ or [], given)}
    settings = build_config(config, options)
    if show_config:
        print(settings.to_toml(), end="")
        return
    if export is not None:
        with name_options({"folder": "--export"}):
            whorl.lab.check_export(settings, export)
    from whorl.lab.encodings import format_title
    from whorl.lab.specs import name_folder

    title = name_folder(format_title(settings.model.encoding))
    if settings.start.folder is not None:  # another folder than that of the weights
        title += f"-from-{Path(settings.start.folder).resolve().name}"
    folder = out or Path("runs") / title
    chosen = tuple(split_words(scalings) or ())
    try:
        names = name_options({**_NAMES, **CONFIG_NAMES})
        with (
            names,
            name_setting(options),
            open_training_bar() as show,
            whorl.lab.use_threads(threads),
        ):
            run = whorl.lab.train(
                settings,
                folder,
                scalings=chosen,
                progress=show,
                force=force,
                command=shlex.join(["whorl", *sys.argv[1:]]),
                shard=shard,
                passes=passes,
            )
    except whorl.lab.Interrupted:
        if is_main_process():
            print(f"stopped; the same command goes on from {str(folder)!r}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if not is_main_process():  # the first one exports and prints
        return
    if export is not None:
        whorl.lab.export_run(run, export)
    results = whorl.lab.collect_results(run, chosen)
    if as_json:
        print_json(results)
    else:
        print_page(run_table(results))


def _read_encoding(
    name: str | None, options: list[str], given: bool
) -> str | dict[str, Any] | None:
    """The encoding as a config has it: a name, or a table where it has options.

    given: whether a file or trained weights name an encoding already.
    """
    if not options:
        return name
    if name is None and given:
        raise ValueError("--set goes with --encoding; or write the options into the file.")
    from whorl.lab.specs import parse_spec

    parts = parse_spec(name or "rope")
    # A composition is refused below, because options belong to one encoding.
    table: dict[str, Any] = parts[0] if len(parts) == 1 else {"name": name}
    for text in options:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or key in table:
            raise ValueError(
                "--set takes KEY=VALUE, each key once, such as --set layout=interleaved;"
                f" got {quote(text)}."
            )
        table[key] = _parse_value(key, value)
    return table


def _parse_value(key: str, text: str) -> Any:
    """An option's value: JSON, or a word; of keys that are lengths also 128k and 1e5."""
    from whorl.lab.specs import is_length

    if is_length(key):
        with suppress(ValueError):  # none that is known: let the encoding refuse it
            return parse_length(text)
    try:
        return parse_json(text, RESULTS)
    except ValueError:
        return text
