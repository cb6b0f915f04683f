"""``whorl generate``: let a trained run continue a text, with or without a cache."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from whorl._support.words import escape_controls

from ._options import make_length_option, name_options
from ._output import JsonFlag, open_progress_bar, print_json, print_page

__all__ = ["RunFolder", "generate"]


class CacheName(str, Enum):
    none = "none"
    dense = "dense"
    window = "window"
    sinks = "sinks"
    recomputed = "recomputed"


RunFolder = typer.Argument(metavar="RUN", help="The folder of a run, as whorl train wrote it.")
Prompt = typer.Option(help="Text to continue, of at least one token.")
Length = make_length_option("Tokens to add.")
Cache = typer.Option(
    help="What is remembered of earlier tokens: none reads the whole text again for each token,"
    " dense keeps all keys and gives the same tokens, window the latest keys, sinks the first few"
    " and the latest, recomputed reads only the window again."
)
Window = make_length_option(
    "Keys that a token sees, itself and the sinks included; else the trained length. Not for"
    " none and dense."
)
Sinks = typer.Option(help="How many of these keys are the first ones, with --cache sinks.")
Temperature = typer.Option(help="0 takes the likeliest token; 1 draws as the model predicts.")
Seed = typer.Option(help="Of the drawing; the same seed gives the same text.")

NAMES = {name: f"--{name}" for name in ("cache", "window", "sinks", "temperature", "seed")}


def generate(
    run: Annotated[Path, RunFolder],
    prompt: Annotated[str, Prompt],
    length: Annotated[int, Length] = 200,
    cache: Annotated[CacheName, Cache] = CacheName.dense,
    window: Annotated[int | None, Window] = None,
    sinks: Annotated[int, Sinks] = 4,
    temperature: Annotated[float, Temperature] = 0.0,
    seed: Annotated[int, Seed] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Continue a text with the model of a run.

    It prints the prompt and what follows it; bytes that are no text are shown as \ufffd. Past the
    trained length a dense cache meets positions that training did not contain; whorl stream
    measures what that does to the loss.
    """
    names = {**NAMES, "steps": "--length", "tokens": "--prompt", "data.tokenizer": "the tokenizer"}
    with name_options(names), open_progress_bar() as show:
        from whorl.lab.generate import continue_text

        found = continue_text(
            run,
            prompt,
            length,
            cache=None if cache is CacheName.none else cache.value,
            window=window,
            sinks=sinks,
            temperature=temperature,
            seed=seed,
            progress=lambda done, total: show(done, total, "tokens"),
        )
    if as_json:
        print_json(found)
        return
    print("\n".join(_escape_line(line) for line in found["text"].split("\n")))
    print_page("", Text(_describe(found), "dim"))


def _escape_line(line: str) -> str:
    """A line without control characters, but for tabs."""
    return "\t".join(map(escape_controls, line.split("\t")))


def _describe(found: dict[str, Any]) -> str:
    unit = found["unit"]
    past = found["prompt_tokens"] + found["new_tokens"] - found["trained_length"]
    words = f"{found['prompt_tokens']} {unit} of prompt, {found['new_tokens']} new"
    words += f"; cache {found['cache']}" + (f", {found['window']} keys" if found["window"] else "")
    return f"{words}; {past} {unit} past the trained length" if past > 0 else words
