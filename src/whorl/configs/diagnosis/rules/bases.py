"""The base of the frequencies, rope_theta."""

from collections.abc import Iterator, Mapping
from typing import Any

from whorl.configs.diagnosis.engine import Edit, Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import ConfigPart, RopeDictionary, format_value, read_number
from whorl.configs.huggingface.write import (
    list_losses,
    read_major_version,
    write_dialect_lines,
)

from ._disagreement import find_disagreements

__all__: list[str] = []

_MOVED_BASE = "deepspeedai/DeepSpeed/pull/8345"
#: Names of other projects for the base, the share or the layout, and the families that read them.
_FOREIGN_KEYS: Mapping[str, tuple[str, ...]] = {
    "rotary_emb_base": ("gpt_neox", "gpt_neox_japanese"),
    "rotary_pct": ("gpt_neox", "gpt_neox_japanese"),
    "rope_base": (),
    "rotary_base": (),
    "rope_freq_base": (),
    "rope_pct": (),
    "rotary_percent": (),
    "rope_ratio": (),
    "rotary_emb_fraction": (),
    "rotary_emb_interleaved": (),
    "rotary_scaling_factor": (),
    "rope_freq_constant": (),
    # minimax_m3_vl_text declares it with a default and does not read it: the config is right.
    "rotary_dim": ("gptj", "codegen", "minimax_m2", "minimax_m3_vl_text"),
}
#: Those of them that change nothing if they are 1.
_FOREIGN_SHARES = (
    *("rotary_pct", "rope_pct", "rotary_percent", "rope_ratio"),
    *("rotary_emb_fraction", "rotary_scaling_factor"),
)
#: Keys of six layers; the last one has full attention.
_GEMMA: Mapping[str, Any] = {
    "model_type": "gemma3_text",
    "head_dim": 128,
    "num_hidden_layers": 6,
    "sliding_window": 1024,
}


