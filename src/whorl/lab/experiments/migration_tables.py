"""Tables of the experiment ``migration``: how soon rows recover, and what they kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from whorl.lab.compare.curves import LearningCurve
from whorl.lab.runs import Run

from .definition import ResultTable
from .plan import RowPlan
from .results import VALIDATION, RowResults

__all__ = ["RECOVERY", "RUN_FOLDER", "list_tables"]

#: The measure of the steps until the loss of the source model is reached again.
RECOVERY = "steps to recover"
#: The run after the change, in the folder of a row.
RUN_FOLDER = "run"

_MISSING = "\u2013"
_ARROW = " -> "


def list_tables(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """Steps until the loss of the source is reached, and what was kept, dropped and new."""
    changed = [row for row in rows if _ARROW in row.name]
    trained = [row for row in changed if row.get_fact("trainable")]
    tables = []
    if trained:
        tables.append(_build_recovery(trained, {row.name: row for row in rows}, folder))
    if changed:
        tables.append(_build_weights(changed, folder))
    return tables


def _build_recovery(
    rows: Sequence[RowResults], known: Mapping[str, RowResults], folder: Path
) -> ResultTable:
    body = []
    for row in rows:
        curves = [one.curves[VALIDATION]["y"] for one in row.seeds.values()]
        scratch = known.get(f"{row.name.partition(_ARROW)[2]} from scratch")
        levels = {seed: one.facts["source_loss"] for seed, one in row.seeds.items()}
        body.append(
            (
                row.name,
                f"{fmean(levels.values()):.3f}",
                f"{fmean(curve[0] for curve in curves):.3f}",
                f"{fmean(curve[-1] for curve in curves):.3f}",
                _format_steps(_find_steps(row, levels)),
                _MISSING if scratch is None else _format_steps(_find_steps(scratch, levels)),
            )
        )
    heads = (
        "",
        "source",
        "right after the change",
        "at the end",
        "steps to the loss of the source",
        "from scratch",
    )
    note = (
        "Validation losses at the trained length, means over seeds. From scratch: steps that the"
        " same encoding needs from random weights to the same loss, within as many steps."
    )
    if (report := _read_report(rows[0], folder)) is not None:
        note += f" Sources were trained for {report['step']} steps before."
    return ResultTable("Recovery", heads, tuple(body), note)


def _find_steps(row: RowResults, levels: Mapping[int, float]) -> list[float | None]:
    """By seed, the step at which the loss of a row is down to a level; None if it never is."""
    found = []
    for seed, level in levels.items():
        if seed in row.seeds:
            curve = row.seeds[seed].curves[VALIDATION]
            steps = LearningCurve(tuple(map(int, curve["x"])), tuple(curve["y"]))
            found.append(steps.find_step(level))
    return found


def _format_steps(steps: Sequence[float | None]) -> str:
    """The mean over seeds, with how many of them it is of if not of all."""
    reached = [step for step in steps if step is not None]
    if not reached:
        return "not reached"
    mean = f"{fmean(reached):.0f}"
    return (
        mean if len(reached) == len(steps) else f"{mean} (in {len(reached)} of {len(steps)} seeds)"
    )


def _build_weights(rows: Sequence[RowResults], folder: Path) -> ResultTable:
    """Parameters by what happened to them, from start.json where there is a run."""
    body = []
    for row in rows:
        report = _read_report(row, folder)
        cells = [_format_parts(row, report, key) for key in ("kept", "dropped", "new")]
        body.append((row.name, *cells, f"{row.get_fact('trainable') or 0:,.0f}"))
    note = (
        "Parameters. All weights are trained but in a row that is called frozen: with everything"
        " that was kept frozen, nothing is left to train, because plain RoPE and ALiBi have no"
        " parameters of their own. Its losses are those right after the change."
    )
    heads = ("", "kept", "dropped", "new", "trained")
    return ResultTable("What was kept, dropped and new", heads, tuple(body), note)


def _read_report(row: RowResults, folder: Path) -> Mapping[str, Any] | None:
    """start.json of the first seed; None if the row has no run."""
    seed = next(iter(row.seeds))
    name = f"{RowPlan(row.name, {}).folder_name}-seed{seed}"
    return Run(folder / name / RUN_FOLDER).read_start_report()


def _format_parts(row: RowResults, report: Mapping[str, Any] | None, key: str) -> str:
    """Such as "117,504 (embedding, attention, mlp, norms, head)"."""
    count = f"{row.get_fact(key) or 0:,.0f}"
    parts = ", ".join(one["part"] for one in report[key]) if report is not None else ""
    return f"{count} ({parts})" if parts else count
