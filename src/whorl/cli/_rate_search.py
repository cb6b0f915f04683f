"""What ``whorl compare --search`` adds: trials first, a table of them, and TOML to paste."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from whorl._support.words import quote

if TYPE_CHECKING:
    from whorl.lab.compare.search import SearchResult
    from whorl.lab.compare.spaces import SearchedSpec

__all__ = ["check_search", "fill_specs", "render_search"]


def fill_specs(specs: Sequence[str]) -> tuple[list[str], list[SearchedSpec]]:
    """The specs with a value for each option that is searched, and what is searched."""
    from whorl.lab.compare.spaces import SearchedSpec

    searched = [SearchedSpec(text) for text in specs]
    pairs = zip(specs, searched, strict=True)
    return [one.fill(one.example) if one.is_searched else text for text, one in pairs], searched


def check_search(
    search: int | None, searched: Sequence[SearchedSpec], others: Mapping[str, Any]
) -> None:
    """Refuse a range without a search, and a search with options that it contradicts."""
    if search is None:
        if ranges := [spec.text for spec in searched if spec.is_searched]:
            raise ValueError(
                f"--encodings: {quote(ranges[0])} has an option to search; add --search 10, or give"
                " it one value."
            )
        return
    for option, why in (
        ("--learning-rates", "a search chooses the learning rates"),
        ("--minutes", "the trials take as long as they take"),
    ):
        if others[option] is not None:
            raise ValueError(f"--search: leave {option} out, because {why}.")


def render_search(found: SearchResult) -> list[RenderableType]:
    """All trials, the best of each encoding in bold, and what to write for it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("encoding", no_wrap=True)
    for head in ("trial", "learning rate", "own rate", "loss"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, trials in found.trials.items():
        for trial in trials:
            own = trial.rates.get("encoding_learning_rate")
            table.add_row(
                Text(trial.encoding, overflow="ignore"),
                str(trial.number),
                f"{trial.rates['learning_rate']:g}",
                "" if own is None else f"{own:g}",
                f"{trial.loss:.4f}" if math.isfinite(trial.loss) else "diverged",
                style="bold" if trial == found.best[name] else "",
            )
    parts: list[RenderableType] = [
        Text("Trials, with the loss on the validation text; the best of each encoding is bold"),
        table,
    ]
    for name, trial in found.best.items():
        lines = f"# {name}: loss {trial.loss:.4f}\n{trial.to_toml()}"
        parts += ["", Text(lines, no_wrap=True, overflow="ignore")]
    return [*parts, ""]
