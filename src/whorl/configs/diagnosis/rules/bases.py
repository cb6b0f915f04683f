"""The base of the frequencies, rope_theta, which every change of schema loses somewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.patient import Block, Patient, Tower, number, shown
from whorl.configs.huggingface.write import list_losses, write_dialect_lines

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
    "rotary_emb_fraction": (),
    "rotary_emb_interleaved": (),
    "rotary_scaling_factor": (),
    "rope_freq_constant": (),
    # minimax_m3_vl_text declares it with a default and does not read it: no fault of the config.
    "rotary_dim": ("gptj", "codegen", "minimax_m2", "minimax_m3_vl_text"),
}
#: Those at which 1 changes nothing.
_SHARES = (
    *("rotary_pct", "rope_pct", "rotary_percent", "rope_ratio"),
    *("rotary_emb_fraction", "rotary_scaling_factor"),
)
#: Six layers, of which the last has no window.
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
    why="transformers 5 keeps rope_theta inside rope_parameters and writes it always; without"
    " it the class falls back to its default, 10,000 for most. A config that was edited by"
    " hand, or whose rope_scaling was assigned after construction, loses it without an error. A"
    " rope_scaling of version 4 may lack it, as Llama 2 does, but not one of type llama3, whose"
    " models were trained with 500,000.",
    remedy="Write the rope_theta that the model was trained with into rope_parameters.",
    seen=(_V5, "https://github.com/sgl-project/sglang/pull/14745"),
    trigger=Case({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    near_miss=Case(
        {"rope_theta": 500000.0, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}
    ),
)
def theta_missing(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if tower.config.get("rope_theta") is not None:
            continue
        for block in tower.blocks:
            if tower.source != "rope_parameters" and not _is_llama3_of_10000(block):
                continue
            null = "rope_theta" in block.keys and tower.known_family  # transformers-refuses says it
            old = tower.source == "rope_scaling"
            if not block.has("rope_theta") and not null:
                yield Symptom(
                    tower.path("rope_theta") if old else block.path("rope_theta"),
                    "no rope_theta here or beside it, so the default of the class is used, 10000"
                    " for most.",
                    remedy="Write the rope_theta that the model was trained with beside"
                    " rope_scaling; Llama 3 has 500000.0."
                    if old
                    else None,
                )


def _is_llama3_of_10000(block: Block) -> bool:
    """Whether a scaling of Llama 3 was read with the base of Llama 2."""
    bases = [number(group.parameters.get("rope_theta")) for group in block.groups]
    return block.kind == "llama3" and 10_000.0 in bases


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
    "local-base-larger",
    "warning",
    what="Layers with a sliding window have a larger base than layers that see the whole text.",
    why="A larger base is for longer distances: Gemma 3, ModernBERT and MiMo-V2 have 10,000 for"
    " their windows and 160,000 to 5,000,000 for the layers without. The other way round the two"
    " are most likely swapped, and every layer rotates by angles that it was not trained with.",
    remedy="Change the two bases about (Gemma 3: rope_theta 1000000, rope_local_base_freq 10000;"
    " ModernBERT: global_rope_theta 160000, local_rope_theta 10000).",
    seen=(
        "https://github.com/vllm-project/vllm/pull/29111",
        "https://github.com/Lightning-AI/litgpt/pull/1993",
    ),
    trigger=Case({**_GEMMA, "rope_theta": 10000.0, "rope_local_base_freq": 1000000.0}),
    near_miss=Case({**_GEMMA, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}),
)
def local_base_larger(patient: Patient) -> Iterator[Symptom]:
    for where, reading in patient.readings:
        bases: dict[bool, set[float]] = {True: set(), False: set()}
        for group in reading.groups:
            base = number(group.parameters.get("rope_theta"))
            if group.rotation is not None and base is not None:
                bases[group.window is not None].add(base)
        local, full = bases[True], bases[False]
        if local and full and min(local) > max(full):
            tower = next((t for t in patient.towers if t.path() == where), None)
            yield Symptom(
                *_two_bases(tower, where, shown(min(local)), shown(max(full))),
                remedy=f"Change the two about, if the model was trained with {shown(max(full))} in"
                f" the window and {shown(min(local))} without.",
            )


#: Keys of the base of layers with a window, and of the base of layers without.
_BASE_KEYS = (("local_rope_theta", "global_rope_theta"), ("rope_local_base_freq", "rope_theta"))


def _two_bases(tower: Tower | None, where: str, local: str, full: str) -> tuple[str, str]:
    """The key of the local base, and which key has which base, as they are written."""
    names: list[str | None] = [None, None]
    if tower is not None:
        for n, keys in enumerate(zip(*_BASE_KEYS, strict=True)):
            names[n] = next((tower.path(k) for k in keys if tower.number(k) is not None), None)
        for block in tower.every_block:
            if block.label is not None and block.has("rope_theta"):
                names["sliding" not in block.label] = block.path("rope_theta")
    sides = zip((local, full), names, ("with", "without"), strict=True)
    said = [
        f"{base} in layers {side} a window{f' ({name})' if name else ''}"
        for base, name, side in sides
    ]
    default = f"{where}.rope_theta" if where else "rope_theta"
    return names[0] or names[1] or default, f"the base is {' and '.join(said)}."


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
    "warning",
    what="rope_theta and the scaling stand inside rope_parameters only.",
    why="That is the schema of transformers 5. Software written for version 4 asks for"
    " rope_theta and rope_scaling beside it, finds neither, and silently runs with 10,000 and"
    " no scaling. A config whose transformers_version is 5 or later says which software it is for;"
    " there it is a note.",
    remedy="For such software, repeat rope_theta at the top level, which transformers 5 does not"
    " mind; a scaling has to go back into rope_scaling. Where transformers_version is 4, --fix does"
    " that.",
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
            lost = list_losses([{**block.keys, "rope_type": block.kind}])
            if lost:
                yield Symptom(
                    block.path(),
                    f"code for transformers 4 does not look here and loses {lost}.",
                    edits=_in_dialect_of_4(patient, tower),
                    severity="note" if _version(patient, tower) >= 5 else None,
                )


def _version(patient: Patient, tower: Tower) -> int:
    """The first number of transformers_version; 0 where the config does not say."""
    for config in (tower.config, patient.data):
        first = str(config.get("transformers_version") or "").partition(".")[0]
        if first.isdecimal():
            return int(first[:4])
    return 0


def _in_dialect_of_4(patient: Patient, tower: Tower) -> tuple[Edit, ...]:
    """What makes a config of transformers 4 out of one that says it is one; reads the same in 5."""
    if _version(patient, tower) != 4 or tower.reading is None or not tower.known_family:
        return ()
    rope = {"rope_type": tower.blocks[0].kind, **tower.blocks[0].keys}
    if number(rope.get("rope_theta")) is None:
        return ()
    lines = write_dialect_lines(tower.config, tower.family, rope, "transformers 4") or {}
    return tuple(
        Edit("remove" if value is None else "set", (*tower.where, key), value)
        for key, value in lines.items()
        if value is not None or tower.config.get(key) is not None
    )


@rule(
    "foreign-name",
    "warning",
    what="The base, the rotated share or the layout under a name of another project.",
    why="GPT-NeoX says rotary_pct and rotary_emb_base, Nomic's own code rotary_emb_base,"
    " rotary_emb_fraction and rotary_emb_interleaved, GPT-J and MiniMax rotary_dim, others"
    " rope_base. A class that reads none of them keeps the value and rotates by its default:"
    " MiniMax-M2 rotated whole heads that way.",
    remedy="Use rope_theta, partial_rotary_factor and rope_scaling; few classes have a key for the"
    " layout.",
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
    if name == "rotary_emb_interleaved":
        return value is False
    if name in _SHARES:
        return number(value) == 1
    used = [tower.number("rope_theta"), *(block.number("rope_theta") for block in tower.blocks)]
    known = tower.class_entry.get("keys", {})
    usual = known.get("rope_theta") or known.get("default_theta") or 10_000.0
    given = number(value)
    return given is not None and given in (used if any(used) else [usual])


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
