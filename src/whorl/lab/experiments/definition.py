"""What an experiment is: rows that differ in one thing, and the numbers that compare them.

The file NAME.toml has the question, the rows and the settings of each budget. The file NAME.py has
an ``Experiment``: what its rows are (training runs, unless it brings a function that runs one), and
what is computed from their results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whorl.lab.config import RunConfig
from whorl.lab.trainer import TrainingProgress

from .results import RowMeasurement, RowResults

__all__ = [
    "BudgetName",
    "CurveLabels",
    "Experiment",
    "LineStyle",
    "MeasureLabel",
    "ResultTable",
    "RowRequest",
    "Tables",
]

BudgetName = Literal["smoke", "quick", "standard"]
#: Tables of options of a row, as in a TOML file: {"model": {"width": 48}, ...}.
Tables = dict[str, dict[str, Any]]

#: Differences of losses below this many nats count as ties.
_TIED_NATS = 0.05


@dataclass(frozen=True)
class MeasureLabel:
    """A number that every run of an experiment has.

    id: its key, such as "loss@4"; measures with the same word before @ and an ``x`` are drawn as a
    line. label: words after "the", such as "loss at 512 bytes". tied: differences that are surely
    smaller count as ties. accuracy: a share from 0 to 1 of which more is better. section: title of
    tables of its own, for a measure that must not stand beside others.
    """

    id: str
    label: str
    x: float | None = None
    tied: float = _TIED_NATS
    accuracy: bool = False
    section: str = ""

    @property
    def quantity(self) -> str:
        return self.id.partition("@")[0]

    def format_value(self, value: float | None) -> str:
        if value is None or value != value:
            return "\u2013"
        return f"{100 * value:.1f} %" if self.accuracy else f"{value:.3f}"

    def format_difference(self, value: float) -> str:
        return f"{100 * value:.1f} points" if self.accuracy else f"{value:.3f}"


@dataclass(frozen=True)
class LineStyle:
    """How the lines of a row are drawn: rows with the same hue have one colour; dash 0 is solid."""

    hue: str
    dash: int = 0


@dataclass(frozen=True)
class CurveLabels:
    """Title and axes of a chart with a line for each row.

    mark: a vertical line at this x, with these words. log: a logarithmic x axis.
    """

    title: str
    x: str
    y: str
    subtitle: str = ""
    accuracy: bool = False
    log: bool = False
    mark: tuple[int, str] | None = None


@dataclass(frozen=True)
class ResultTable:
    """A further table of the report: title, heads, and rows of text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        body = [list(row) for row in self.rows]
        return {"title": self.title, "heads": list(self.heads), "rows": body, "note": self.note}


@dataclass(frozen=True)
class RowRequest:
    """One row with one seed, for a function that runs it.

    folder: for its own files, such as checkpoints, so that an interrupted run can go on.
    show: to be called with the progress several times a second.
    """

    tables: Tables
    seed: int
    folder: Path
    show: Callable[[TrainingProgress], None]
    force: bool = False
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What the registry knows about an experiment; everything has a default but the name.

    Args:
        run_row: runs one row with one seed, and gives its numbers. Without it a row is a training
            run of the lab, and its tables are those of ``RunConfig``.
        check_row: raises ValueError if the tables of a row are wrong, before anything runs.
        adapt_row: tables of a row without what this machine cannot run, such as a task that needs a
            library.
        build_config: config of the training run that ``run_row`` ends with; it labels losses,
            lengths and the learning curve, and its corpus is that of the report.
        shorten_row: tables of the same row with a third of the steps. Without it rows that are no
            training runs have no shorter one, and nothing says "not yet".
        measures: numbers of a row besides those of training runs.
        quantities: labels of charts of measures by their x, by the word before @.
        curves: labels of the curves of a row besides the learning curve of training runs.
        styles: how the lines of rows are drawn, by name, where one colour for each is too many.
        derive: rows with further measures or curves, computed from all rows; and further rows.
        derived: names of the further rows, which contrasts may name.
        list_tables: further tables, from all rows and the folder of the experiment.
        find_line: line and x of a row in a chart of measures that have no x of their own, from its
            tables. Rows with the same line are joined.
        timed: whether steps of the rows are timed after all runs, in turns and while nothing else
            runs, because a measure depends on their time. Only for rows that are training runs.
        describe_files: options of the table [data] for files that the user gives, "files" among
            them; checksums belong there, so that other contents are other rows.
    """

    name: str
    run_row: Callable[[RowRequest], RowMeasurement] | None = None
    check_row: Callable[[Tables], None] | None = None
    adapt_row: Callable[[Tables], Tables] | None = None
    build_config: Callable[[Tables, int], RunConfig] | None = None
    shorten_row: Callable[[Tables], Tables] | None = None
    measures: tuple[MeasureLabel, ...] = ()
    quantities: Mapping[str, CurveLabels] = field(default_factory=dict)
    curves: Mapping[str, CurveLabels] = field(default_factory=dict)
    styles: Mapping[str, LineStyle] = field(default_factory=dict)
    derive: Callable[[Sequence[RowResults], Path], Sequence[RowResults]] | None = None
    derived: tuple[str, ...] = ()
    list_tables: Callable[[Sequence[RowResults], Path], list[ResultTable]] | None = None
    find_line: Callable[[Tables], tuple[str, float]] | None = None
    timed: bool = False
    describe_files: Callable[[Sequence[str]], dict[str, Any]] | None = None

    @property
    def trains(self) -> bool:
        """Whether rows are training runs of the lab."""
        return self.run_row is None
