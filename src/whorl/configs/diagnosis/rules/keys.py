"""Keys that contradict each other, or that nothing reads."""

from collections.abc import Iterator, Mapping
from typing import Any

from whorl._support.numerals import parse_number
from whorl.configs import ConfigError, read_config
from whorl.configs.diagnosis.engine import Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import ConfigPart, RopeDictionary, format_value, read_number

from ._vocabulary import (
    KEYS_BY_TYPE,
    KNOWN_KEYS,
    SECTION_KEYS,
    TYPE_ALIASES,
    is_known_type,
    is_neutral,
    list_read_keys,
)

__all__: list[str] = []


@rule(
    "unreadable",
    "error",
    what="The config cannot be read.",
    why="A size or a parameter is missing or impossible, so the frequencies cannot be computed."
    " This finding is left out if another error gives the reason.",
    remedy="Correct the key that the message names.",
    seen=("huggingface/transformers/issues/32167", "microsoft/KBLaM/issues/37"),
    trigger={"rope_scaling": {"rope_type": "linear"}},
    near_miss={"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
)
def check_unreadable(model: DiagnosedModel) -> Iterator[Problem]:
    if model.read_error is not None:
        yield Problem("", model.read_error)


@rule(
    "two-dictionaries",
    "error",
    what="rope_scaling and rope_parameters are both there, and they differ.",
    why="transformers 4 reads rope_scaling only. In transformers 5 a rope_scaling that is not"
    " empty replaces rope_parameters completely, in most classes. Software that reads"
    " rope_parameters only does the opposite. All of them run, with different angles.",
    remedy="Keep the one that the model was trained with: as rope_parameters for transformers 5,"
    " or as rope_scaling if older software must read it too.",
    seen=("vllm-project/vllm/pull/28542",),
    trigger={
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    near_miss={
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
)
def check_two_dictionaries(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        new, old = part.keys.get("rope_parameters"), part.keys.get("rope_scaling")
        if not (isinstance(new, Mapping) and isinstance(old, Mapping) and new and old):
            continue
        if _normalize_dictionary(new, part.keys) != _normalize_dictionary(old, part.keys):
            yield Problem(
                part.path("rope_scaling"),
                f"rope_scaling is {format_value(dict(old))}, rope_parameters is"
                f" {format_value(dict(new))}. {_describe_used_dictionary(part)}",
            )


def _describe_used_dictionary(part: ConfigPart) -> str:
    """A sentence that says which of the two dictionaries transformers 4 and 5 use."""
    without = {}
    for name in ("rope_scaling", "rope_parameters", None):
        keys = {k: v for k, v in part.keys.items() if k != name}
        try:
            found = read_config({**keys, "model_type": part.family}, parity="transformers")
        except ConfigError:
            continue
        without[name] = [(group.name, repr(group.rotation)) for group in found.groups]
    used = "rope_scaling"
    if None in without and without[None] != without.get("rope_parameters"):
        same = without[None] == without.get("rope_scaling")
        used = "rope_parameters" if same else "rope_scaling merged into rope_parameters"
    if not part.is_known_family:
        return "transformers 4 and 5 both use rope_scaling, unless the model has its own code."
    if used == "rope_scaling":
        return (
            "transformers 4 and 5 both use rope_scaling here; software that reads rope_parameters"
            " only uses that one."
        )
    return f"transformers 5 uses {used} in {part.family}; transformers 4 uses rope_scaling."


def _normalize_dictionary(keys: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a dictionary, with one spelling for equal meanings."""
    kind = keys.get("rope_type", keys.get("type", "default"))
    rest = {
        k: _convert_number(v)
        for k, v in keys.items()
        if k not in ("type", "rope_type") and v is not None
    }
    for name in ("rope_theta", "partial_rotary_factor"):
        if name not in rest and config.get(name) is not None:
            rest[name] = _convert_number(config[name])
    if rest.get("rope_theta") == 10000:  # the default of a missing one
        del rest["rope_theta"]
    return {**rest, "rope_type": _normalize_type(kind)}


def _convert_number(value: Any) -> Any:
    """The number that a string means, if it can mean only one; anything else unchanged."""
    found = parse_number(value, large=True) if isinstance(value, str) else None
    return found.value if found is not None and found.certain else value


def _normalize_type(kind: Any) -> Any:
    return TYPE_ALIASES.get(kind, kind) if isinstance(kind, str) else kind


@rule(
    "two-types",
    "error",
    what="type and rope_type name different scalings.",
    why="transformers reads rope_type and ignores type; software from 2023 and 2024 reads type."
    " When Llama 3.1 introduced rope_type, that software stopped because type was missing. Users"
    " then added a type to make the config load, and that software has read this type ever since.",
    remedy="Remove type, or give it the value of rope_type.",
    seen=("meta-llama/llama3/issues/299", "lablup/mlxcel/issues/1355"),
    trigger={"rope_scaling": {"type": "dynamic", "rope_type": "linear", "factor": 4.0}},
    near_miss={"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4.0}},
)
def check_two_types(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        old, new = rope.keys.get("type"), rope.keys.get("rope_type")
        if old is not None and new is not None and _normalize_type(old) != _normalize_type(new):
            yield Problem(
                rope.path("type"),
                f"type is {format_value(old)}, rope_type is {format_value(new)}; transformers 5"
                f" uses {format_value(new)}.",
            )


@rule(
    "lone-factor",
    "error",
    what="There is a factor but no rope_type, so the context is not extended.",
    why="Without a rope_type the parameters count as type default, which has no factor: the model"
    " runs without any scaling, and no message says so. vLLM and KBLaM stop instead, because the"
    " key is missing.",
    remedy='Add the type that you mean: "rope_type": "linear", "dynamic" or "yarn".',
    seen=("huggingface/transformers/issues/32167", "OpenBMB/MiniCPM/issues/269"),
    trigger={"rope_scaling": {"factor": 4.0}},
    near_miss={"rope_scaling": {"type": "linear", "factor": 4.0}},
)
def check_lone_factor(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        typed = rope.has("rope_type") or rope.has("type")
        if not typed and rope.has("factor") and not is_neutral("factor", rope.keys["factor"]):
            yield Problem(
                rope.path("factor"),
                f"factor is {format_value(rope.keys['factor'])}, but no rope_type says how to use"
                " it.",
            )


@rule(
    "ignored-key",
    "warning",
    what="A key that its rope_type does not read.",
    why="The value seems to do something, but has no effect. transformers writes one warning to"
    " the log and continues. In most cases the rope_type is not the intended one.",
    remedy="Remove the key, or choose the rope_type that reads it.",
    seen=("sgl-project/sglang/issues/2943", "QwenLM/Qwen2.5-Omni/issues/373"),
    trigger={"rope_scaling": {"rope_type": "linear", "factor": 4.0, "attention_factor": 1.2}},
    near_miss={"rope_scaling": {"rope_type": "linear", "factor": 4.0, "beta_fast": 32}},
)
def check_ignored_key(model: DiagnosedModel) -> Iterator[Problem]:
    yield from _find_keys_beside_layer_types(model)
    for rope in model.used_parameters:
        if rope.rope_type not in KEYS_BY_TYPE or not is_known_type(rope):
            continue  # unknown-type reports it
        read = list_read_keys(rope)
        for name in rope.keys:
            if name not in KNOWN_KEYS or name in read or is_neutral(name, rope.keys[name]):
                continue
            if name in SECTION_KEYS and _can_read_sections(rope):
                continue
            if name == "factor" and not (rope.has("rope_type") or rope.has("type")):
                continue  # lone-factor reports it
            yield Problem(
                rope.path(name),
                f"rope_type {rope.rope_type} does not read {name}, which is"
                f" {format_value(rope.keys[name])} here.",
            )


def _find_keys_beside_layer_types(model: DiagnosedModel) -> Iterator[Problem]:
    """Parameters beside those of the layer types, where only truncate is read."""
    for part in model.parts:
        outer = part.keys[part.used_key] if part.used_key and part.has_layer_types else {}
        if len(part.used_parameters) == 1 and not part.keys.get("layer_types"):
            continue  # unused-parameters reports it
        for name in sorted(KNOWN_KEYS - {"truncate", "rope_type", "type"}):
            if outer.get(name) is not None and not is_neutral(name, outer[name]):
                yield Problem(
                    part.path(str(part.used_key), name),
                    f"{name} is {format_value(outer[name])} beside the parameters of layer types,"
                    " where nothing reads it.",
                    remedy="Move it into the parameters of each layer type that it is for.",
                )


def _can_read_sections(rope: RopeDictionary) -> bool:
    """Whether the layers may use sections of M-RoPE; true for an unknown family."""
    if not rope.part.is_known_family:
        return True
    rotations = [group.rotation for group in rope.layer_groups if group.rotation is not None]
    return not rotations or any(r.encoding != "rope" for r in rotations)


_IGNORED_IN_CODE = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")


@rule(
    "in-code",
    "error",
    what="Rope parameters in a family whose code fixes the frequencies.",
    why="GPT-J, CodeGen, RoFormer, CLVP, ESM and the Conformers are older than rope parameters."
    " Their classes keep the keys but do not use them: they rotate with base 10,000 and without"
    " scaling. Two exceptions: ESM reads rope_theta, and the Conformers read"
    " rotary_embedding_base.",
    remedy="Remove the keys. To extend such a model, change its code.",
    seen=("huggingface/transformers/issues/24472", "huggingface/transformers/pull/24653"),
    trigger={"model_type": "gptj", "rotary_dim": 64, "rope_theta": 500000.0},
    near_miss={"rope_theta": 10000.0},
)
def check_in_code(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        read = "rope_theta" if part.family in ("esm", "SaProtConfig") else ""
        for name in (
            _IGNORED_IN_CODE if part.has_fixed_frequencies and model.has_rotary_layers(part) else ()
        ):
            value = part.keys.get(name)
            if name == read or not value or _is_usual_value(value):
                continue
            yield Problem(
                part.path(name),
                f"the code of {part.family} fixes the frequencies and does not read {name}, which"
                f" is {format_value(dict(value) if isinstance(value, Mapping) else value)} here.",
            )


def _is_usual_value(value: Any) -> bool:
    """Whether a value asks for base 10,000, the whole head and no scaling, as such code has it."""
    if not isinstance(value, Mapping):
        return read_number(value) in (1, 10_000)
    kind = value.get("rope_type", value.get("type", "default"))
    rest = [v for k, v in value.items() if k not in ("rope_type", "type")]
    return kind in ("default", None) and all(v is None or _is_usual_value(v) for v in rest)


@rule(
    "rope-unused",
    "note",
    what="Rope parameters in a model without rotary layers.",
    why="Some families have these keys but build rotary layers only on request, or never (Zamba2,"
    " GraniteMoeHybrid, Kimi-Linear). Changing the keys changes nothing.",
    remedy="Nothing to do, unless the model should have rotary layers.",
    seen=("huggingface/transformers/pull/34517",),
    trigger={"model_type": "kimi_linear", "rope_theta": 10000.0},
    near_miss=RuleExample({"model_type": "kimi_linear"}),
)
def check_rope_unused(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if part.reading is None or any(g.rotation or g.refusal for g in part.reading.groups):
            continue
        if part.family is None:
            continue  # settings of the attention, such as attn_config of DBRX, are no model
        for name in ("rope_parameters", "rope_scaling", "rope_theta"):
            if part.keys.get(name):
                yield Problem(
                    part.path(name), f"{part.family} has no rotary layers, so nothing reads it."
                )
                break
