"""An inspection in words: numbers, names of layers, facts, and a page of plain text."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from whorl.configs import LayerGroup

if TYPE_CHECKING:
    from .frameworks import Comparison
    from .report import GroupReport, Inspection

__all__ = [
    "brief",
    "dialect_patches",
    "facts",
    "layers",
    "listed",
    "notes",
    "number",
    "of_config",
    "page",
    "spans",
    "title",
]

_LAYOUTS = {
    "half": "half layout (i with i + R/2)",
    "interleaved": "interleaved layout (2i, 2i + 1)",
}


def number(value: float) -> str:
    """A count in full, anything else in a few digits.

    >>> number(131072), number(6.2831853), number(20_467_123.5)
    ('131,072', '6.283', '20.5M')
    """
    if abs(value) < 1e9 and value == round(value):
        return f"{round(value):,}"
    if abs(value) >= 1e7:
        return brief(value)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def brief(value: float) -> str:
    """Three digits, with k for thousands and M for millions.

    >>> brief(6.2831853), brief(65_750), brief(2_559_196), brief(8), brief(0.0032)
    ('6.28', '65.8k', '2.56M', '8', '0.0032')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size * 0.9995 <= abs(value) < 1e13:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def listed(words: list[str]) -> str:
    """a; a and b; a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def spans(numbers: tuple[int, ...]) -> str:
    """0-3, 5, 7-8; every so many where there is a rhythm.

    >>> spans((0, 1, 2, 3, 5)), spans((3, 7, 11, 15)), spans(())
    ('0-3, 5', '3, 7 .. 15', '')
    """
    if len(numbers) > 2:
        step = numbers[1] - numbers[0]
        if step > 1 and all(b - a == step for a, b in pairwise(numbers)):
            return f"{numbers[0]}, {numbers[1]} .. {numbers[-1]}"
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    words = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(words if len(words) <= 4 else [*words[:3], "..."])


def layers(group: LayerGroup) -> str:
    """ "32 layers", "5 full_attention layers", "all layers" where their number is not known."""
    name = "" if group.name is None else f"{group.name} "
    if not group.layers:
        return f"the {name}layers" if name else "all layers"
    return f"{len(group.layers)} {name}layer{'s' if len(group.layers) > 1 else ''}"


def title(report: GroupReport) -> str:
    """ "full_attention: layers 5, 11 .. 29"."""
    group = report.group
    where = f"layers {spans(group.layers)}" if group.layers else "all layers"
    return where if group.name is None else f"{group.name}: {where}"


def facts(report: GroupReport) -> list[tuple[str, str]]:
    """A group as names and values."""
    if report.encoding is None:
        scale = _query_scale(report.group)
        none = "none: these layers see no positions"
        if scale:
            none = "none: queries and keys are not turned; queries are scaled by their position"
        rows = [("rotation", report.group.refusal or none), ("query scale", scale)]
        rows += [("note", note.text) for note in report.group.notes]
        return [row for row in rows if row[1]]
    rows = [
        ("layout", _LAYOUTS.get(report.layout or "", str(report.layout))),
        ("base", "frequencies of their own" if report.base is None else number(report.base)),
        ("channels", f"{report.rotated} of {report.head_channels} rotate, in {report.pairs} pairs"),
        ("wavelengths", _wavelengths(report)),
        ("never come round", _never(report)),
        ("attention scale", f"{report.attention_scale:.6g}"),
    ]
    group = report.group
    if group.softmax_scale != 1:
        rows.append(("softmax scale", f"{group.softmax_scale:.6g} / sqrt(D)"))
    rows.append(("query scale", _query_scale(group)))
    if group.window is not None:
        rows.append(("window", f"{number(group.window)} tokens"))
    if report.description is not None:
        rows.append(("scaling", _short(report.description.scaling)))
        rows.append(("reach", _reach(report)))
    if report.at_length is not None:
        rows += _at_length(report)
    return [row for row in rows if row[1]] + [("note", note.text) for note in group.notes]


def _query_scale(group: LayerGroup) -> str:
    scale = group.query_scale
    if scale is None:
        return ""
    return f"{scale.rule}, beta {scale.beta:g}, length {scale.length:g}"


def _wavelengths(report: GroupReport) -> str:
    if report.fastest is None or report.slowest is None:
        return "no pair turns"
    still = f"; {report.unused} pairs never turn" if report.unused else ""
    return f"{number(report.fastest)} to {number(report.slowest)} tokens{still}"


def _never(report: GroupReport) -> str:
    pairs = [(report.trained, "in training, "), (report.claimed, "as rotated, ")]
    if report.trained == report.claimed:
        pairs = [(report.claimed, "")]
    words = []
    for turns, when in pairs:
        if turns is not None:
            start = "" if turns.first is None else f" (from pair {turns.first})"
            within = f"{when}within {number(turns.tokens)} tokens"
            words.append(f"{turns.never} of {report.pairs} {within}{start}")
    return "; ".join(words)


def _reach(report: GroupReport) -> str:
    found = report.furthest
    assert found is not None
    if report.bound is not None:
        return f"bounded by the window: no distance exceeds {number(report.bound)}"
    if found.original_context is None:
        return "not known: the config does not say how long training texts were"
    if found.effective_context is None:
        return "no limit: what turns, came round in training"
    return f"{number(found.effective_context)} tokens (pair {found.limited_by} sets it)"


def _at_length(report: GroupReport) -> list[tuple[str, str]]:
    at = report.at_length
    assert at is not None
    new = "not known" if at.new is None else "none"
    if at.new:
        assert at.excess is not None
        new = f"{at.new} pairs from {at.first} on, up to {number(at.excess)} times past training"
    rows = [
        (f"at {number(at.length)}", f"new angles: {new}"),
        ("", f"float32 angle error up to {at.float32_error:.2g} rad"),
    ]
    if at.alike is not None:
        words = f"tokens {number(at.alike.distance)} apart look {at.alike.similarity:.2f} alike,"
        rows.append(("", f"{words} those 2 apart {at.alike.near:.2f}: far looks near"))
    return rows


def _short(text: str) -> str:
    """A scaling without its long lists of numbers."""
    lists = re.compile(r"\((?:[^()]*, ){7}[^()]*\)")
    return lists.sub(lambda found: f"({found.group().count(',') + 1} numbers)", text)


def page(found: Inspection, width: int = 90) -> str:
    """All of it as plain text."""
    blocks = [textwrap.fill(found.verdict, width)]
    for report in found.groups:
        rows = facts(report)
        wide = max(len(name) for name, _ in rows)
        lines = [f"{title(report)}, as published"]
        for name, value in rows:
            start = f"  {name:<{wide}}  "
            indent = " " * len(start)
            lines.append(
                textwrap.fill(value, width, initial_indent=start, subsequent_indent=indent)
            )
        if report.extension is not None:
            lines += ["", "as extended", str(report.extension.after)]
            if report.extension.why:
                lines.append(f"no lines for config.json: {report.extension.why}.")
        for config in ("as published", "as extended"):
            read = of_config(report, config)
            if read:
                lines += ["", f"how others read it, {config}", *map(_framework, read)]
        blocks.append("\n".join(lines))
    blocks += [text for _, text in notes(found)]
    blocks += [f"warning: {text}" for text in found.warnings]
    for patch, dialect in dialect_patches(found):
        text = json.dumps(dict(patch), indent=2)
        blocks.append(f"config.json for {dialect}, as extended:\n{text}")
    return "\n\n".join(blocks)


def notes(found: Inspection) -> list[tuple[str, str]]:
    """Ids and texts of the notes on a model; what transformers makes of the config, with its name.

    With an extension there are two configs, and "this config" could be either.
    """
    extended = any(report.extension is not None for report in found.groups)
    return [
        (note.id, f"As published: {note.text}")
        if extended and note.id.startswith("transformers-")
        else (note.id, note.text)
        for note in found.model.notes
    ]


def dialect_patches(found: Inspection) -> list[tuple[Mapping[str, Any], str]]:
    """The lines for config.json with their dialects, that of the config first."""
    both = [(found.old_patch, "transformers 4"), (found.patch, "transformers 5")]
    both.sort(key=lambda each: each[1] != found.dialect)
    return [
        (patch, f"{dialect} (as this config)" if dialect == found.dialect else dialect)
        for patch, dialect in both
        if patch is not None
    ]


def of_config(report: GroupReport, config: str) -> tuple[Comparison, ...]:
    """How others read the config as published, or as extended."""
    if config == "as published":
        return report.frameworks_as_published
    return tuple(each for each in report.frameworks if each.config == config)


def _framework(each: Comparison) -> str:
    what = f" ({', '.join(each.differs)})" if each.differs else ""
    why = f": {each.why}" if each.why else ""
    return f"  {each.framework} {each.version}, {each.basis}: {each.outcome}{what}{why}"
