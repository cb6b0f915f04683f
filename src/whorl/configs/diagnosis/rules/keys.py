"""Keys that contradict each other, or that nothing reads."""

from collections.abc import Iterator, Mapping
from typing import Any

from whorl._support.numerals import parse_number
from whorl.configs import ConfigError, read_config
from whorl.configs.diagnosis.engine import Case, Symptom, rule
from whorl.configs.diagnosis.model import Patient
from whorl.configs.diagnosis.parts import Block, Tower, number, shown

from ._vocabulary import ALIASES, KNOWN, READ, SECTIONS, is_neutral, knows_type, read_by

__all__: list[str] = []


@rule(
    "unreadable",
    "error",
    what="The config cannot be read.",
    why="A size or a parameter is missing or impossible, so that no frequencies follow from it."
    " Where another error says why, this one is left out.",
    remedy="Correct the key that the message names.",
    seen=(
        "https://github.com/huggingface/transformers/issues/32167",
        "https://github.com/microsoft/KBLaM/issues/37",
    ),
    trigger=Case({"rope_scaling": {"rope_type": "linear"}}),
    near_miss=Case({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
)
def unreadable(patient: Patient) -> Iterator[Symptom]:
    if patient.refusal is not None:
        yield Symptom("", patient.refusal.removeprefix("read_config: "))


@rule(
    "two-dictionaries",
    "error",
    what="rope_scaling and rope_parameters both stand there, and differ.",
    why="transformers 4 knows rope_scaling only, and transformers 5 lets one that is not empty"
    " replace rope_parameters entirely, in most classes; software that knows the new name only does"
    " the opposite. Each runs, with other angles.",
    remedy="Keep the one that the model was trained with: as rope_parameters for transformers 5, as"
    " rope_scaling for older software too.",
    seen=("https://github.com/vllm-project/vllm/pull/28542",),
    trigger=Case(
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        }
    ),
    near_miss=Case(
        {
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
            "rope_scaling": {"type": "linear", "factor": 4.0},
        }
    ),
)
def two_dictionaries(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        new, old = tower.config.get("rope_parameters"), tower.config.get("rope_scaling")
        if not (isinstance(new, Mapping) and isinstance(old, Mapping) and new and old):
            continue
        if _meaning(new, tower.config) != _meaning(old, tower.config):
            yield Symptom(
                tower.path("rope_scaling"),
                f"rope_scaling says {shown(dict(old))}, rope_parameters {shown(dict(new))}."
                f" {_which_counts(tower)}",
            )


def _which_counts(tower: Tower) -> str:
    """Which of the two dictionaries versions 4 and 5 of transformers use."""
    without = {}
    for name in ("rope_scaling", "rope_parameters", None):
        keys = {k: v for k, v in tower.config.items() if k != name}
        try:
            found = read_config({**keys, "model_type": tower.family}, parity="transformers")
        except ConfigError:
            continue
        without[name] = [(group.name, repr(group.rotation)) for group in found.groups]
    used = "rope_scaling"
    if None in without and without[None] != without.get("rope_parameters"):
        same = without[None] == without.get("rope_scaling")
        used = "rope_parameters" if same else "rope_scaling laid over rope_parameters"
    if not tower.known_family:
        return "transformers 4 and 5 both use rope_scaling, unless the model brings its own code."
    if used == "rope_scaling":
        return (
            "transformers 4 and 5 both use rope_scaling here; software that knows rope_parameters"
            " only uses that."
        )
    return f"transformers 5 uses {used} in {tower.family}; transformers 4 uses rope_scaling."


def _meaning(keys: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What a dictionary says, in one spelling."""
    kind = keys.get("rope_type", keys.get("type", "default"))
    rest = {
        k: _as_number(v)
        for k, v in keys.items()
        if k not in ("type", "rope_type") and v is not None
    }
    for name in ("rope_theta", "partial_rotary_factor"):
        if name not in rest and config.get(name) is not None:
            rest[name] = _as_number(config[name])
    if rest.get("rope_theta") == 10000:  # what stands for a missing one
        del rest["rope_theta"]
    return {**rest, "rope_type": _canonical(kind)}


def _as_number(value: Any) -> Any:
    """The number that a string can only stand for; anything else as it is."""
    found = parse_number(value, large=True) if isinstance(value, str) else None
    return found.value if found is not None and found.certain else value


def _canonical(kind: Any) -> Any:
    return ALIASES.get(kind, kind) if isinstance(kind, str) else kind


@rule(
    "two-types",
    "error",
    what="type and rope_type name different scalings.",
    why="transformers takes rope_type and keeps type unread; software of 2023 and 2024 takes"
    " type. When Llama 3.1 came with rope_type, such software stopped for want of a type, and"
    " one that was added to make it load is read there ever since.",
    remedy="Remove type, or make it the same as rope_type.",
    seen=(
        "https://github.com/meta-llama/llama3/issues/299",
        "https://github.com/lablup/mlxcel/issues/1355",
    ),
    trigger=Case({"rope_scaling": {"type": "dynamic", "rope_type": "linear", "factor": 4.0}}),
    near_miss=Case({"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4.0}}),
)
def two_types(patient: Patient) -> Iterator[Symptom]:
    for block in patient.every_block:
        old, new = block.keys.get("type"), block.keys.get("rope_type")
        if old is not None and new is not None and _canonical(old) != _canonical(new):
            yield Symptom(
                block.path("type"),
                f"type is {shown(old)}, rope_type is {shown(new)}; transformers 5 takes"
                f" {shown(new)}.",
            )


@rule(
    "lone-factor",
    "error",
    what="A factor without a rope_type stretches nothing.",
    why="Without a type the parameters count as default, which has no factor: the model runs at its"
    " trained length and says nothing. vLLM and KBLaM stop instead, because the key is missing.",
    remedy='Add the type that is meant: "rope_type": "linear", "dynamic" or "yarn".',
    seen=(
        "https://github.com/huggingface/transformers/issues/32167",
        "https://github.com/OpenBMB/MiniCPM/issues/269",
    ),
    trigger=Case({"rope_scaling": {"factor": 4.0}}),
    near_miss=Case({"rope_scaling": {"type": "linear", "factor": 4.0}}),
)
def lone_factor(patient: Patient) -> Iterator[Symptom]:
    for block in patient.every_block:
        typed = block.has("rope_type") or block.has("type")
        if not typed and block.has("factor") and not is_neutral("factor", block.keys["factor"]):
            yield Symptom(
                block.path("factor"),
                f"factor is {shown(block.keys['factor'])}, and no rope_type says what to do with"
                " it.",
            )


@rule(
    "ignored-key",
    "warning",
    what="A key that its rope_type does not read.",
    why="The value looks as if it did something. transformers warns once in the log and goes on;"
    " most often the type is not the one that was meant.",
    remedy="Remove the key, or choose the rope_type that reads it.",
    seen=(
        "https://github.com/sgl-project/sglang/issues/2943",
        "https://github.com/QwenLM/Qwen2.5-Omni/issues/373",
    ),
    trigger=Case({"rope_scaling": {"rope_type": "linear", "factor": 4.0, "attention_factor": 1.2}}),
    near_miss=Case({"rope_scaling": {"rope_type": "linear", "factor": 4.0, "beta_fast": 32}}),
)
def ignored_key(patient: Patient) -> Iterator[Symptom]:
    yield from _beside_layer_types(patient)
    for block in patient.blocks:
        if block.kind not in READ or not knows_type(block):
            continue  # unknown-type says it
        read = read_by(block)
        for name in block.keys:
            if name not in KNOWN or name in read or is_neutral(name, block.keys[name]):
                continue
            if name in SECTIONS and _reads_sections(block):
                continue
            if name == "factor" and not (block.has("rope_type") or block.has("type")):
                continue  # lone-factor says it
            yield Symptom(
                block.path(name),
                f"rope_type {block.kind} does not read {name}, which is"
                f" {shown(block.keys[name])} here.",
            )


def _beside_layer_types(patient: Patient) -> Iterator[Symptom]:
    """Parameters that stand beside those of layer types, where only truncate is read."""
    for tower in patient.towers:
        outer = tower.config[tower.source] if tower.source and tower.nested else {}
        if len(tower.blocks) == 1 and not tower.config.get("layer_types"):
            continue  # unused-parameters says it
        for name in sorted(KNOWN - {"truncate", "rope_type", "type"}):
            if outer.get(name) is not None and not is_neutral(name, outer[name]):
                yield Symptom(
                    tower.path(str(tower.source), name),
                    f"{name} is {shown(outer[name])} beside the parameters of layer types, where"
                    " nothing reads it.",
                    remedy="Write it into the parameters of each layer type that it is for.",
                )


def _reads_sections(block: Block) -> bool:
    if not block.tower.known_family:
        return True
    rotations = [group.rotation for group in block.groups if group.rotation is not None]
    return not rotations or any(r.encoding != "rope" for r in rotations)


_CODED = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")


@rule(
    "in-code",
    "error",
    what="Rope parameters in a family whose frequencies stand in its code.",
    why="GPT-J, CodeGen, RoFormer, CLVP, ESM and the Conformers were written before there were rope"
    " parameters. Their classes keep the keys and rotate as ever, by the base 10,000 and unscaled;"
    " ESM reads rope_theta, the Conformers rotary_embedding_base.",
    remedy="Remove the keys; to extend the model, its code has to change.",
    seen=(
        "https://github.com/huggingface/transformers/issues/24472",
        "https://github.com/huggingface/transformers/pull/24653",
    ),
    trigger=Case({"model_type": "gptj", "rotary_dim": 64, "rope_theta": 500000.0}),
    near_miss=Case({"model_type": "gptj", "rotary_dim": 64, "rope_theta": 10000.0}),
)
def in_code(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        read = "rope_theta" if tower.family in ("esm", "SaProtConfig") else ""
        for name in _CODED if tower.coded and patient.rotates(tower) else ():
            value = tower.config.get(name)
            if name == read or not value or _plain(value):
                continue
            yield Symptom(
                tower.path(name),
                f"{tower.family} has its frequencies in its code and does not read {name}, which is"
                f" {shown(dict(value) if isinstance(value, Mapping) else value)} here.",
            )


def _plain(value: Any) -> bool:
    """Whether a value asks for what such code does anyway."""
    if not isinstance(value, Mapping):
        return number(value) in (1, 10_000)
    kind = value.get("rope_type", value.get("type", "default"))
    rest = [v for k, v in value.items() if k not in ("rope_type", "type")]
    return kind in ("default", None) and all(v is None or _plain(v) for v in rest)


@rule(
    "rope-unused",
    "note",
    what="Rope parameters in a model without rotary layers.",
    why="Some families carry the keys along and build rotary layers only on request, or not at all"
    " (Zamba2, GraniteMoeHybrid, Kimi-Linear): changing them changes nothing.",
    remedy="Nothing to do, unless the model was meant to rotate.",
    seen=("https://github.com/huggingface/transformers/pull/34517",),
    trigger=Case({"model_type": "kimi_linear", "rope_theta": 10000.0}),
    near_miss=Case({"model_type": "kimi_linear"}),
)
def rope_unused(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if tower.reading is None or any(g.rotation or g.refusal for g in tower.reading.groups):
            continue
        if tower.family is None:
            continue  # settings of its attention, such as attn_config of DBRX: no model
        for name in ("rope_parameters", "rope_scaling", "rope_theta"):
            if tower.config.get(name):
                yield Symptom(
                    tower.path(name), f"{tower.family} has no rotary layers, so nothing reads it."
                )
                break
