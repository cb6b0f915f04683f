"""The first paragraph of an inspection: what rotates, up to which length, and who differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .extension import name_model
from .words import describe_layers, format_number, join_words

if TYPE_CHECKING:
    from .report import GroupReport, Inspection

__all__ = ["write_verdict"]


def write_verdict(found: Inspection) -> str:
    """One paragraph: rotations, contexts, the requested length or extension, other frameworks."""
    rotating = [report for report in found.groups if report.encoding is not None]
    if not rotating:
        return _describe_no_rotation(found)
    sentences = [
        _describe_rotations(found, rotating),
        _describe_contexts(found, rotating),
        _describe_effective_context(found, rotating),
    ]
    sentences += [_describe_length(found, report) for report in rotating]
    sentences += [_describe_extension(found, report) for report in rotating]
    sentences += _describe_frameworks(found, rotating)
    return " ".join(dict.fromkeys(words for words in sentences if words))


def _describe_no_rotation(found: Inspection) -> str:
    who = name_model(found.model)
    refused = [report.group.refusal for report in found.groups if report.group.refusal]
    if refused:
        return f"{who} transforms queries and keys by a rule of its own. {' '.join(refused)}"
    what = "rotates nothing in the layers shown" if found.groups else found.model.unrotated
    said = ("no-rotary", "no-sign")
    notes = [note.text for note in found.model.notes if found.groups or note.id not in said]
    return f"{who} {what}. {' '.join(notes)}".strip()


def _describe_rotations(found: Inspection, rotating: list[GroupReport]) -> str:
    """Which layers rotate how; layers with the same rotation are named together."""
    alike: dict[str, list[str]] = {}
    for report in rotating:
        alike.setdefault(_describe_rotation(report), []).append(describe_layers(report.group))
    parts = [f"{join_words(names)} rotate {how}" for how, names in alike.items()]
    still = [report.group for report in found.groups if report.encoding is None]
    blind = [describe_layers(group) for group in still if group.query_scale is None]
    parts += [f"{join_words(blind)} have no positions"] if blind else []
    scaling = [describe_layers(group) for group in still if group.query_scale is not None]
    parts += [f"{join_words(scaling)} scale queries by position instead"] if scaling else []
    return f"{name_model(found.model)}: {'; '.join(parts)}."


def _describe_rotation(report: GroupReport) -> str:
    whole = report.rotated == report.head_channels
    channels = f"all {report.rotated}" if whole else f"{report.rotated} of {report.head_channels}"
    base = (
        "frequencies of their own" if report.base is None else f"base {format_number(report.base)}"
    )
    assert report.group.rotation is not None
    scaling = report.group.rotation.options.get("scaling")
    how = "" if scaling is None else f", {type(scaling).__name__}"
    factor = getattr(scaling, "factor", None)
    how += (
        f" by {format_number(factor)}" if isinstance(factor, (int, float)) and factor != 1 else ""
    )
    return f"{channels} channels of a head ({report.layout} layout, {base}{how})"


def _describe_contexts(found: Inspection, rotating: list[GroupReport]) -> str:
    claimed = found.model.context
    wide = [report for report in rotating if report.bound is None] or rotating
    known = [report.training_length for report in wide]
    trained = None if None in known else known[0]
    if claimed is None:
        return "The config does not say for how many tokens."
    if trained is None:
        return f"It claims {format_number(claimed)} tokens, and does not say how many training had."
    if trained == claimed:
        return f"It claims {format_number(claimed)} tokens."
    tokens = format_number(trained)
    return f"It claims {format_number(claimed)} tokens, extended from a trained length of {tokens}."


def _describe_effective_context(found: Inspection, rotating: list[GroupReport]) -> str:
    wide = [r for r in rotating if r.bound is None and r.furthest and r.trained]
    if not wide:
        return ""
    report = min(wide, key=lambda r: (r.furthest and r.furthest.effective_context) or float("inf"))
    trained, description = report.trained, report.furthest
    assert trained is not None
    assert description is not None
    tokens = format_number(trained.tokens)
    if description.effective_context is None:
        return (
            f"Every pair completes a rotation within {tokens} tokens of training, so longer texts"
            " contain no out-of-distribution angle."
        )
    words = f"{trained.never} of {report.pairs} pairs have wavelengths longer than {tokens} tokens"
    if description.effective_context <= trained.tokens:
        return f"{words}, so longer texts contain out-of-distribution angles."
    limit = format_number(description.effective_context)
    words += f"; their angles stay in distribution up to {limit} tokens"
    claimed = found.model.context or 0
    if claimed > description.effective_context:
        return f"{words}, and the claim beyond that relies on further training."
    return f"{words}."


def _describe_length(found: Inspection, report: GroupReport) -> str:
    at = report.at_length
    if at is None:
        return ""
    name = "" if len(found.groups) == 1 else f" in {describe_layers(report.group)}"
    error = f"float32 angles are off by up to {at.float32_error:.1g} rad"
    start = f"At {format_number(at.length)} tokens{name}"
    if at.distance < at.length:
        return f"{start} the window limits distances to {format_number(at.distance)}; {error}."
    if at.new is None:
        return f"{start} it is not known which angles are out of distribution; {error}."
    if at.excess is None:
        return f"{start} no angle is out of distribution; {error}."
    times = format_number(at.excess)
    return f"{start} the angles of {at.new} pairs grow to {times} times those of training; {error}."


def _describe_extension(found: Inspection, report: GroupReport) -> str:
    extension = report.extension
    if extension is None:
        return ""
    name = "" if len(found.groups) == 1 else f" in {describe_layers(report.group)}"
    limit = extension.after.effective_context
    how = "is unlimited" if limit is None else f"is {format_number(limit)} tokens"
    counts = [f"{n} {status}" for status, n in extension.after.counts.items() if n]
    start = ""
    if extension.start is not None and extension.start != report.training_length:
        start = f" from {format_number(extension.start)}, where its published recipe starts,"
    scaling, tokens = type(extension.scaling).__name__, format_number(extension.length)
    return (
        f"{scaling}{start} to {tokens} tokens{name} gives {join_words(counts)} pairs; the effective"
        f" context {how}, the attention scale is {extension.after.attention_scale:.4f}."
    )


def _describe_frameworks(found: Inspection, rotating: list[GroupReport]) -> list[str]:
    """Which frameworks agree and which differ, over all groups; of the extended config if any."""
    judged = [each for report in rotating for each in report.frameworks]
    none = [each for each in judged if each.outcome == "inexpressible"]
    if none:
        return [f"No config.json can ask a framework for the extension: {none[0].why}."]
    outcomes: dict[str, set[str]] = {}
    for each in judged:
        outcomes.setdefault(each.framework, set()).add(each.outcome)
    at = "" if found.length is None else f" at {format_number(found.length)} tokens"
    start = "As extended, " if any(each.config == "as extended" for each in judged) else ""
    sentences = []
    for outcome, words in (
        ("differs", f"read{{s}} it differently{at}"),
        ("refuses", "refuse{s} it"),
        ("agrees", f"read{{s}} it the same way{at}"),
        ("partly", f"read{{s}} some layers the same way{at}; its reading of others is not known"),
    ):
        names = [name for name, seen in outcomes.items() if _select_worst(seen) == outcome]
        if names:
            verb = words.format(s="s" if len(names) == 1 else "")
            sentences.append(f"{start}{join_words(names)} {verb}.")
    return sentences


def _select_worst(seen: set[str]) -> str:
    """The worst outcome of a framework; "partly" if it agrees where its reading is known."""
    if seen == {"agrees", "unknown"}:
        return "partly"
    return min(seen, key=("differs", "refuses", "agrees", "unknown").index)
