"""What ``whorl train`` shows: a bar while it runs, a table at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

import whorl
from whorl._support.launch import is_main_process

__all__ = ["format_seconds", "open_training_bar", "run_table"]

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def open_training_bar() -> Iterator[Callable[[whorl.lab.TrainingProgress], None]]:
    """A function that shows a ``TrainingProgress`` as a bar or in lines on standard error."""
    if not is_main_process():
        yield _show_nothing
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _print_lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None, state="")

        def show(moment: whorl.lab.TrainingProgress) -> None:
            if moment.note:
                progress.console.print(Text(f"note: {moment.note}"))
            progress.update(
                task,
                description=moment.phase,
                completed=moment.done,
                total=moment.total,
                state=_describe_moment(moment),
            )

        yield show


def format_seconds(seconds: float) -> str:
    """Seconds as people read them: 48 s, 3:05 min, 2:10 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def run_table(found: Mapping[str, Any]) -> Group:
    """Loss and accuracy by length, two lines per evaluation, and what the run cost."""
    lengths = list(found["results"][0]["by_length"])
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("at tokens")
    for length in lengths:
        trained = int(length) == found["length"]
        table.add_column(f"{length}*" if trained else length, justify="right")
    forms = {"loss": ".3f", "accuracy": ".1%"}
    first = found["measure"]
    for result in found["results"]:
        for measure in sorted(forms, key=lambda name: name != first):
            values = (result["by_length"][length][measure] for length in lengths)
            name = Text(result["name"] if measure == first else "")
            table.add_row(
                name, measure, *(_format_number(value, forms[measure]) for value in values)
            )
    cost = (
        f"* trained length. {found['parameters']:,} parameters, {format_seconds(found['seconds'])},"
        f" {found['tokens_per_second']:,.0f} tokens/s, {found['memory_mb']:.0f} MB;"
        f" learning rate {found['learning_rate']:g}."
    )
    parts: list[RenderableType] = [table, "", Text(cost)]
    if found.get("stages"):
        parts = [_build_stage_table(found["stages"]), "", *parts]
    if found.get("start"):
        parts.append(Text(f"{whorl.lab.describe_start(found['start'])}."))
    return Group(*parts, Text(f"kept in {found['folder']}"))


def _build_stage_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    """Loss and accuracy on validation text after each stage, at the length of the stage."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in ("stage", "length", "batch", "steps", "loss", "accuracy"):
        table.add_column(head, justify="right")
    for one in stages:
        counts = (str(one[name]) for name in ("stage", "length", "batch", "steps"))
        loss = _format_number(one["loss"], ".3f")
        table.add_row(*counts, loss, _format_number(one["accuracy"], ".1%"))
    return table


def _format_number(value: float | None, form: str) -> str:
    return "\u2013" if value is None else format(value, form)


def _print_lines(console: Console) -> Callable[[whorl.lab.TrainingProgress], None]:
    last = 0.0

    def show(moment: whorl.lab.TrainingProgress) -> None:
        nonlocal last
        if moment.note:
            console.print(Text(f"note: {moment.note}"))
            return
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or moment.done == moment.total:
            last = time.monotonic()
            state = (
                f"{moment.phase} {moment.done}/{moment.total} {_describe_moment(moment)}".rstrip()
            )
            console.print(Text(state))

    return show


def _show_nothing(moment: whorl.lab.TrainingProgress) -> None:
    pass


def _describe_moment(moment: whorl.lab.TrainingProgress) -> str:
    words = []
    if moment.loss is not None:
        words.append(f"loss {moment.loss:.3f}")
    if moment.tokens_per_second is not None:
        words.append(f"{moment.tokens_per_second:,.0f} tokens/s")
    if moment.seconds_left is not None:
        words.append(f"{format_seconds(moment.seconds_left)} left")
    return "  ".join(words)
