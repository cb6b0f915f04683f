"""An inspection as tables for a terminal; needs rich, which the cli extra installs."""

import json
from itertools import groupby

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from whorl.scaling import Description

from .difference import ModelDifference
from .frameworks import FrameworkComparison
from .report import GroupReport, Inspection
from .words import (
    describe_group,
    format_brief,
    format_number,
    list_facts,
    list_notes,
    list_patches,
    select_comparisons,
)

__all__ = ["render_difference", "render_terminal"]

_COLOURS = {"agrees": "green", "differs": "red", "refuses": "red", "unknown": "dim"}
_STATUSES = {"kept": "green", "blended": "yellow", "interpolated": "cyan", "unused": "dim"}


def render_terminal(found: Inspection) -> list[RenderableType]:
    """What ``whorl inspect`` prints, as renderables of rich."""
    lines: list[RenderableType] = [Text(found.source, "bold"), Text(found.verdict)]
    for report in found.groups:
        lines += ["", *_render_group(report)]
    lines += _render_readings(found, "as published")
    if any(report.extension is not None for report in found.groups):
        lines += _render_readings(found, "as extended")
    if found.model.notes:
        lines += ["", _render_rows([("note", text) for _, text in list_notes(found)])]
    if found.model.parts:
        names = ", ".join(sorted(found.model.parts))
        lines += ["", Text(f"Parts: {names}; this page shows the layers that process text.")]
    return [*lines, *_render_patches(found)]


def render_difference(found: ModelDifference) -> list[RenderableType]:
    """What ``whorl inspect A B`` prints; facts that differ are in colour."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for model in (found.first, found.second):
        table.add_column(Text(model.source), overflow="fold", ratio=1)
    part = found.facts[0].part
    for fact in found.facts:
        if fact.part != part:
            table.add_row()
            part = fact.part
        style = "yellow" if fact.differs else "dim"
        name = Text(f"{fact.name} *" if fact.differs else fact.name, "cyan")
        table.add_row(name, Text(fact.first, style), Text(fact.second, style))
    return [Text(found.verdict, "bold"), "", table, "", Text("* differs", "dim")]


def _render_group(report: GroupReport) -> list[RenderableType]:
    head = f"{describe_group(report)}, as published"
    lines: list[RenderableType] = [Text(head, "bold"), _render_rows(list_facts(report))]
    extension = report.extension
    if extension is not None:
        at = format_number(extension.length)
        lines += ["", Text(f"  as published, at {at} tokens"), _render_pairs(extension.before)]
        lines += ["", Text(f"  as extended: {extension.scaling!r}"), _render_pairs(extension.after)]
        if extension.why:
            lines.append(Text(f"  no lines for config.json: {extension.why}."))
    elif report.description is not None:
        lines += ["", _render_pairs(report.description)]
    return lines


def _render_rows(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return Padding(table, (0, 0, 0, 2))


def _make_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def _render_pairs(found: Description) -> RenderableType:
    """A table with one row for each run of pairs that have the same status."""
    heads = ("wavelength", "as rotated", "slower by", "rotations")
    table = _make_table("pairs", "status", *heads, right=heads)
    for _, same in groupby(found.pairs, key=lambda pair: pair.status):
        run = list(same)
        first, last = run[0], run[-1]
        span = str(first.index) if first is last else f"{first.index}-{last.index}"
        values = [
            _format_range([getattr(pair, name) for pair in run])
            for name in ("wavelength", "new_wavelength", "factor", "rotations")
        ]
        table.add_row(span, Text(first.status, _STATUSES[first.status]), *values)
    return Padding(table, (0, 0, 0, 2))


def _format_range(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = format_brief(min(known)), format_brief(max(known))
    return low if low == high else f"{low}-{high}"


def _render_readings(found: Inspection, config: str) -> list[RenderableType]:
    """How others read one of the two configs; groups that are read alike share a table."""
    alike: dict[str, list[GroupReport]] = {}
    read = {id(report): select_comparisons(report, config) for report in found.groups}
    for report in found.groups:
        if read[id(report)]:
            alike.setdefault("".join(map(_describe_comparison, read[id(report)])), []).append(
                report
            )
    lines: list[RenderableType] = []
    for reports in alike.values():
        comparisons = read[id(reports[0])]
        names = ", ".join(report.group.name or "" for report in reports)
        of = f": {names}" if len(alike) > 1 else ""
        lines += ["", Text(f"How others read it, {config}{of}", "bold")]
        if comparisons[0].outcome == "inexpressible":
            lines.append(Text(f"  no config.json can ask for it: {comparisons[0].why}."))
            continue
        lines.append(_render_frameworks(comparisons))
        lines += _render_remarks(comparisons)
    return lines


def _describe_comparison(each: FrameworkComparison) -> str:
    """The shown part of a comparison, rounded: equal for comparisons that look the same."""
    off = None if each.inv_freq is None else _format_difference(each.inv_freq)
    scale = each.attention_scale and round(each.attention_scale, 4)
    return repr((each.framework, each.outcome, off, scale, each.layout, each.why, each.remarks))


def _render_frameworks(found: tuple[FrameworkComparison, ...]) -> RenderableType:
    right = ("frequencies", "attention")
    table = _make_table("framework", "rule", "reading", *right, "layout", right=right)
    for each in found:
        off = "" if each.inv_freq is None else _format_difference(each.inv_freq)
        scale = "" if each.attention_scale is None else f"{each.attention_scale:.4f}"
        rule = "tested" if each.basis == "executed in tests" else "read"
        reading = Text(each.outcome, _COLOURS[each.outcome])
        name = f"{each.framework} {each.version}"
        table.add_row(name, rule, reading, off, scale, each.layout or "")
    return Padding(table, (0, 0, 0, 2))


def _format_difference(difference: float) -> str:
    return "same" if difference < 1e-5 else f"off by {100 * difference:.2g}%"


def _render_remarks(found: tuple[FrameworkComparison, ...]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in found:
        if each.why and not each.remarks:
            table.add_row(each.framework, Text(each.why))
        if "inverse frequencies" in each.differs and each.length is not None:
            where = f"furthest at pair {each.pair}, in texts of {format_number(each.length)} tokens"
            table.add_row(each.framework, Text(where))
        for remark in each.remarks:
            text = Text.assemble(remark.text, (f"  [{remark.source}]", "dim"))
            table.add_row(each.framework, text)
    return ["", Padding(table, (0, 0, 0, 2))] if table.row_count else []


def _render_patches(found: Inspection) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if found.warnings:
        lines += ["", *(Text(f"warning: {text}", "yellow") for text in found.warnings)]
    for patch, dialect in list_patches(found):
        head = Text(f"For config.json, as extended, {dialect}:", "bold")
        lines += ["", head, Padding(Text(json.dumps(dict(patch), indent=2)), (0, 0, 0, 2))]
    return lines
