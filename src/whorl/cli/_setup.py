"""Options that ``whorl train`` and ``whorl compare`` share, and how they change a config.

Each option is a type of a command's parameter: ``width: _setup.Width``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import whorl

from ._options import make_length_option, name_options

__all__ = ["CONFIG_NAMES", "build_config", "name_setting"]

_DATA = "Data"
_MODEL = "Model and training"

ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG.toml", help="Settings; options below win over it."),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        rich_help_panel=_DATA,
        help="A file or folder to train on, several times if you like; else the source of Python's"
        " standard library.",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", rich_help_panel=_DATA, help="A tokenizer.json; else bytes are tokens."
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_DATA,
        help="text, or a puzzle: passkey, copy, reverse, parity, recall.",
    ),
]
Length = Annotated[
    int | None, make_length_option("Tokens of a training sequence [128].", rich_help_panel=_MODEL)
]
Batch = Annotated[int | None, typer.Option(rich_help_panel=_MODEL, help="Sequences a step [16].")]
Steps = Annotated[int | None, typer.Option(rich_help_panel=_MODEL, help="Training steps [1800].")]
Layers = Annotated[int | None, typer.Option(rich_help_panel=_MODEL, help="Layers [2].")]
Width = Annotated[int | None, typer.Option(rich_help_panel=_MODEL, help="Model width [48].")]
Heads = Annotated[int | None, typer.Option(rich_help_panel=_MODEL, help="Attention heads [4].")]
Kind = Annotated[
    str | None,
    typer.Option(
        metavar="decoder|encoder",
        rich_help_panel=_MODEL,
        help="Predict the next token, or hidden ones.",
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(
        metavar="llama|roformer",
        rich_help_panel=_MODEL,
        help="Layers as in Llama, or RoFormer's, for an encoder.",
    ),
]
Attention = Annotated[
    str | None,
    typer.Option(metavar="softmax|linear", rich_help_panel=_MODEL, help="Kind of attention."),
]
QkNorm = Annotated[
    str | None,
    typer.Option(
        metavar="none|before|after",
        rich_help_panel=_MODEL,
        help="Normalize queries and keys before or after their rotation (none).",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Delete runs of other settings that are in the way.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="local|HOST:PORT",
        help="Train as tasks of Ray: one that is started here, or a cluster. Needs the extra ray.",
    ),
]

#: Learning rates, each chosen by the encoding unless it is given.
RATES = ("learning_rate", "encoding_learning_rate", "embedding_learning_rate")

#: Parameters of commands that change a config, by the table of the config that has them.
_SETTINGS = {
    "model": (
        "encoding",
        "layers",
        "width",
        "heads",
        "kv_heads",
        "kind",
        "architecture",
        "attention",
        "qk_norm",
    ),
    "data": ("files", "tokenizer", "task"),
    "training": ("length", "batch", "steps", "precision", "seed", *RATES),
}

#: Options for names in errors of the library; settings in a file are named as in TOML.
CONFIG_NAMES = {
    "data.files": "--data",
    "data.tokenizer": "--tokenizer",
    "force=True": "--force",
    "start.folder": "--from",
}


def build_config(
    file: Path | None, options: Mapping[str, Any], start: whorl.lab.RunConfig | None = None
) -> whorl.lab.RunConfig:
    """``start``, changed by a TOML file, changed by the parameters of a command.

    Options that are None were not given. Learning rates that are not given are those
    of the trials for the encoding. If the file or the option ``start`` names trained weights,
    their settings take the place of ``start``.
    """
    from whorl.lab.rates import choose_learning_rates
    from whorl.lab.toml_tables import read_toml

    in_file = read_toml(file) if file is not None else {}
    if (folder := _find_start(in_file, options)) is not None:
        start = whorl.lab.read_start(folder).settings
    tables = (start or whorl.lab.RunConfig()).to_dict()
    for default in RATES:
        del tables["training"][default]
    if folder is not None and _is_other_task(in_file, options):  # which makes its own tokens
        tables["data"] = {}
    if isinstance(in_file.get("training"), dict) and in_file["training"].get("stages"):
        for name in ("length", "batch", "steps"):  # these follow from the stages
            del tables["training"][name]
    for name, values in in_file.items():
        known = isinstance(values, dict) and name in tables
        tables[name] = {**tables[name], **values} if known else values
    for table, settings in _SETTINGS.items():
        given = {name: options[name] for name in settings if options.get(name) is not None}
        if isinstance(tables[table], dict):  # else it is refused below
            tables[table] |= given
    if options.get("start") is not None:
        tables["start"] = {"folder": folder}
    try:
        with name_options(_name_given(options)):
            config = whorl.lab.RunConfig.from_dict(tables)
        given, training = tables["training"], config.training
        chosen = choose_learning_rates(
            config.model.encoding, config.model.width, optimizer=training.optimizer
        )
        rates: dict[str, Any] = {name: rate for name, rate in chosen.items() if name not in given}
        training = replace(training, **rates)
        if "warmup" not in in_file.get("training", {}):  # a short run must reach its rate
            training = replace(training, warmup=min(training.warmup, training.steps // 10))
        return replace(config, training=training)
    except TypeError as error:  # a string where TOML should have a number, and so on
        raise ValueError(str(error)) from None


@contextmanager
def name_setting(options: Mapping[str, Any]) -> Iterator[None]:
    """Let an error that begins with a setting name the option, if that gave the setting."""
    try:
        yield
    except ValueError as error:
        first, space, rest = str(error).partition(" ")
        setting = first.rstrip(":")
        option = _name_given(options).get(setting, setting)
        raise ValueError(f"{option}{first[len(setting) :]}{space}{rest}") from None


def _name_given(options: Mapping[str, Any]) -> dict[str, str]:
    """Options in place of the settings that they set, for errors; others stay as in TOML."""
    names = {
        f"{table}.{name}": f"--{name.replace('_', '-')}"
        for table, settings in _SETTINGS.items()
        for name in settings
        if options.get(name) is not None
    }
    return names | ({"data.files": "--data"} if "data.files" in names else {})


def _find_start(in_file: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """The folder of the weights to start from: the option, or that of the file, or None."""
    if options.get("start") is not None:
        return str(options["start"])
    table = in_file.get("start")
    folder = table.get("folder") if isinstance(table, dict) else None
    return folder if isinstance(folder, str) and folder else None  # else it is refused below


def _is_other_task(in_file: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether the file or an option asks for a synthetic task."""
    table = in_file.get("data")
    found = options.get("task") or (table.get("task") if isinstance(table, dict) else None)
    return found not in (None, "text")
