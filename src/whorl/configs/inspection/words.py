"""Text for an inspection: formatted numbers, names of layers, facts, and a page of plain text."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from whorl.configs import LayerGroup

if TYPE_CHECKING:
    from .frameworks import FrameworkComparison
    from .report import GroupReport, Inspection

__all__ = [
    "describe_group",
    "describe_layers",
    "format_brief",
    "format_layer_numbers",
    "format_number",
    "join_words",
    "list_facts",
    "list_notes",
    "list_patches",
    "render_page",
    "select_comparisons",
]

_LAYOUTS = {
    "half": "half layout (i with i + R/2)",
    "interleaved": "interleaved layout (2i, 2i + 1)",
}


def format_number(value: float) -> str:
    """A count with all its digits, any other number with about four.

    >>> format_number(131072), format_number(6.2831853), format_number(20_467_123.5)
    ('131,072', '6.283', '20.5M')
    """
    if abs(value) < 1e9 and value == round(value):
        return f"{round(value):,}"
    if abs(value) >= 1e7:
        return format_brief(value)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def format_brief(value: float) -> str:
    """Three digits, with k for thousands and M for millions.

    >>> [format_brief(n) for n in (6.2831853, 65_750, 2_559_196, 8, 0.0032)]
    ['6.28', '65.8k', '2.56M', '8', '0.0032']
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size * 0.9995 <= abs(value) < 1e13:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def join_words(words: list[str]) -> str:
    """Words as a list in a sentence: "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def format_layer_numbers(numbers: tuple[int, ...]) -> str:
    """Layer numbers in short form: runs as "0-3", equal steps as "3, 7 .. 15".

    >>> [format_layer_numbers(n) for n in ((0, 1, 2, 3, 5), (3, 7, 11, 15), ())]
    ['0-3, 5', '3, 7 .. 15', '']
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


def describe_layers(group: LayerGroup) -> str:
    """Number and type of layers: "5 full_attention layers"; "all layers" without a number."""
    name = "" if group.name is None else f"{group.name} "
    if not group.layers:
        return f"the {name}layers" if name else "all layers"
    return f"{len(group.layers)} {name}layer{'s' if len(group.layers) > 1 else ''}"


def describe_group(report: GroupReport) -> str:
    """Type and numbers of a group of layers: "full_attention: layers 5, 11 .. 29"."""
    group = report.group
    where = f"layers {format_layer_numbers(group.layers)}" if group.layers else "all layers"
    return where if group.name is None else f"{group.name}: {where}"


def list_facts(report: GroupReport) -> list[tuple[str, str]]:
    """The facts about a group of layers, as pairs of name and value."""
    if report.encoding is None:
        scale = _describe_query_scale(report.group)
        none = "none: these layers have no positions"
        if scale:
            none = "none: queries are scaled by their position, not rotated"
        rows = [("rotation", report.group.refusal or none), ("query scale", scale)]
        rows += [("note", note.text) for note in report.group.notes]
        return [row for row in rows if row[1]]
    rows = [
        ("layout", _LAYOUTS.get(report.layout or "", str(report.layout))),
        ("base", "frequencies of their own" if report.base is None else format_number(report.base)),
        ("channels", f"{report.rotated} of {report.head_channels} rotate, in {report.pairs} pairs"),
        ("wavelengths", _describe_wavelengths(report)),
        ("long wavelengths", _describe_incomplete_pairs(report)),
        ("attention scale", f"{report.attention_scale:.6g}"),
    ]
    group = report.group
    if group.softmax_scale != 1:
        rows.append(("softmax scale", f"{group.softmax_scale:.6g} / sqrt(D)"))
    rows.append(("query scale", _describe_query_scale(group)))
    if group.window is not None:
        rows.append(("window", f"{format_number(group.window)} tokens"))
    if report.description is not None:
        rows.append(("scaling", _shorten_lists(report.description.scaling)))
        rows.append(("effective context", _describe_effective_context(report)))
    if report.at_length is not None:
        rows += _list_length_facts(report)
    return [row for row in rows if row[1]] + [("note", note.text) for note in group.notes]


def _describe_query_scale(group: LayerGroup) -> str:
    scale = group.query_scale
    if scale is None:
        return ""
    return f"{scale.rule}, beta {scale.beta:g}, length {scale.length:g}"


def _describe_wavelengths(report: GroupReport) -> str:
    if report.fastest is None or report.slowest is None:
        return "no pair rotates"
    still = f"; {report.unused} pairs do not rotate" if report.unused else ""
    return f"{format_number(report.fastest)} to {format_number(report.slowest)} tokens{still}"


