"""``whorl extend``: which method makes a model longer, what it costs, and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._options import make_length_option, name_options, split_words
from ._output import JsonFlag, print_json, print_page

__all__ = ["extend"]

Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, or a preset such as qwen3-8b; with --text a model with weights:"
    " its folder, a GGUF file, or a run of whorl train.",
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
Texts = typer.Option(
    "--text",
    metavar="FILE",
    help="Also try the methods on the weights, by the loss of this text; repeat it.",
)
Methods = typer.Option(metavar="A,B", help="With --text: try only these methods.")
Windows = typer.Option(help="With --text: read so many windows of the text [4].")
Passkeys = typer.Option(help="With --text: also hide so many numbers at each of three depths [0].")
Results = typer.Option(
    metavar="FOLDER",
    help="With --text: keep results here, and go on from them (runs/extend-MODEL).",
)
Chart = typer.Option(metavar="FILE", help="With --text: draw them: .png, .svg, .html or .json.")
Force = typer.Option("--force", help="With --text: measure again what other settings gave.")
Search = typer.Option(
    metavar="text|needles",
    help="With --text, for small models: also search factors for LongRoPE on a third of the text,"
    " by its loss or by that of answers about hidden numbers.",
)
Evaluations = typer.Option(help="With --search: try so many candidates, and so many of YaRN [96].")
Minutes = typer.Option(help="With --search: refuse a search that would take longer [60].")
Seed = typer.Option(help="With --search: of its random numbers [0].")

_NAMES = {"to": "--to", "method": "--method", "out": "--out", "trained": "--trained"}


def extend(
    config: Annotated[str, Config],
    to: Annotated[str, To],
    method: Annotated[str | None, Method] = None,
    trained: Annotated[int | None, Trained] = None,
    write: Annotated[bool, Write] = False,
    out: Annotated[Path | None, Out] = None,
    text: Annotated[list[Path] | None, Texts] = None,
    methods: Annotated[str | None, Methods] = None,
    windows: Annotated[int | None, Windows] = None,
    passkeys: Annotated[int | None, Passkeys] = None,
    results: Annotated[Path | None, Results] = None,
    chart: Annotated[Path | None, Chart] = None,
    force: Annotated[bool, Force] = False,
    search: Annotated[str | None, Search] = None,
    evaluations: Annotated[int | None, Evaluations] = None,
    minutes: Annotated[float | None, Minutes] = None,
    seed: Annotated[int | None, Seed] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which method makes a model longer, what it costs short texts, and what to write.

    By angles alone: no weights are read and nothing is measured. With --text every method is tried
    on the weights, and the same command goes on after an interruption. Exit code 0, or 2 if the
    config cannot be read or an option is wrong.
    """
    names = split_words(methods)
    given = {"methods": names and tuple(names), "windows": windows, "passkeys": passkeys}
    settings = {name: value for name, value in given.items() if value is not None}
    chosen = _choose_search(search, evaluations=evaluations, minutes=minutes, seed=seed)
    if text:
        _check_combination(write=write, out=out, method=method)
        from ._evaluation import evaluate_on_text

        ending = "" if chosen is None else "-searched"
        evaluate_on_text(
            config,
            text,
            folder=results or Path("runs") / f"extend-{Path(config).resolve().stem}{ending}",
            chart=chart,
            as_json=as_json,
            force=force,
            settings=settings,
            search=chosen,
            to=to,
            trained=trained,
        )
        return
    if settings or results is not None or chart is not None or force or chosen is not None:
        raise ValueError(
            "--methods, --windows, --passkeys, --results, --chart, --force and --search are about"
            " weights; add --text FILE, or leave them out."
        )
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


def _check_combination(**given: object) -> None:
    """Refuse options that --text would not use."""
    for name, value in given.items():
        if value:
            raise ValueError(
                f"--{name} writes a config, and --text measures; run them one after the other."
            )


def _choose_search(objective: str | None, **given: object) -> dict[str, object] | None:
    """The settings of a search; None without one, and then refuse settings of it."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if objective is not None:
        return {"objective": objective, **chosen}
    if chosen:
        raise ValueError(
            f"--{next(iter(chosen))} is about a search; add --search text, or leave it out."
        )
    return None
