"""What ``whorl extend`` does with weights: it tries every method on a text, and prints results."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

import whorl
from whorl._support.files import write_file_atomically
from whorl._support.words import quote

from . import INTERRUPTED
from ._options import check_chart, name_options
from ._output import open_progress_bar, print_json, print_page
from ._search import SearchedMethods, search_on_text
from ._training import format_seconds, open_training_bar

if TYPE_CHECKING:
    from whorl.extend.evaluation import EvaluationProgress, LoadedModel
    from whorl.lab.compare.html import ReportTable

__all__ = ["WeightsRequest", "evaluate_on_weights"]

_NAMES = {
    "model": "CONFIG",
    "to": "--to",
    "trained": "--trained",
    "trained=N": "--trained N",
    "methods": "--methods",
    "method": "--methods",
    "windows": "--windows",
    "texts": "--retrieval",
    "seed": "--seed",
    "minutes": "--minutes",
    "budget": "--budget",
    "force=True": "--force",
    "objective": "--search",
    "evaluations": "--evaluations",
    "raise minutes": "raise --minutes",
    "lower evaluations": "lower --evaluations",
}
#: Where the model is kept that is used if none is given.
_DEFAULT_MODEL = Path("runs") / "extend-default-model"


@dataclass(frozen=True)
class WeightsRequest:
    """What the options ask for.

    model: None for the one that whorl trains itself. search: settings of a search for factors.
    """

    model: str | None
    texts: Sequence[Path]
    to: str
    trained: int | None
    budget: str
    changes: dict[str, Any]
    minutes: float | None
    search: dict[str, Any] | None
    results: Path | None
    chart: Path | None
    force: bool
    as_json: bool

    def choose_folder(self, target: int) -> Path:
        """Where results are kept: by default a folder for each target."""
        from whorl.configs.names import get_model_name

        name = "default" if self.model is None else get_model_name(self.model)
        ending = "" if self.search is None else "-searched"
        return self.results or Path("runs") / f"extend-{name}-{target}{ending}"


def evaluate_on_weights(request: WeightsRequest) -> None:
    """Evaluate the methods on a model's weights, print tables, and keep results and report."""
    from whorl.lab import Interrupted

    check_chart(request.chart)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: save, then stop
    try:
        with name_options(_NAMES):
            folder, document, searched = _evaluate(request)
    except (KeyboardInterrupt, Interrupted):
        print("stopped; the same command goes on from what is there.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _write_reports(request, folder, document, searched)
    if request.as_json:
        print_json(document)
        return
    ending = [Text(f"kept in {folder}: results.json, report.html, report.md")]
    if request.model is None:
        ending.append(Text(f"the model is kept in {_DEFAULT_MODEL}"))
    parts = _render_document(document)
    parts += [] if searched is None else searched.render(document)
    print_page(*parts, "", *ending, *_suggest_writing(request.model, document))


def _evaluate(request: WeightsRequest) -> tuple[Path, dict[str, Any], SearchedMethods | None]:
    """Where results are kept, the document, and what a search found, if there was one."""
    from whorl.extend import evaluation, plan_extension

    test = evaluation.ExtensionTest.from_budget(request.budget, **request.changes)
    text = "\n\n".join(_read_text(path) for path in request.texts)
    loaded = _load(request)
    if not request.texts:
        text = evaluation.read_held_out_text()
    searched: SearchedMethods | None = None
    lengths: dict[str, Any] = {"to": request.to, "trained": request.trained}
    folder = request.choose_folder(plan_extension(loaded.config, **lengths).target)
    if request.search is not None:
        searched, text = search_on_text(
            loaded, text, request.search, folder=folder, force=request.force, **lengths
        )
    with open_progress_bar() as show:

        def report(moment: EvaluationProgress) -> None:
            left = moment.seconds_left
            words = "" if left is None else f", {format_seconds(left)} left"
            show(moment.done, moment.total, f"{moment.label}{words}")

        document = evaluation.evaluate_methods(
            loaded,
            text,
            test=test,
            folder=folder,
            force=request.force,
            minutes=request.minutes,
            progress=report,
            more=() if searched is None else searched.methods,
            **lengths,
        )
    if searched is not None:
        document["search"] = searched.describe(document)
    return folder, document, searched


def _load(request: WeightsRequest) -> LoadedModel:
    """The model, which is trained first if none is given."""
    from whorl.extend import evaluation

    if request.model is not None:
        return evaluation.load_model(request.model)
    if not (_DEFAULT_MODEL / "evaluation.json").exists():
        words = f"no MODEL: training a small one once, which is kept in {_DEFAULT_MODEL}"
        print(words, file=sys.stderr)
    with open_training_bar() as show:
        command = shlex.join(["whorl", *sys.argv[1:]])
        run = evaluation.train_default_model(
            _DEFAULT_MODEL, progress=show, force=request.force, command=command
        )
    return evaluation.load_model(run.folder)


def _write_reports(
    request: WeightsRequest,
    folder: Path,
    document: dict[str, Any],
    searched: SearchedMethods | None,
) -> None:
    from whorl.extend import evaluation

    command = shlex.join(["whorl", *sys.argv[1:]])
    page = evaluation.render_page(document, command=command)
    write_file_atomically(folder / "report.html", page.encode())
    markdown = evaluation.render_markdown(document)
    if searched is not None:
        markdown += f"\n{searched.write_verdict(document)}\n"
        if request.model is not None:
            searched.write_config(request.model, folder)
    write_file_atomically(folder / "report.md", markdown.encode())
    if request.chart is not None:
        whorl.plots.save(whorl.plots.extension(document), request.chart)


def _render_document(document: dict[str, Any]) -> list[RenderableType]:
    from whorl.extend.evaluation import report

    first, *others = report.write_verdict(document)
    found: list[RenderableType] = [Text(first, "bold"), *map(Text, others)]
    found += ["", Text(document["trained_why"])]
    for table in report.list_tables(document):
        found += ["", _render_table(table)]
        if table.note:
            found.append(Text(table.note, "dim"))
    notes = [Text(words, "dim") for words in report.describe_measurement(document)]
    return [*found, "", *notes]


def _render_table(table: ReportTable) -> Table:
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for n, head in enumerate(table.heads):
        folded = head if n == 0 else head.replace(" ", "\n", 1)  # so that words stay whole
        made.add_column(folded, justify="left" if n == 0 else "right", no_wrap=n <= 1)
    for n, row in enumerate(table.rows):
        made.add_row(*(Text(w, "bold" if (n, m) in table.bold else "") for m, w in enumerate(row)))
    return made


def _suggest_writing(model: str | None, document: dict[str, Any]) -> list[RenderableType]:
    """The command that writes the best method into config.json, if that is what should be done."""
    recipes = document["recipes"]
    if model is None or recipes is None or not (Path(model) / "config.json").is_file():
        return []
    command = ["whorl", "extend", model, "--to", str(document["target"])]
    command += ["--method", recipes["method"], "--write"]
    return [Text(f"to write it: {shlex.join(command)}")]


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