@rule(
    "theta-missing",
    "warning",
    what="rope_parameters without a rope_theta, or a llama3 scaling without one.",
    why="transformers 5 stores rope_theta inside rope_parameters and always writes it. If it is"
    " missing, the class uses its default, 10,000 in most cases. A config that was edited by hand,"
    " or whose rope_scaling was assigned after it was created, loses rope_theta without an error."
    " A rope_scaling of version 4 may have no rope_theta, as in Llama 2, but not one of type"
    " llama3, because these models were trained with 500,000.",
    remedy="Write the rope_theta that the model was trained with into rope_parameters.",
    seen=(_MOVED_BASE, "sgl-project/sglang/pull/14745"),
    trigger={"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    near_miss={"rope_theta": 500000.0},
)
def check_theta_missing(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if part.has("rope_theta"):
            continue
        for rope in part.used_parameters:
            if part.used_key != "rope_parameters" and not _is_llama3_of_10000(rope):
                continue
            # transformers-refuses reports a null in a known family.
            null = "rope_theta" in rope.keys and part.is_known_family
            old = part.used_key == "rope_scaling"
            if not rope.has("rope_theta") and not null:
                yield Problem(
                    part.path("rope_theta") if old else rope.path("rope_theta"),
                    "there is no rope_theta here or beside it, so the default of the class is used,"
                    " 10000 in most cases.",
                    remedy="Write the rope_theta that the model was trained with beside"
                    " rope_scaling; Llama 3 has 500000.0."
                    if old
                    else None,
                )


def _is_llama3_of_10000(rope: RopeDictionary) -> bool:
    """Whether a llama3 scaling was read with base 10,000, which is Llama 2's."""
    bases = [read_number(group.parameters.get("rope_theta")) for group in rope.layer_groups]
    return rope.rope_type == "llama3" and 10_000.0 in bases


@rule(
    "theta-disagrees",
    "error",
    what="The base is there twice with different values: inside and beside the rope parameters, or"
    " under two names.",
    why="transformers 5 uses the one inside. Software that reads config.rope_theta, as all code"
    " for version 4 does, uses the other one. GPT-NeoX reads rotary_emb_base, other software reads"
    " rope_theta.",
    remedy="Remove the wrong one.",
    seen=("vllm-project/vllm/pull/44158", _MOVED_BASE),
    trigger={
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
    near_miss={"rope_theta": 500000},
)
def check_theta_disagrees(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        beside, named = part.get_number("rope_theta"), part.get_number("rotary_emb_base")
        if beside is not None and named is not None and beside != named:
            yield Problem(
                part.path("rotary_emb_base"),
                f"rotary_emb_base is {format_value(named)}, rope_theta is {format_value(beside)}.",
            )
        yield from find_disagreements(part, "rope_theta")


@rule(
    "local-base-larger",
    "warning",
    what="Layers with a sliding window have a larger base than layers with full attention.",
    why="A larger base is for longer distances: Gemma 3, ModernBERT and MiMo-V2 use 10,000 in"
    " layers with a window and 160,000 to 5,000,000 in the others. If the larger base is in the"
    " layers with a window, the two are probably swapped, and every layer rotates by angles that"
    " it was not trained with.",
    remedy="Swap the two bases (Gemma 3: rope_theta 1000000, rope_local_base_freq 10000;"
    " ModernBERT: global_rope_theta 160000, local_rope_theta 10000).",
    seen=("vllm-project/vllm/pull/29111", "Lightning-AI/litgpt/pull/1993"),
    trigger={**_GEMMA, "rope_theta": 10000.0, "rope_local_base_freq": 1000000.0},
    near_miss={"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0},
)
def check_local_base_larger(model: DiagnosedModel) -> Iterator[Problem]:
    for part, reading in model.readings:
        bases: dict[bool, set[float]] = {True: set(), False: set()}
        for group in reading.groups:
            base = read_number(group.parameters.get("rope_theta"))
            if group.rotation is not None and base is not None:
                bases[group.window is not None].add(base)
        local, full = bases[True], bases[False]
        if local and full and min(local) > max(full):
            inside, outside = format_value(min(local)), format_value(max(full))
            yield Problem(
                *_describe_two_bases(part, inside, outside),
                remedy=f"Swap the two, if the model was trained with {outside} in layers with a"
                f" window and {inside} in the others.",
            )


#: Keys of the base of layers with a window, and of the base of layers without.
_BASE_KEYS = (("local_rope_theta", "rope_local_base_freq"), ("global_rope_theta", "rope_theta"))


def _describe_two_bases(part: ConfigPart, local: str, full: str) -> tuple[str, str]:
    """The path of the key of the local base, and a sentence that says which key has which base."""
    names = [
        next((part.path(key) for key in keys if part.get_number(key) is not None), None)
        for keys in _BASE_KEYS
    ]
    for rope in part.written_parameters:
        if rope.layer_type is not None and rope.has("rope_theta"):
            names["sliding" not in rope.layer_type] = rope.path("rope_theta")
    sides = zip((local, full), names, ("with", "without"), strict=True)
    said = [
        f"{base} in layers {side} a window{f' ({name})' if name else ''}"
        for base, name, side in sides
    ]
    where = names[0] or names[1] or part.path("rope_theta")
    return where, f"the base is {' and '.join(said)}."


@rule(
    "class-default-wins",
    "error",
    what="A base or a rotated share beside the rope parameters, where the class uses its default"
    " instead.",
    why="Some classes of transformers 5 have default rope_parameters of their own (Apertus, CWM,"
    " Gemma 4, Laguna, MiMo-V2-Flash, Ministral 3) or other names for the base (ModernBERT). They"
    " do not read a rope_theta or partial_rotary_factor at the top level, where version 4 wrote"
    " it.",
    remedy="Write rope_parameters, with the base and the share inside.",
    seen=(_MOVED_BASE, "sgl-project/sglang/pull/14745"),
    trigger={"model_type": "apertus", "rope_theta": 500000.0},
    near_miss={"rope_theta": 12000000.0},
)
def check_class_default_wins(model: DiagnosedModel) -> Iterator[Problem]:
    for part, ours, theirs in model.compared_readings:
        if not part.is_known_family or part.has_fixed_frequencies or part.used_key is not None:
            continue
        if part.has("rotary_emb_base"):
            continue  # theta-disagrees reports it
        groups = [*theirs, *ours.groups]
        rotating = [group.parameters for group in groups if group.rotation is not None]
        for name in ("rope_theta", "partial_rotary_factor"):
            given, used = part.get_number(name), [keys.get(name) for keys in rotating]
            if given is None or not rotating or given in used or None in used:
                continue
            values = " and ".join(dict.fromkeys(map(format_value, used)))
            yield Problem(
                part.path(name),
                f"{name} is {format_value(given)}; transformers' {part.family} does not read it"
                f" here and uses {values}.",
            )


@rule(
    "theta-inside-only",
    "warning",
    what="rope_theta and the scaling are inside rope_parameters only.",
    why="This is the format of transformers 5. Software for version 4 looks for rope_theta and"
    " rope_scaling at the top level, finds neither, and runs with base 10,000 and no scaling,"
    " without a message. If transformers_version is 5 or later, the config says which software it"
    " is for, and this is a note.",
    remedy="For such software, repeat rope_theta at the top level, which does no harm in"
    " transformers 5; a scaling has to move back to rope_scaling. If transformers_version is 4,"
    " --fix does that.",
    seen=("Open-Athena/MarinFold/pull/198", _MOVED_BASE, "microsoft/onnxruntime-genai/pull/2311"),
    trigger={"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    near_miss={"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
)
def check_theta_inside_only(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if part.used_key != "rope_parameters" or part.has_layer_types or "rope_theta" in part.keys:
            continue
        for rope in part.used_parameters:
            lost = list_losses([{**rope.keys, "rope_type": rope.rope_type}])
            if lost:
                yield Problem(
                    rope.path(),
                    f"code for transformers 4 does not look here and does not find {lost}.",
                    edits=_write_for_version_4(model, part),
                    severity="note" if read_major_version(part.keys, model.data) >= 5 else None,
                )


def _write_for_version_4(model: DiagnosedModel, part: ConfigPart) -> tuple[Edit, ...]:
    """Edits to the format of version 4 for a config of that version; it reads the same in 5."""
    if (
        read_major_version(part.keys, model.data) != 4
        or part.reading is None
        or not part.is_known_family
    ):
        return ()
    keys = {"rope_type": part.used_parameters[0].rope_type, **part.used_parameters[0].keys}
    if read_number(keys.get("rope_theta")) is None:
        return ()
    lines = write_dialect_lines(part.keys, part.family, keys, "transformers 4") or {}
    return tuple(
        Edit("remove" if value is None else "set", (*part.where, key), value)
        for key, value in lines.items()
        if value is not None or part.has(key)
    )


@rule(
    "foreign-name",
    "warning",
    what="The base, the rotated share or the layout has the name that another project uses.",
    why="GPT-NeoX uses rotary_pct and rotary_emb_base, Nomic's own code rotary_emb_base,"
    " rotary_emb_fraction and rotary_emb_interleaved, GPT-J and MiniMax rotary_dim, others"
    " rope_base. A class that does not read the name keeps the value and rotates with its default."
    " This is how MiniMax-M2 came to rotate whole heads.",
    remedy="Use rope_theta, partial_rotary_factor and rope_scaling; few classes have a key for the"
    " layout.",
    seen=("huggingface/transformers/issues/48241", "vllm-project/vllm-ascend/pull/6581"),
    trigger={"rotary_emb_base": 1000000},
    near_miss={"model_type": "gpt_neox", "rotary_pct": 0.25},
)
def check_foreign_name(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if not part.is_known_family:
            continue
        for name, readers in _FOREIGN_KEYS.items():
            value = part.keys.get(name)
            if (
                value is not None
                and part.family not in readers
                and not _is_without_effect(name, value, part)
            ):
                yield Problem(
                    part.path(name), f"{part.family} does not read {name}, which is"
                    f" {format_value(value)} here."
                )  # fmt: skip


def _is_without_effect(name: str, value: Any, part: ConfigPart) -> bool:
    """Whether the model does what the key says although it does not read it."""
    if name == "rotary_dim":
        return bool(value == part.head_dim)
    if name == "rotary_emb_interleaved":
        return value is False
    if name in _FOREIGN_SHARES:
        return read_number(value) == 1
    used = [
        part.get_number("rope_theta"),
        *(rope.get_number("rope_theta") for rope in part.used_parameters),
    ]
    known = part.class_entry.get("keys", {})
    usual = known.get("rope_theta") or known.get("default_theta") or 10_000.0
    given = read_number(value)
    return given is not None and given in (used if any(used) else [usual])


@rule(
    "remote-default",
    "note",
    what="rope_type default in a model that has its own code.",
    why='The table of rope functions in transformers 5 no longer has the entry "default". Code for'
    " version 4 looks it up there and stops with KeyError: 'default'.",
    remedy="Load the model with the version of transformers that its code was written for, or"
    " update the code.",
    seen=(
        "allenai/molmo2/issues/22",
        "huggingface/diffusers/issues/13357",
        "lightseekorg/TorchSpec/issues/101",
    ),
    trigger={
        "auto_map": {"AutoModel": "modeling_x.X"},
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    near_miss=RuleExample({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
)
def check_remote_default(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if not part.keys.get("auto_map"):
            continue
        for rope in part.used_parameters:
            if rope.keys.get("rope_type", rope.keys.get("type")) == "default":
                yield Problem(
                    rope.path("rope_type"),
                    "the model's own code may look up 'default', which transformers 5 does not"
                    " have.",
                )
