"""Parameters for layer types, and parameters outside the part that they belong to."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from whorl._support.words import suggest_name
from whorl.configs import ConfigError, read_config
from whorl.configs.diagnosis.engine import Edit, Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import ConfigPart, RopeDictionary, format_value

from ._examples import LAYER_TYPES

__all__: list[str] = []

#: Labels of the two kinds of RoPE in DeepSeek-V4, which are no layer types.
_ROPE_LABELS = ("main", "compress")
_USUAL_TYPES = {"full_attention", "sliding_attention", "chunked_attention", "linear_attention"}
_ROPE_KEYS = ("rope_parameters", "rope_scaling")


_GEMMA = {
    "model_type": "gemma3_text",
    "head_dim": 256,
    "num_attention_heads": 8,
    "layer_types": LAYER_TYPES,
}
_LINEAR = {"rope_type": "linear", "factor": 4.0}
_FULL = {**_LINEAR, "rope_theta": 1000000.0}
_SLIDING = {"rope_type": "default", "rope_theta": 10000.0}


@rule(
    "unused-parameters",
    "error",
    what="Parameters for a layer type that no layer has.",
    why="Parameters are looked up by the names in layer_types; a dictionary under any other name"
    " is not read. If no name matches, or if the class has no layer types, as Llama's has none,"
    " the whole is taken for one flat dictionary without any parameters: no scaling, and base"
    " 10,000 unless there is a rope_theta beside it.",
    remedy="Use the names that are in layer_types; in a class without layer types, use one flat"
    " dictionary.",
    seen=("huggingface/transformers/issues/48392", "vllm-project/speculators/pull/649"),
    trigger={**_GEMMA, "rope_parameters": {"full_atention": _FULL, "sliding_attention": _SLIDING}},
    near_miss={"rope_parameters": {"full_attention": _FULL, "sliding_attention": _SLIDING}},
)
def check_unused_parameters(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        used = _read_layer_types(part) if part.has_layer_types else None
        if used is None:
            continue
        if not used:
            if any(_has_effect(rope) for rope in part.used_parameters):
                yield _report_unread_layer_types(part)
            continue
        used |= set(_ROPE_LABELS)
        if slips := _find_misspelt_layer_types(part):
            yield _report_misspelt_layer_types(part, slips)
            continue
        right = [rope for rope in part.used_parameters if rope.layer_type in used]
        for rope in part.used_parameters:
            slip = difflib.get_close_matches(rope.layer_type or "", used, n=1, cutoff=0.85)
            if rope.layer_type not in used and (slip or not right):
                hint = suggest_name(rope.layer_type, used)
                yield Problem(
                    rope.path(), f"no layer has the type {format_value(rope.layer_type)}{hint}"
                )


def _find_misspelt_layer_types(part: ConfigPart) -> dict[str, str]:
    """Misspelt names in layer_types, each with the layer type of the parameters that it means."""
    given = part.keys.get("layer_types")
    names = {name for name in given if isinstance(name, str)} if isinstance(given, list) else set()
    labels = sorted(_USUAL_TYPES & {str(rope.layer_type) for rope in part.used_parameters})
    near = {
        name: difflib.get_close_matches(name, labels, n=1, cutoff=0.85)
        for name in sorted(names - _USUAL_TYPES)
    }
    return {name: found[0] for name, found in near.items() if found}


def _report_misspelt_layer_types(part: ConfigPart, slips: Mapping[str, str]) -> Problem:
    said = " ".join(
        f"{format_value(name)}; did you mean {format_value(good)}?" for name, good in slips.items()
    )
    right = [slips.get(t, t) if isinstance(t, str) else t for t in part.keys["layer_types"]]
    return Problem(
        part.path("layer_types"),
        f"layer_types contains {said}",
        remedy="Correct the name in layer_types.",
        edits=(Edit("set", (*part.where, "layer_types"), right),),
    )


def _read_layer_types(part: ConfigPart) -> set[str] | None:
    """The layer types of a model; empty if its class has none, None if that is not known."""
    given = part.keys.get("layer_types")
    said = {name for name in given if isinstance(name, str)} if isinstance(given, list) else set()
    if not part.is_known_family:
        return said or None
    bare = {name: value for name, value in part.keys.items() if name not in _ROPE_KEYS}
    try:
        groups = read_config({**bare, "model_type": part.family}).groups
    except ConfigError:
        return said or None
    return said | {group.name for group in groups if group.name is not None}


def _has_effect(rope: RopeDictionary) -> bool:
    """Whether ignoring these parameters changes the rotation."""
    base, beside = rope.get_number("rope_theta"), rope.part.get_number("rope_theta")
    known = rope.part.class_entry.get("keys", {}).get("default_theta", 10_000.0)
    return rope.rope_type != "default" or base not in (None, known if beside is None else beside)


def _report_unread_layer_types(part: ConfigPart) -> Problem:
    beside = part.get_number("rope_theta")
    base = 10_000.0 if beside is None else beside
    where = (*part.where, str(part.used_key))
    edits: tuple[Edit, ...] = ()
    inner = part.used_parameters[0].keys
    rest = {k: v for k, v in part.keys[where[-1]].items() if not isinstance(v, Mapping)}
    if len(part.used_parameters) == 1 and all(inner.get(k, v) == v for k, v in rest.items()):
        edits = (Edit("set", where, {**rest, **inner}),)
    names = " and ".join(str(rope.layer_type) for rope in part.used_parameters[:4])
    return Problem(
        ".".join(where),
        f"{part.family} has no layer types and does not read {names}: it rotates unscaled, by"
        f" rope_theta {format_value(base)}.",
        edits=edits,
    )


@rule(
    "old-type-key",
    "error",
    what="A scaling under the old key type, in a class that reads rope_type only.",
    why="Gemma 3, ModernBERT and OLMo 3 merge rope_scaling into parameters that already have the"
    " rope_type default, and rope_type has priority over type: transformers 5 does not scale, and"
    " no message says so.",
    remedy="Rename type to rope_type.",
    seen=("lablup/mlxcel/pull/1386",),
    trigger={**_GEMMA, "rope_scaling": {"type": "linear", "factor": 8.0}},
    near_miss={"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
)
def check_old_type_key(model: DiagnosedModel) -> Iterator[Problem]:
    for part, ours, theirs in model.compared_readings:
        lost = [
            mine.parameters.get("rope_type")
            for mine, other in zip(ours.groups, theirs, strict=False)
            if mine.parameters.get("rope_type") != other.parameters.get("rope_type")
        ]
        for rope in part.used_parameters if lost else ():
            if rope.has("type") and not rope.has("rope_type"):
                yield Problem(
                    rope.path("type"),
                    f"type {format_value(lost[0])} is not read: transformers' {ours.model_type}"
                    " rotates unscaled.",
                    edits=(Edit("rename", (*rope.where, "type"), "rope_type"),),
                )


_TEXT = {"model_type": "qwen2", "hidden_size": 4096, "num_attention_heads": 32}


@rule(
    "beside-the-text",
    "error",
    what="Rope parameters at the top level of a model whose text part has its own config.",
    why="The class of the text part reads text_config. A rope_scaling at the top level is ignored,"
    " or the config does not load because keys that it needs are missing there.",
    remedy="Move the parameters into text_config.",
    seen=("vllm-project/vllm-ascend/pull/14297",),
    trigger={"model_type": "llava", "text_config": _TEXT, "rope_scaling": _LINEAR},
    near_miss=RuleExample(
        {"model_type": "llava", "text_config": {**_TEXT, "rope_scaling": _LINEAR}}
    ),
)
def check_beside_the_text(model: DiagnosedModel) -> Iterator[Problem]:
    if model.reading is None:
        return
    for part in model.parts:
        rotates = "default_theta" in part.class_entry.get("keys", {})  # not only its text
        if part.reading is not None or not part.is_known_family or rotates:
            continue
        inner = [p for p in model.parts if p.where[:-1] == part.where and p.where]
        for name in _ROPE_KEYS:
            given = part.keys.get(name)
            if isinstance(given, Mapping) and given and not _is_repeated_in(given, inner):
                yield Problem(
                    part.path(name), f"{part.family} does not read it here, only in text_config."
                )


def _is_repeated_in(given: Mapping[str, Any], parts: list[ConfigPart]) -> bool:
    """Whether one of the parts has the same dictionary."""
    return any(part.keys.get(name) == given for part in parts for name in _ROPE_KEYS)
