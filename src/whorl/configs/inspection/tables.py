"""An inspection for a terminal: needs rich, which the cli extra brings."""

import json
from itertools import groupby

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from whorl.scaling import Description

from .frameworks import Comparison
from .report import GroupReport, Inspection
from .words import brief, dialect_patches, facts, notes, number, of_config, title

__all__ = ["terminal"]

_COLOURS = {"agrees": "green", "differs": "red", "refuses": "red", "unknown": "dim"}
_STATUSES = {"kept": "green", "blended": "yellow", "interpolated": "cyan", "unused": "dim"}


def terminal(found: Inspection) -> list[RenderableType]:
    """What ``whorl inspect`` prints."""
    lines: list[RenderableType] = [Text(found.source, "bold"), Text(found.verdict)]
    for report in found.groups:
        lines += ["", *_group(report)]
    lines += _readings(found, "as published")
    if any(report.extension is not None for report in found.groups):
        lines += _readings(found, "as extended")
    if found.model.notes:
        lines += ["", _rows([("note", text) for _, text in notes(found)])]
    if found.model.parts:
        names = ", ".join(sorted(found.model.parts))
        lines += ["", Text(f"Parts: {names}; shown is what the text goes through.")]
    return [*lines, *_patches(found)]


def _group(report: GroupReport) -> list[RenderableType]:
    head = f"{title(report)}, as published"
    lines: list[RenderableType] = [Text(head, "bold"), _rows(facts(report))]
    extension = report.extension
    if extension is not None:
        at = number(extension.length)
        lines += ["", Text(f"  as published, at {at} tokens"), _pairs(extension.before)]
        lines += ["", Text(f"  as extended: {extension.scaling!r}"), _pairs(extension.after)]
        if extension.why:
            lines.append(Text(f"  no lines for config.json: {extension.why}."))
    elif report.description is not None:
        lines += ["", _pairs(report.description)]
    return lines


def _rows(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return Padding(table, (0, 0, 0, 2))


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def _pairs(found: Description) -> RenderableType:
    """Runs of pairs with one status."""
    heads = ("wavelength", "as rotated", "slower by", "turns trained")
    table = _table("pairs", "status", *heads, right=heads)
    for _, same in groupby(found.pairs, key=lambda pair: pair.status):
        run = list(same)
        first, last = run[0], run[-1]
        span = str(first.index) if first is last else f"{first.index}-{last.index}"
        values = [
            _range([getattr(pair, name) for pair in run])
            for name in ("wavelength", "new_wavelength", "factor", "rotations")
        ]
        table.add_row(span, Text(first.status, _STATUSES[first.status]), *values)
    return Padding(table, (0, 0, 0, 2))


def _range(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = brief(min(known)), brief(max(known))
    return low if low == high else f"{low}-{high}"


def _readings(found: Inspection, config: str) -> list[RenderableType]:
    """One table for all groups that the others read alike, of one of the two configs."""
    alike: dict[str, list[GroupReport]] = {}
    read = {id(report): of_config(report, config) for report in found.groups}
    for report in found.groups:
        if read[id(report)]:
            alike.setdefault("".join(map(_seen, read[id(report)])), []).append(report)
    lines: list[RenderableType] = []
    for reports in alike.values():
        comparisons = read[id(reports[0])]
        names = ", ".join(report.group.name or "" for report in reports)
        of = f": {names}" if len(alike) > 1 else ""
        lines += ["", Text(f"How others read it, {config}{of}", "bold")]
        if comparisons[0].outcome == "inexpressible":
            lines.append(Text(f"  nobody can be asked to: {comparisons[0].why}."))
            continue
        lines.append(_frameworks(comparisons))
        lines += _remarks(comparisons)
    return lines


def _seen(each: Comparison) -> str:
    """What a reader sees of a comparison: two that differ in the last digits look alike."""
    off = None if each.inv_freq is None else _off(each.inv_freq)
    scale = each.attention_scale and round(each.attention_scale, 4)
    return repr((each.framework, each.outcome, off, scale, each.layout, each.why, each.remarks))


def _frameworks(found: tuple[Comparison, ...]) -> RenderableType:
    right = ("frequencies", "attention")
    table = _table("framework", "rule", "reading", *right, "layout", right=right)
    for each in found:
        off = "" if each.inv_freq is None else _off(each.inv_freq)
        scale = "" if each.attention_scale is None else f"{each.attention_scale:.4f}"
        rule = "tested" if each.basis == "executed in tests" else "read"
        reading = Text(each.outcome, _COLOURS[each.outcome])
        name = f"{each.framework} {each.version}"
        table.add_row(name, rule, reading, off, scale, each.layout or "")
    return Padding(table, (0, 0, 0, 2))


def _off(difference: float) -> str:
    return "same" if difference < 1e-5 else f"off by {100 * difference:.2g}%"


def _remarks(found: tuple[Comparison, ...]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in found:
        if each.why and not each.remarks:
            table.add_row(each.framework, Text(each.why))
        if "inverse frequencies" in each.differs and each.length is not None:
            where = f"furthest at pair {each.pair}, in texts of {number(each.length)} tokens"
            table.add_row(each.framework, Text(where))
        for remark in each.remarks:
            text = Text.assemble(remark.text, (f"  [{remark.source}]", "dim"))
            table.add_row(each.framework, text)
    return ["", Padding(table, (0, 0, 0, 2))] if table.row_count else []


def _patches(found: Inspection) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if found.warnings:
        lines += ["", *(Text(f"warning: {text}", "yellow") for text in found.warnings)]
    for patch, dialect in dialect_patches(found):
        head = Text(f"For config.json, as extended, {dialect}:", "bold")
        lines += ["", head, Padding(Text(json.dumps(dict(patch), indent=2)), (0, 0, 0, 2))]
    return lines
