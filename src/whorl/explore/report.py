"""The results of inspect and doctor, for a config and for the config as the sliders change it."""

import dataclasses
import json
from typing import Any

from whorl.configs import ConfigError, diagnosis, presets
from whorl.configs.inspection import GroupReport, Inspection, inspect
from whorl.configs.inspection.lengths import find_trained_context
from whorl.configs.inspection.words import (
    describe_group,
    list_facts,
    list_notes,
    select_comparisons,
)

from ._checks import format_error
from .choices import METHODS, Choice
from .rewrite import RewrittenConfig, rewrite_config
from .state import ExploredConfig

__all__ = ["build_report"]

_TEXT_LIMIT = 200_000


def build_report(
    explored: ExploredConfig,
    *,
    group: int | None = None,
    length: int | None = None,
    trained: int | None = None,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """The verdict, the facts of each layer group, the findings, and the config to copy.

    A config that cannot be read has findings too, and its problem instead of a verdict.
    """
    if explored.model is None:
        nothing: dict[str, Any] = {"findings": [], "counts": {}}
        return {
            "name": explored.name,
            "problem": explored.problem,
            "verdict": None,
            "groups": [],
            "frameworks": [],
            "notes": [],
            "config": _format_config(explored.data),
            **(nothing if explored.source == {} else _diagnose(explored.source, length)),
        }
    try:
        index, layers = explored.select_group(group)
    except ConfigError as error:
        looked = inspect(explored.source)
        return {
            **_summarize(explored, looked),
            "problem": format_error(error),
            "config": _format_config(explored.data),
            **_diagnose(explored.source, length),
        }
    assert layers.rotation is not None
    made = _write_choice(explored, index, choice, trained)
    written = made.config
    published = choice.is_config or written is None
    start = _select_config(explored, index, choice, trained)
    looked, missing = _inspect_config(explored, start, length, trained, choice)
    seen = "as published" if start is None else label_choice(choice)
    if start is not None and choice.method not in (*METHODS, "longrope"):
        seen = "as changed"
    options = layers.rotation.options
    known = options.get("base") if options.get("inv_freq") is None else None
    return {
        **_summarize(explored, looked, seen),
        "notes": [*missing, *_list_notes(looked)],
        "problem": None,
        "group": index,
        "base": known if isinstance(known, (int, float)) else None,
        "head_dim": options.get("head_dim"),
        "trained": find_trained_context(explored.model, layers, None),
        "config": None if written is None else _format_config(written),
        "configs": {
            one: _format_config(made.configs[one]) for one in made.order if one in made.configs
        },
        "dialect": made.dialect,
        "warnings": list(made.warnings),
        "why": made.why,
        **_diagnose(explored.source if published else written, length),
        "findings_of": "as published" if published else label_choice(choice),
    }


def label_choice(choice: Choice) -> str:
    """Words for the config that results from a choice."""
    if choice.is_config:
        return "as published"
    return "as changed" if choice.method in METHODS else "as extended"


def _write_choice(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> RewrittenConfig:
    try:
        return rewrite_config(explored, index, choice, trained)
    except ConfigError as error:
        return RewrittenConfig(why=format_error(error))


def _select_config(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> dict[str, Any] | None:
    """The config to inspect, with the chosen base but not the extension; None for the original.

    ``inspect`` applies extensions itself, except LongRoPE and the removal of a scaling: for these
    it is the rewritten config.
    """
    if choice.method in ("longrope", "none"):
        return _write_choice(explored, index, choice, trained).config
    if not choice.base:
        return None
    based = dataclasses.replace(choice, method="config", factor=None)
    return _write_choice(explored, index, based, trained).config


def _inspect_config(
    explored: ExploredConfig,
    start: dict[str, Any] | None,
    length: int | None,
    trained: int | None,
    choice: Choice,
) -> tuple[Inspection, list[str]]:
    """The inspection, without arguments that do not fit the config, and notes about those."""
    source = explored.source if start is None else start
    options: dict[str, Any] = {"length": length}
    if choice.method not in (*METHODS, "longrope"):
        options |= {"extend": choice.method, "factor": choice.factor}
    attempts = [(trained, options, "")]
    if trained is not None:
        attempts.append((None, options, f"training on {trained:,} tokens"))
    if "extend" in options:
        attempts.append((None, {"length": length}, choice.label))
    for attempt in attempts:
        told, more, what = attempt
        try:
            looked = inspect(source, trained=told, **more)
        except ConfigError:  # the charts and the config to copy say why
            if attempt is attempts[-1]:
                raise
        else:
            break
    omission = f"This is without {what}, which does not fit this config."
    return looked, [omission] if what else []


def _summarize(
    explored: ExploredConfig, found: Inspection, seen: str = "as published"
) -> dict[str, Any]:
    """The parts of the report that come from inspect; seen: which config was inspected."""
    return {
        "name": explored.name,
        "model_type": found.model.model_type,
        "verdict": found.verdict,
        "context": None if explored.model is None else explored.model.context,
        "seen": seen,
        "groups": [_describe_group(n, one) for n, one in enumerate(found.groups)],
        "frameworks": _describe_frameworks(found, seen),
        "notes": _list_notes(found),
    }


def _list_notes(found: Inspection) -> list[str]:
    """Notes that the verdict does not contain."""
    texts = [text for name, text in list_notes(found) if name not in ("no-rotary", "no-sign")]
    return [text for text in texts if text not in found.verdict]


def _describe_group(index: int, found: GroupReport) -> dict[str, Any]:
    return {
        "index": index,
        "title": describe_group(found),
        "rotates": found.encoding is not None,
        "facts": [list(row) for row in list_facts(found)],
    }


def _describe_frameworks(found: Inspection, seen: str) -> list[dict[str, Any]]:
    """How each framework reads the inspected config, and the extended one."""
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


def _diagnose(source: Any, length: int | None) -> dict[str, Any]:
    found = diagnosis.diagnose(source, length=length).to_dict()
    return {"findings": found["findings"], "counts": found["counts"]}


def _format_config(data: Any) -> str | None:
    """The config as JSON without the notes of a preset; None for the tokens of a GGUF file."""
    keys = {key: value for key, value in data.items() if key not in presets.NOTES}
    text = json.dumps(keys, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= _TEXT_LIMIT else None
