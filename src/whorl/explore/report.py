"""What inspect and doctor say about a config and about what the sliders make of it."""

import dataclasses
import json
from typing import Any

from whorl.configs import ConfigError, diagnosis
from whorl.configs.inspection import GroupReport, Inspection, inspect
from whorl.configs.inspection.lengths import find_trained_context
from whorl.configs.inspection.words import (
    describe_group,
    list_facts,
    list_notes,
    select_comparisons,
)

from ._checks import plainly
from .choices import METHODS, Choice
from .rewrite import Rewritten, rewritten
from .state import Subject

__all__ = ["report"]

_MOST_TEXT = 200_000


def report(
    subject: Subject,
    *,
    group: int | None = None,
    length: int | None = None,
    trained: int | None = None,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """The verdict, the facts of each group of layers, the findings, and the config to copy.

    A config that cannot be read has findings all the same, and its problem for a verdict.
    """
    if subject.model is None:
        findings = {} if subject.x == {} else _findings(subject.x, length)
        return {"name": subject.name, "problem": subject.problem, **_empty(subject), **findings}
    try:
        index, layers = subject.group(group)
    except ConfigError as error:
        looked = inspect(subject.x)
        return {
            **_of(subject, looked),
            "problem": plainly(error),
            "config": _text(subject.data),
            **_findings(subject.x, length),
        }
    assert layers.rotation is not None
    made = _written(subject, index, choice, trained)
    written = made.config
    start = _start(subject, index, choice, trained)
    looked, missing = _look(subject, start, length, trained, choice)
    seen = "as published" if start is None else label(choice)
    if start is not None and choice.method not in (*METHODS, "longrope"):
        seen = "as changed"
    options = layers.rotation.options
    known = options.get("base") if options.get("inv_freq") is None else None
    return {
        **_of(subject, looked, seen),
        "notes": [*missing, *_notes(looked)],
        "problem": None,
        "group": index,
        "base": known if isinstance(known, (int, float)) else None,
        "head_dim": options.get("head_dim"),
        "trained": find_trained_context(subject.model, layers, None),
        "config": None if written is None else _text(written),
        "configs": {one: _text(made.configs[one]) for one in made.order if one in made.configs},
        "dialect": made.dialect,
        "warnings": list(made.warnings),
        "why": made.why,
        **_findings(written if written is not None and not choice.own else subject.x, length),
        "findings_of": "as published" if choice.own or written is None else label(choice),
    }


def label(choice: Choice) -> str:
    """What a choice makes of the config as published, in words."""
    if choice.own:
        return "as published"
    return "as changed" if choice.method in METHODS else "as extended"


def _written(subject: Subject, index: int, choice: Choice, trained: int | None) -> Rewritten:
    try:
        return rewritten(subject, index, choice, trained)
    except ConfigError as error:
        return Rewritten(why=plainly(error))


def _start(
    subject: Subject, index: int, choice: Choice, trained: int | None
) -> dict[str, Any] | None:
    """The config to look at where it is not the subject's: with the base, without the extension.

    LongRoPE, which ``inspect`` does not lay over a config, and no scaling are looked at as they
    would be written.
    """
    if choice.method in ("longrope", "none"):
        return _written(subject, index, choice, trained).config
    if not choice.base:
        return None
    based = dataclasses.replace(choice, method="config", factor=None)
    return _written(subject, index, based, trained).config


def _look(
    subject: Subject,
    start: dict[str, Any] | None,
    length: int | None,
    trained: int | None,
    choice: Choice,
) -> tuple[Inspection, list[str]]:
    """Inspect as the command does, without what does not fit, and words for what that was."""
    x = subject.x if start is None else start
    options: dict[str, Any] = {"length": length}
    if choice.method not in (*METHODS, "longrope"):
        options |= {"extend": choice.method, "factor": choice.factor}
    attempts = [(trained, options, "")]
    if trained is not None:
        attempts.append((None, options, f"training on {trained:,} tokens"))
    if "extend" in options:
        attempts.append((None, {"length": length}, choice.label))
    for told, more, without in attempts[:-1]:
        try:
            return inspect(x, trained=told, **more), _without(without)
        except ConfigError:  # the charts and the config to copy say why
            continue
    told, more, without = attempts[-1]
    return inspect(x, trained=told, **more), _without(without)


def _without(what: str) -> list[str]:
    return [f"This is said without {what}, which does not fit this config."] if what else []


def _of(subject: Subject, found: Inspection, seen: str = "as published") -> dict[str, Any]:
    """seen: which config was inspected."""
    return {
        "name": subject.name,
        "model_type": found.model.model_type,
        "verdict": found.verdict,
        "context": None if subject.model is None else subject.model.context,
        "seen": seen,
        "groups": [_group(n, one) for n, one in enumerate(found.groups)],
        "frameworks": _frameworks(found, seen),
        "notes": _notes(found),
    }


def _notes(found: Inspection) -> list[str]:
    """What the verdict leaves unsaid."""
    texts = [text for name, text in list_notes(found) if name not in ("no-rotary", "no-sign")]
    return [text for text in texts if text not in found.verdict]


def _group(index: int, found: GroupReport) -> dict[str, Any]:
    return {
        "index": index,
        "title": describe_group(found),
        "rotates": found.encoding is not None,
        "facts": [list(row) for row in list_facts(found)],
    }


def _frameworks(found: Inspection, seen: str) -> list[dict[str, Any]]:
    """Each row says which config was read: the one inspected, or the extended one."""
    rows: list[dict[str, Any]] = []
    for group in found.groups:
        extended = select_comparisons(group, "as extended")
        for each in (*group.frameworks_as_published, *extended):
            remarks = [remark.text for remark in each.remarks]
            if each.why and not remarks:
                remarks = [each.why]
            row = {
                "framework": f"{each.framework} {each.version}",
                "config": seen if each.config == "as published" else each.config,
                "outcome": each.outcome,
                "differs": list(each.differs),
                "remarks": remarks,
            }
            if row not in rows:
                rows.append(row)
    return rows


def _findings(x: Any, length: int | None) -> dict[str, Any]:
    found = diagnosis.examine(x, length=length).to_dict()
    return {"findings": found["findings"], "counts": found["counts"]}


def _empty(subject: Subject) -> dict[str, Any]:
    return {
        "verdict": None,
        "groups": [],
        "frameworks": [],
        "notes": [],
        "findings": [],
        "counts": {},
        "config": _text(subject.data),
    }


def _text(data: Any) -> str | None:
    """The config as JSON, unless it is the metadata of a GGUF file with all its tokens."""
    text = json.dumps(dict(data), indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_TEXT else None
