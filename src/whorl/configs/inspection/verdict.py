"""The verdict on a model's positions: one paragraph in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .extension import called
from .words import layers, listed, number

if TYPE_CHECKING:
    from .report import GroupReport, Inspection

__all__ = ["verdict"]


def verdict(found: Inspection) -> str:
    """What turns, how far it reaches, what the asked-for changes, who reads it otherwise."""
    turning = [report for report in found.groups if report.encoding is not None]
    if not turning:
        return _nothing(found)
    sentences = [_what(found, turning), _contexts(found, turning), _reaches(found, turning)]
    sentences += [_length(found, report) for report in turning]
    sentences += [_extended(found, report) for report in turning]
    sentences += _frameworks(found, turning)
    return " ".join(dict.fromkeys(words for words in sentences if words))


def _nothing(found: Inspection) -> str:
    who = called(found.model)
    refused = [report.group.refusal for report in found.groups if report.group.refusal]
    if refused:
        return f"{who} turns its queries and keys in a way of its own. {' '.join(refused)}"
    what = "rotates nothing in the layers shown" if found.groups else found.model.unrotated
    said = ("no-rotary", "no-sign")
    notes = [note.text for note in found.model.notes if found.groups or note.id not in said]
    return f"{who} {what}. {' '.join(notes)}".strip()


def _what(found: Inspection, turning: list[GroupReport]) -> str:
    """Layers that rotate alike are named together."""
    alike: dict[str, list[str]] = {}
    for report in turning:
        alike.setdefault(_rotation(report), []).append(layers(report.group))
    parts = [f"{listed(names)} rotate {how}" for how, names in alike.items()]
    still = [report.group for report in found.groups if report.encoding is None]
    blind = [layers(group) for group in still if group.query_scale is None]
    parts += [f"{listed(blind)} have no positions"] if blind else []
    scaling = [layers(group) for group in still if group.query_scale is not None]
    parts += [f"{listed(scaling)} scale queries by position instead"] if scaling else []
    return f"{called(found.model)}: {'; '.join(parts)}."


def _rotation(report: GroupReport) -> str:
    whole = report.rotated == report.head_channels
    channels = f"all {report.rotated}" if whole else f"{report.rotated} of {report.head_channels}"
    base = "frequencies of their own" if report.base is None else f"base {number(report.base)}"
    assert report.group.rotation is not None
    scaling = report.group.rotation.options.get("scaling")
    how = "" if scaling is None else f", {type(scaling).__name__}"
    factor = getattr(scaling, "factor", None)
    how += f" by {number(factor)}" if isinstance(factor, (int, float)) and factor != 1 else ""
    return f"{channels} channels of a head ({report.layout} layout, {base}{how})"


def _contexts(found: Inspection, turning: list[GroupReport]) -> str:
    claimed = found.model.context
    wide = [report for report in turning if report.bound is None] or turning
    known = [report.training_length for report in wide]
    trained = None if None in known else known[0]
    if claimed is None:
        return "The config does not say for how many tokens."
    if trained is None:
        return f"It claims {number(claimed)} tokens, and does not say how many training had."
    if trained == claimed:
        return f"It claims {number(claimed)} tokens."
    return f"It claims {number(claimed)} tokens, from {number(trained)} before the stretch."


def _reaches(found: Inspection, turning: list[GroupReport]) -> str:
    wide = [r for r in turning if r.bound is None and r.furthest and r.trained]
    if not wide:
        return ""
    report = min(wide, key=lambda r: (r.furthest and r.furthest.effective_context) or float("inf"))
    trained, description = report.trained, report.furthest
    assert trained is not None
    assert description is not None
    if description.effective_context is None:
        return (
            f"Every pair that turns comes round within {number(trained.tokens)} tokens, so longer"
            " texts bring it no new angle."
        )
    words = (
        f"{trained.never} of {report.pairs} pairs do not come round within {number(trained.tokens)}"
        " tokens"
    )
    if description.effective_context <= trained.tokens:
        return f"{words}, and meet new angles in longer texts."
    words += f"; they meet no new angle up to {number(description.effective_context)}"
    claimed = found.model.context or 0
    if claimed > description.effective_context:
        return f"{words}: what is claimed past that rests on further training."
    return f"{words}."


def _length(found: Inspection, report: GroupReport) -> str:
    at = report.at_length
    if at is None:
        return ""
    name = "" if len(found.groups) == 1 else f" in {layers(report.group)}"
    error = f"float32 angles are off by up to {at.float32_error:.1g} rad"
    start = f"At {number(at.length)} tokens{name}"
    if at.distance < at.length:
        return f"{start} the window keeps distances at most {number(at.distance)}; {error}."
    if at.new is None:
        return f"{start} new angles are not known; {error}."
    if at.excess is None:
        return f"{start} no pair meets a new angle; {error}."
    times = number(at.excess)
    return f"{start} {at.new} pairs go up to {times} times past the angles they know; {error}."


def _extended(found: Inspection, report: GroupReport) -> str:
    extension = report.extension
    if extension is None:
        return ""
    name = "" if len(found.groups) == 1 else f" in {layers(report.group)}"
    reach = extension.after.effective_context
    how = "has no limit" if reach is None else f"is {number(reach)} tokens"
    counts = [f"{n} {status}" for status, n in extension.after.counts.items() if n]
    start = ""
    if extension.start is not None and extension.start != report.training_length:
        start = f" from {number(extension.start)}, where its published recipe starts,"
    return (
        f"{type(extension.scaling).__name__}{start} to {number(extension.length)} tokens{name}"
        " leaves"
        f" {listed(counts)} pairs; the reach then {how}, the attention scale"
        f" {extension.after.attention_scale:.4f}."
    )


def _frameworks(found: Inspection, turning: list[GroupReport]) -> list[str]:
    """Who agrees and who differs, over all groups; with an extension, on the extended config."""
    judged = [each for report in turning for each in report.frameworks]
    none = [each for each in judged if each.outcome == "inexpressible"]
    if none:
        return [f"As extended, no framework can be asked for it: {none[0].why}."]
    outcomes: dict[str, set[str]] = {}
    for each in judged:
        outcomes.setdefault(each.framework, set()).add(each.outcome)
    at = "" if found.length is None else f" at {number(found.length)} tokens"
    start = "As extended, " if any(each.config == "as extended" for each in judged) else ""
    sentences = []
    for outcome, words in (
        ("differs", f"read{{s}} it differently{at}"),
        ("refuses", "refuse{s} it"),
        ("agrees", f"read{{s}} it the same way{at}"),
        ("partly", f"read{{s}} some layers the same way{at}; what of others is not known"),
    ):
        names = [name for name, seen in outcomes.items() if _worst(seen) == outcome]
        if names:
            verb = words.format(s="s" if len(names) == 1 else "")
            sentences.append(f"{start}{listed(names)} {verb}.")
    return sentences


def _worst(seen: set[str]) -> str:
    """The outcome that counts for the whole; "partly" where nothing but agreement is known."""
    if seen == {"agrees", "unknown"}:
        return "partly"
    return min(seen, key=("differs", "refuses", "agrees", "unknown").index)
