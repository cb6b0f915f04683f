"""The base of the frequencies, rope_theta, which every change of schema loses somewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

from whorl._words import shorten
from whorl.doctor.engine import Case, Symptom, rule
from whorl.doctor.patient import Patient, Tower, number, shown

from ._beside import disagreements

__all__: list[str] = []

_V5 = "https://github.com/deepspeedai/DeepSpeed/pull/8345"
#: Names that other projects have for the base or the rotated share, and who reads them here.
_FOREIGN: Mapping[str, tuple[str, ...]] = {
    "rotary_emb_base": ("gpt_neox", "gpt_neox_japanese"),
    "rotary_pct": ("gpt_neox", "gpt_neox_japanese"),
    "rope_base": (),
    "rotary_base": (),
    "rope_freq_base": (),
    "rope_pct": (),
    "rotary_percent": (),
    "rope_ratio": (),
    # minimax_m3_vl_text declares it with a default and does not read it: no fault of the config.
    "rotary_dim": ("gptj", "codegen", "minimax_m2", "minimax_m3_vl_text"),
}


@rule(
    "theta-missing",
    "warning",
    what="rope_parameters without a rope_theta.",
    why="transformers 5 keeps rope_theta inside rope_parameters and writes it always; without"
    " it the class falls back to its default, 10,000 for most. A config that was edited by"
    " hand, or whose rope_scaling was assigned after construction, loses it without an error.",
    remedy="Write the rope_theta that the model was trained with into rope_parameters.",
    seen=(_V5, "https://github.com/sgl-project/sglang/pull/14745"),
    trigger=Case({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    near_miss=Case(
        {"rope_theta": 500000.0, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}
    ),
)
def theta_missing(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if tower.source != "rope_parameters" or tower.config.get("rope_theta") is not None:
            continue
        for block in tower.blocks:
            null = "rope_theta" in block.keys and tower.known_family  # transformers-refuses says it
            if not block.has("rope_theta") and not null:
                yield Symptom(
                    block.path("rope_theta"),
                    "no rope_theta here or beside it, so the default of the class is used, 10000"
                    " for most.",
                )


@rule(
    "theta-disagrees",
    "error",
    what="The base twice, with different values: inside and beside the rope parameters, or under"
    " two names.",
    why="transformers 5 takes the one inside; whatever reads config.rope_theta, as all code for"
    " version 4 does, takes the other. GPT-NeoX reads rotary_emb_base, other software rope_theta.",
    remedy="Remove the wrong one.",
    seen=("https://github.com/vllm-project/vllm/pull/44158", _V5),
    trigger=Case(
        {
            "rope_theta": 10000.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        }
    ),
    near_miss=Case(
        {
            "rope_theta": 500000,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        }
    ),
)
def theta_disagrees(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        beside, named = tower.number("rope_theta"), tower.number("rotary_emb_base")
        if beside is not None and named is not None and beside != named:
            yield Symptom(
                tower.path("rotary_emb_base"),
                f"rotary_emb_base is {shown(named)}, rope_theta is {shown(beside)}.",
            )
        yield from disagreements(tower, "rope_theta")


@rule(
    "class-default-wins",
    "error",
    what="A base or a share beside the rope parameters that the class has by default.",
    why="Some classes of transformers 5 come with rope_parameters of their own (Apertus, CWM,"
    " Gemma 4, Laguna, MiMo-V2-Flash, Ministral 3) or have other names for the base (ModernBERT)."
    " A rope_theta or partial_rotary_factor beside them, as version 4 wrote it, is not read.",
    remedy="Write rope_parameters, with the base and the share inside.",
    seen=(_V5, "https://github.com/sgl-project/sglang/pull/14745"),
    trigger=Case({"model_type": "apertus", "rope_theta": 500000.0}),
    near_miss=Case({"model_type": "apertus", "rope_theta": 12000000.0}),
)
def class_default_wins(patient: Patient) -> Iterator[Symptom]:
    towers = {tower.where: tower for tower in patient.towers}
    for where, ours, theirs in patient.compared:
        tower = towers.get(where)
        if tower is None or not tower.known_family or tower.coded or tower.source is not None:
            continue
        groups = [*theirs.groups, *ours.groups]
        turning = [group.parameters for group in groups if group.rotation is not None]
        if tower.config.get("rotary_emb_base") is not None:
            continue  # theta-disagrees says it
        for name in ("rope_theta", "partial_rotary_factor"):
            given, used = tower.number(name), [rope.get(name) for rope in turning]
            if given is None or not turning or given in used or None in used:
                continue
            values = " and ".join(dict.fromkeys(map(shown, used)))
            yield Symptom(
                tower.path(name),
                f"{name} is {shown(given)}; transformers' {tower.family} does not read it here, and"
                f" takes {values}.",
            )


@rule(
    "theta-inside-only",
    "note",
    what="rope_theta and the scaling stand inside rope_parameters only.",
    why="That is the schema of transformers 5. Software written for version 4 asks for"
    " rope_theta and rope_scaling beside it, finds neither, and silently runs with 10,000 and"
    " no scaling.",
    remedy="For such software, repeat rope_theta at the top level, which transformers 5 does not"
    " mind; a scaling has to go back into rope_scaling.",
    seen=(
        "https://github.com/Open-Athena/MarinFold/pull/198",
        _V5,
        "https://github.com/microsoft/onnxruntime-genai/pull/2311",
    ),
    trigger=Case({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    near_miss=Case({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
)
def theta_inside_only(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if tower.source != "rope_parameters" or tower.nested or "rope_theta" in tower.config:
            continue
        for block in tower.blocks:
            inside = block.number("rope_theta")
            lost = [] if inside in (None, 10_000) else [f"rope_theta {shown(inside)}"]
            if block.kind not in ("default", "axial"):
                lost.append(f"the {shorten(block.kind)} scaling")
            if lost:
                yield Symptom(
                    block.path(),
                    f"code for transformers 4 does not look here and loses {' and '.join(lost)}.",
                )


@rule(
    "foreign-name",
    "warning",
    what="The base or the rotated share under a name of another project.",
    why="GPT-NeoX says rotary_pct and rotary_emb_base, GPT-J and MiniMax rotary_dim, others"
    " rope_base. A class that reads none of them keeps the value and rotates by its default:"
    " MiniMax-M2 rotated whole heads that way.",
    remedy="Use rope_theta and partial_rotary_factor.",
    seen=(
        "https://github.com/huggingface/transformers/issues/48241",
        "https://github.com/vllm-project/vllm-ascend/pull/6581",
    ),
    trigger=Case({"rotary_emb_base": 1000000}),
    near_miss=Case({"model_type": "gpt_neox", "rotary_emb_base": 1000000, "rotary_pct": 0.25}),
)
def foreign_name(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if not tower.known_family:
            continue
        for name, readers in _FOREIGN.items():
            value = tower.config.get(name)
            if value is not None and tower.family not in readers and not _no_op(name, value, tower):
                yield Symptom(
                    tower.path(name), f"{tower.family} does not read {name}, which is"
                    f" {shown(value)} here."
                )  # fmt: skip


def _no_op(name: str, value: Any, tower: Tower) -> bool:
    """Whether the model does what the key says without reading it."""
    if name == "rotary_dim":
        return bool(value == tower.head_dim)
    if name in ("rotary_pct", "rope_pct", "rotary_percent", "rope_ratio"):
        return number(value) == 1
    inside = [block.number("rope_theta") for block in tower.blocks]
    given = number(value)
    return given is not None and given in (tower.number("rope_theta"), *inside)


@rule(
    "remote-default",
    "note",
    what="rope_type default in a model that brings its own code.",
    why='transformers 5 has no entry "default" in its table of rope functions any more, and code'
    " for version 4 looks it up there: KeyError: 'default'.",
    remedy="Load it with the version of transformers that its code was written for, or update the"
    " code.",
    seen=(
        "https://github.com/allenai/molmo2/issues/22",
        "https://github.com/huggingface/diffusers/issues/13357",
        "https://github.com/lightseekorg/TorchSpec/issues/101",
    ),
    trigger=Case(
        {
            "auto_map": {"AutoModel": "modeling_x.X"},
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        }
    ),
    near_miss=Case({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
)
def remote_default(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if not tower.config.get("auto_map"):
            continue
        for block in tower.blocks:
            if block.keys.get("rope_type", block.keys.get("type")) == "default":
                yield Symptom(
                    block.path("rope_type"),
                    "the model's own code may look up 'default', which transformers 5 has not.",
                )
