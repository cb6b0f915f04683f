"""Parameters by layer type, and parameters beside the part that they are for."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from whorl._support.words import suggest_name
from whorl.configs import ConfigError, read_config
from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.model import Patient
from whorl.configs.diagnosis.parts import Block, Tower, shown

__all__: list[str] = []

#: What DeepSeek-V4 calls its two ropes, which are no layer types.
_ROPE_LABELS = ("main", "compress")
_USUAL_TYPES = {"full_attention", "sliding_attention", "chunked_attention", "linear_attention"}
_ROPE_KEYS = ("rope_parameters", "rope_scaling")


def _gemma(**parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "gemma3_text",
        "head_dim": 256,
        "num_attention_heads": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": parameters,
    }


@rule(
    "unused-parameters",
    "error",
    what="Parameters for a layer type that no layer has.",
    why="Parameters are looked up by the names in layer_types. A dictionary under another name is"
    " not read. If none has a right name, and in every class without layer types, such as Llama's,"
    " the whole is taken for one flat dictionary that says nothing: no scaling, and a base of"
    " 10,000 unless rope_theta stands beside it.",
    remedy="Use the names that layer_types has; in a class without them, one flat dictionary.",
    seen=(
        "https://github.com/huggingface/transformers/issues/48392",
        "https://github.com/vllm-project/speculators/pull/649",
    ),
    trigger=Case(
        _gemma(
            full_atention={"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            sliding_attention={"rope_type": "default", "rope_theta": 10000.0},
        )
    ),
    near_miss=Case(
        _gemma(
            full_attention={"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            sliding_attention={"rope_type": "default", "rope_theta": 10000.0},
        )
    ),
)
def unused_parameters(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        used = _layer_types(tower) if tower.nested else None
        if used is None:
            continue
        if not used:
            if any(_says(block) for block in tower.blocks):
                yield _flat(tower)
            continue
        used |= set(_ROPE_LABELS)
        if slips := _slips_in_layer_types(tower):
            yield _misspelt_types(tower, slips)
            continue
        right = [block for block in tower.blocks if block.label in used]
        for block in tower.blocks:
            slip = difflib.get_close_matches(block.label or "", used, n=1, cutoff=0.85)
            if block.label not in used and (slip or not right):
                hint = suggest_name(block.label, used)
                yield Symptom(block.path(), f"no layer is {shown(block.label)}{hint}")


def _slips_in_layer_types(tower: Tower) -> dict[str, str]:
    """Names in layer_types that can only be slips for a label of the parameters, and the label."""
    given = tower.config.get("layer_types")
    names = {name for name in given if isinstance(name, str)} if isinstance(given, list) else set()
    labels = sorted(_USUAL_TYPES & {str(block.label) for block in tower.blocks})
    near = {
        name: difflib.get_close_matches(name, labels, n=1, cutoff=0.85)
        for name in sorted(names - _USUAL_TYPES)
    }
    return {name: found[0] for name, found in near.items() if found}


def _misspelt_types(tower: Tower, slips: Mapping[str, str]) -> Symptom:
    said = " ".join(f"{shown(name)}; did you mean {shown(good)}?" for name, good in slips.items())
    right = [slips.get(t, t) if isinstance(t, str) else t for t in tower.config["layer_types"]]
    return Symptom(
        tower.path("layer_types"),
        f"layer_types holds {said}",
        remedy="Correct the name in layer_types.",
        edits=(Edit("set", (*tower.where, "layer_types"), right),),
    )


def _layer_types(tower: Tower) -> set[str] | None:
    """The layer types of a model; none where its class has none, None where that is not known."""
    given = tower.config.get("layer_types")
    said = {name for name in given if isinstance(name, str)} if isinstance(given, list) else set()
    if not tower.known_family:
        return said or None
    bare = {name: value for name, value in tower.config.items() if name not in _ROPE_KEYS}
    try:
        groups = read_config({**bare, "model_type": tower.family}).groups
    except ConfigError:
        return said or None
    return said | {group.name for group in groups if group.name is not None}


def _says(block: Block) -> bool:
    """Whether something is lost with parameters that are not read."""
    base, beside = block.number("rope_theta"), block.tower.number("rope_theta")
    known = block.tower.class_entry.get("keys", {}).get("default_theta", 10_000.0)
    return block.kind != "default" or base not in (None, known if beside is None else beside)


def _flat(tower: Tower) -> Symptom:
    beside = tower.number("rope_theta")
    base = 10_000.0 if beside is None else beside
    where = (*tower.where, str(tower.source))
    edits: tuple[Edit, ...] = ()
    inner = tower.blocks[0].keys
    rest = {k: v for k, v in tower.config[where[-1]].items() if not isinstance(v, Mapping)}
    if len(tower.blocks) == 1 and all(inner.get(k, v) == v for k, v in rest.items()):
        edits = (Edit("set", where, {**rest, **inner}),)
    names = " and ".join(str(block.label) for block in tower.blocks[:4])
    return Symptom(
        ".".join(where),
        f"{tower.family} has no layer types and does not read {names}: it rotates unscaled, by"
        f" rope_theta {shown(base)}.",
        edits=edits,
    )


@rule(
    "old-type-key",
    "error",
    what="A scaling under the old key type, in a class that reads rope_type only.",
    why="Gemma 3, ModernBERT and OLMo 3 lay rope_scaling over parameters that have a rope_type of"
    " default already, which wins over type: transformers 5 does not scale, and says nothing.",
    remedy="Write rope_type for type.",
    seen=("https://github.com/lablup/mlxcel/pull/1386",),
    trigger=Case(
        {
            "model_type": "gemma3_text",
            "head_dim": 256,
            "num_attention_heads": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_scaling": {"type": "linear", "factor": 8.0},
        }
    ),
    near_miss=Case(
        {
            "model_type": "gemma3_text",
            "head_dim": 256,
            "num_attention_heads": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        }
    ),
)
def old_type_key(patient: Patient) -> Iterator[Symptom]:
    towers = {tower.where: tower for tower in patient.towers}
    for where, ours, theirs in patient.compared:
        lost = [
            mine.parameters.get("rope_type")
            for mine, other in zip(ours.groups, theirs.groups, strict=False)
            if mine.parameters.get("rope_type") != other.parameters.get("rope_type")
        ]
        for block in towers[where].blocks if lost and where in towers else ():
            if block.has("type") and not block.has("rope_type"):
                yield Symptom(
                    block.path("type"),
                    f"type {shown(lost[0])} is not read: transformers' {ours.model_type} rotates"
                    " unscaled.",
                    edits=(Edit("rename", (*block.where, "type"), "rope_type"),),
                )


_TEXT = {"model_type": "qwen2", "hidden_size": 4096, "num_attention_heads": 32}


@rule(
    "beside-the-text",
    "error",
    what="Rope parameters at the top of a model whose text has a config of its own.",
    why="The class of the text reads text_config. A rope_scaling beside it is ignored, or stops the"
    " config from loading because keys that it needs are not there.",
    remedy="Move it into text_config.",
    seen=("https://github.com/vllm-project/vllm-ascend/pull/14297",),
    trigger=Case(
        {
            "model_type": "llava",
            "text_config": _TEXT,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        }
    ),
    near_miss=Case(
        {
            "model_type": "llava",
            "text_config": {**_TEXT, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        }
    ),
)
def beside_the_text(patient: Patient) -> Iterator[Symptom]:
    if patient.reading is None:
        return
    for tower in patient.towers:
        rotates = "default_theta" in tower.class_entry.get("keys", {})  # beside its text
        if tower.reading is not None or not tower.known_family or rotates:
            continue
        inner = [part for part in patient.towers if part.where[:-1] == tower.where and part.where]
        for name in _ROPE_KEYS:
            given = tower.config.get(name)
            if isinstance(given, Mapping) and given and not _repeated(given, inner):
                yield Symptom(
                    tower.path(name), f"{tower.family} does not read it here, but in text_config."
                )


def _repeated(given: Mapping[str, Any], parts: list[Tower]) -> bool:
    """Whether it stands in a part as well."""
    return any(part.config.get(name) == given for part in parts for name in _ROPE_KEYS)
