"""``whorl extend``: which method makes a model longer, what it costs, and what to write."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ._options import make_length_option, name_options, split_words
from ._output import JsonFlag, print_json, print_page

__all__ = ["extend"]

_WEIGHTS = "On the weights: with --text, or without CONFIG"


class ExtensionBudget(str, Enum):
    quick = "quick"
    full = "full"


Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, a preset such as qwen3-8b, or a model in the local Hugging Face"
    " cache; with --text a model with weights: its folder, its name in the cache, a GGUF file, or a"
    " run of whorl train. Without it, a small model that is trained once.",
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
    rich_help_panel=_WEIGHTS,
    help="Try the methods on the weights, by the loss of this text and by retrieval; repeat it.",
)
Methods = typer.Option(
    metavar="A,B", rich_help_panel=_WEIGHTS, help="Try only these methods; all by default."
)
Budget = typer.Option(
    rich_help_panel=_WEIGHTS,
    help="How much is read: full has four times as many windows, twice as many hidden texts at"
    " five depths instead of three.",
)
Windows = typer.Option(rich_help_panel=_WEIGHTS, help="Windows of the text [4, full 16].")
Retrieval = typer.Option(
    rich_help_panel=_WEIGHTS,
    help="Texts with something hidden at each depth, for each of three forms; 0 for none"
    " [2, full 4].",
)
Seed = typer.Option(rich_help_panel=_WEIGHTS, help="Of what is hidden, and of a search [0].")
Minutes = typer.Option(
    rich_help_panel=_WEIGHTS,
    help="Begin nothing that would end later, and say what is missing; the same command goes on. A"
    " search that would take longer is refused [60].",
)
Results = typer.Option(
    metavar="FOLDER",
    rich_help_panel=_WEIGHTS,
    help="Keep results and report here, and go on from them (runs/extend-MODEL-TARGET).",
)
Chart = typer.Option(
    metavar="FILE", rich_help_panel=_WEIGHTS, help="Draw them: .png, .svg, .html or .json."
)
Force = typer.Option(
    "--force", rich_help_panel=_WEIGHTS, help="Measure again what other settings gave."
)

Search = typer.Option(
    metavar="text|needles",
    rich_help_panel=_WEIGHTS,
    help="For small models: also search factors for LongRoPE on a third of the text, by its loss or"
    " by that of answers about hidden numbers.",
)
Evaluations = typer.Option(
    rich_help_panel=_WEIGHTS,
    help="Candidates that a search tries, and as many of YaRN [96].",
)

_NAMES = {
    **{name: f"--{name}" for name in ("to", "method", "out", "trained")},
    "out=FILE": "--out FILE",
    "trained=N": "--trained N",
}


def extend(
    to: Annotated[str, To],
    config: Annotated[str | None, Config] = None,
    method: Annotated[str | None, Method] = None,
    trained: Annotated[int | None, Trained] = None,
    write: Annotated[bool, Write] = False,
    out: Annotated[Path | None, Out] = None,
    text: Annotated[list[Path] | None, Texts] = None,
    methods: Annotated[str | None, Methods] = None,
    budget: Annotated[ExtensionBudget | None, Budget] = None,
    windows: Annotated[int | None, Windows] = None,
    retrieval: Annotated[int | None, Retrieval] = None,
    seed: Annotated[int | None, Seed] = None,
    minutes: Annotated[float | None, Minutes] = None,
    results: Annotated[Path | None, Results] = None,
    chart: Annotated[Path | None, Chart] = None,
    force: Annotated[bool, Force] = False,
    search: Annotated[str | None, Search] = None,
    evaluations: Annotated[int | None, Evaluations] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which method makes a model longer, what it costs short texts, and what to write.

    By angles alone: no weights are read and nothing is measured. With --text every method is tried
    on the weights, and the same command goes on after an interruption. Exit code 0, or 2 if the
    config cannot be read or an option is wrong.
    """
    names = split_words(methods)
    given: dict[str, Any] = {"methods": names and tuple(names), "windows": windows}
    given |= {"texts": retrieval, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    chosen = _choose_search(search, evaluations=evaluations, minutes=minutes, seed=seed)
    if text or config is None:
        _check_combination(config, write=write, out=out, method=method)
        from ._evaluation import WeightsRequest, evaluate_on_weights

        amount = (budget or ExtensionBudget.quick).value
        evaluate_on_weights(
            WeightsRequest(
                *(config, text or [], to, trained, amount, changes, minutes, chosen),
                *(results, chart, force, as_json),
            )
        )
        return
    if changes or force or any(x is not None for x in (budget, minutes, results, chart, chosen)):
        raise ValueError(
            "--methods, --budget, --windows, --retrieval, --seed, --minutes, --results, --chart,"
            " --search and --force are about weights; add --text FILE, or leave them out."
        )
    if write and out is not None:
        raise ValueError("--write changes config.json, --out writes another file; choose one.")
    _plan(config, to, method, trained, write=write, out=out, as_json=as_json)


def _plan(
    config: str,
    to: str,
    method: str | None,
    trained: int | None,
    *,
    write: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print the plan of a config, and write it if that was asked for."""
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


def _check_combination(config: str | None, **given: object) -> None:
    """Refuse options that an evaluation on weights would not use."""
    for name, value in given.items():
        if value and config is None:
            raise ValueError(f"--{name} writes a config, and there is none; name a CONFIG.")
        if value:
            raise ValueError(
                f"--{name} writes a config, and --text measures; run them one after the other."
            )


def _choose_search(objective: str | None, **given: object) -> dict[str, Any] | None:
    """The settings of a search; None without one."""
    if objective is None:
        if given["evaluations"] is not None:
            raise ValueError("--evaluations is about a search; add --search text, or leave it out.")
        return None
    return {
        "objective": objective,
        **{name: value for name, value in given.items() if value is not None},
    }