def _describe_incomplete_pairs(report: GroupReport) -> str:
    pairs = [(report.trained, " in training"), (report.claimed, " as rotated")]
    if report.trained == report.claimed:
        pairs = [(report.claimed, "")]
    words = []
    for counts, when in pairs:
        if counts is not None:
            start = "" if counts.first is None else f" (from pair {counts.first})"
            than = f"longer than {format_number(counts.tokens)} tokens{when}"
            words.append(f"{counts.never} of {report.pairs} pairs {than}{start}")
    return "; ".join(words)


def _describe_effective_context(report: GroupReport) -> str:
    found = report.furthest
    assert found is not None
    if report.bound is not None:
        return f"limited by the window: no distance exceeds {format_number(report.bound)}"
    if found.original_context is None:
        return "not known: the config does not say how long training texts were"
    if found.effective_context is None:
        return "unlimited: every pair completed a rotation in training"
    return f"{format_number(found.effective_context)} tokens (limited by pair {found.limited_by})"


def _list_length_facts(report: GroupReport) -> list[tuple[str, str]]:
    at = report.at_length
    assert at is not None
    new = "not known" if at.new is None else "none"
    if at.new:
        assert at.excess is not None
        times = format_number(at.excess)
        new = f"{at.new} pairs from {at.first} on, up to {times} times those of training"
    rows = [
        (f"at {format_number(at.length)}", f"out-of-distribution angles: {new}"),
        ("", f"float32 angle error up to {at.float32_error:.2g} rad"),
    ]
    if at.alike is not None:
        far = f"tokens {format_number(at.alike.distance)} apart have similarity"
        near = f"tokens 2 apart {at.alike.near:.2f}: far tokens look near"
        rows.append(("", f"aliasing: {far} {at.alike.similarity:.2f}, {near}"))
    return rows


def _shorten_lists(text: str) -> str:
    """The text of a scaling, with long lists of numbers replaced by their length."""
    lists = re.compile(r"\((?:[^()]*, ){7}[^()]*\)")
    return lists.sub(lambda found: f"({found.group().count(',') + 1} numbers)", text)


def render_page(found: Inspection, width: int = 90) -> str:
    """The whole inspection as plain text."""
    blocks = [textwrap.fill(found.verdict, width)]
    for report in found.groups:
        rows = list_facts(report)
        wide = max(len(name) for name, _ in rows)
        lines = [f"{describe_group(report)}, as published"]
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
            read = select_comparisons(report, config)
            if read:
                lines += ["", f"how others read it, {config}", *map(_describe_framework, read)]
        blocks.append("\n".join(lines))
    blocks += [text for _, text in list_notes(found)]
    blocks += [f"warning: {text}" for text in found.warnings]
    for patch, dialect in list_patches(found):
        text = json.dumps(dict(patch), indent=2)
        blocks.append(f"config.json for {dialect}, as extended:\n{text}")
    return "\n\n".join(blocks)


def list_notes(found: Inspection) -> list[tuple[str, str]]:
    """Ids and texts of the notes on a model.

    With an extension there are two configs; notes on how transformers reads the config then say
    that they mean the published one.
    """
    extended = any(report.extension is not None for report in found.groups)
    return [
        (note.id, f"As published: {note.text}")
        if extended and note.id.startswith("transformers-")
        else (note.id, note.text)
        for note in found.model.notes
    ]


def list_patches(found: Inspection) -> list[tuple[Mapping[str, Any], str]]:
    """The lines for config.json and their dialects; the dialect of the config comes first."""
    both = [(found.old_patch, "transformers 4"), (found.patch, "transformers 5")]
    both.sort(key=lambda each: each[1] != found.dialect)
    return [
        (patch, f"{dialect} (as this config)" if dialect == found.dialect else dialect)
        for patch, dialect in both
        if patch is not None
    ]


def select_comparisons(report: GroupReport, config: str) -> tuple[FrameworkComparison, ...]:
    """How other frameworks read one of the two configs: "as published" or "as extended"."""
    if config == "as published":
        return report.frameworks_as_published
    return tuple(each for each in report.frameworks if each.config == config)


def _describe_framework(each: FrameworkComparison) -> str:
    what = f" ({', '.join(each.differs)})" if each.differs else ""
    why = f": {each.why}" if each.why else ""
    return f"  {each.framework} {each.version}, {each.basis}: {each.outcome}{what}{why}"
