"""What ``whorl extend`` does with weights: it tries every method on a text, and prints results."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

import whorl
from whorl._support.words import quote

from ._options import name_options
from ._output import open_progress_bar, print_json, print_page
from ._search import SearchedMethods, search_on_text
from ._training import format_seconds

__all__ = ["evaluate_on_text"]

_NAMES = {
    "to": "--to",
    "trained": "--trained",
    "methods": "--methods",
    "method": "--methods",
    "windows": "--windows",
    "passkeys": "--passkeys",
    "force=True": "--force",
    "objective": "--search",
    "evaluations": "--evaluations",
    "minutes": "--minutes",
    "seed": "--seed",
    "raise minutes": "raise --minutes",
    "lower evaluations": "lower --evaluations",
}


def evaluate_on_text(
    model: str,
    texts: Sequence[Path],
    *,
    folder: Path,
    chart: Path | None,
    as_json: bool,
    force: bool,
    settings: dict[str, Any],
    search: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Evaluate the methods on a model's weights, print tables, and keep results and report."""
    from whorl.extend import evaluation

    if chart is not None:
        whorl.plots.check_path(chart)
    text = "\n\n".join(_read_text(path) for path in texts)
    searched: SearchedMethods | None = None
    with name_options(_NAMES):
        test = evaluation.ExtensionTest(**settings)
        loaded = evaluation.load_model(model)
        if search is not None:
            searched, text = search_on_text(
                loaded, text, search, folder=folder, force=force, **options
            )
            options["more"] = searched.methods
        with open_progress_bar() as show:

            def report(moment: evaluation.EvaluationProgress) -> None:
                left = moment.seconds_left
                words = "" if left is None else f", {format_seconds(left)} left"
                show(moment.done, moment.total, f"{moment.label}{words}")

            document = evaluation.evaluate_methods(
                loaded, text, test=test, folder=folder, force=force, progress=report, **options
            )
    if searched is not None:
        document["search"] = searched.describe(document)
        searched.write_config(model, folder)
    from whorl._support.files import write_file_atomically

    said = "" if searched is None else f"\n{searched.write_verdict(document)}\n"
    page = evaluation.render_markdown(document) + said
    write_file_atomically(folder / "report.md", page.encode())
    if chart is not None:
        whorl.plots.save(whorl.plots.extension(document), chart)
    if as_json:
        print_json(document)
    else:
        parts = _render_document(document)
        parts += [] if searched is None else searched.render(document)
        parts += ["", Text(f"kept in {folder}")]
        print_page(*parts, *_suggest_writing(model, document))


def _render_document(document: dict[str, Any]) -> list[RenderableType]:
    from whorl.extend.evaluation import report

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("perplexity at", no_wrap=True)
    best = {n: report.find_best(document, n)[0] for n in document["lengths"]}
    for length in document["lengths"]:
        mark = "*" if length == document["trained"] else ""
        table.add_column(f"{length:,}{mark}", justify="right")
    has_shares = bool((document["retrieval"] or {}).get("shares"))
    for length in document["lengths"] if has_shares else ():
        table.add_column(f"passkey\n{length:,}", justify="right")
    for row in report.list_rows(document):
        cells = report.format_cells(document, row)
        styles = ["bold" if best[n] == row["name"] else "" for n in document["lengths"]]
        styles += [""] * (len(cells) - len(styles))
        words = [Text(cell, style) for cell, style in zip(cells, styles, strict=True)]
        table.add_row(row["name"], *words)
    first, second = report.write_verdict(document)
    notes = [Text(words, "dim") for words in report.describe_measurement(document)]
    return [Text(first, "bold"), Text(second), "", table, "", *notes]


def _suggest_writing(model: str, document: dict[str, Any]) -> list[RenderableType]:
    """The command that writes the best method into config.json, if that is what should be done."""
    from whorl.extend.evaluation import report
    from whorl.extend.evaluation.settings import PUBLISHED
    from whorl.extend.methods import list_methods

    best = report.find_best(document, document["target"])
    known = PUBLISHED not in best and best[0] in list_methods()
    if not known or not (Path(model) / "config.json").is_file():
        return []
    command = ["whorl", "extend", model, "--to", str(document["target"]), "--method", best[0]]
    return [Text(f"to write it: {shlex.join([*command, '--write'])}")]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"--text {str(path)!r} cannot be read: {error.strerror or error}."
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--text {str(path)!r} must be UTF-8; byte {error.start:,} is not:"
            f" {quote(error.reason)}."
        ) from None
