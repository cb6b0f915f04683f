"""Names and values that are spelt in a way nothing understands."""

import difflib
import unicodedata
from collections.abc import Iterable, Iterator

from whorl._support.words import list_quoted, suggest_name
from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.model import Patient
from whorl.configs.diagnosis.parts import Block, shown

from ._vocabulary import ALIASES, KNOWN, LISTS, READ, knows_type, read_by, spelt

__all__: list[str] = []

_TOP = (
    "max_position_embeddings",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
)

#: Names that are no slips in the families that read them.
_OWN = {"partial_rotary_factors": "step3p5", "t2u_max_position_embeddings": "seamless_m4t"}
#: How alike a key must be to rope_theta to be a slip: one letter of ten may be another.
_LEAST_ALIKE = 0.89
#: What other projects call a key: not so near that a rename is certain.
_OTHER_NAMES = {
    **dict.fromkeys(("scaling_factor", "scale_factor", "scale"), "factor"),
    **dict.fromkeys(("base", "theta", "rope_base"), "rope_theta"),
}
#: Unknown keys of a dictionary that are told one by one.
_MOST_TOLD = 12
#: Keys of vLLM's YaRN: no slips, so nothing to rename.
_VLLM = {
    "attn_factor": "it multiplies YaRN's scale, where attention_factor replaces it",
    "extrapolation_factor": "it weighs the ramp between kept and slowed pairs",
}


@rule(
    "unknown-type",
    "error",
    what="A rope_type that transformers does not know.",
    why="The module looks the type up when it is built and stops with a KeyError; software with a"
    " fall-back runs unscaled instead. Names differ between projects: su and longrope, ntk and"
    " dynamic.",
    remedy=f"Use one of {', '.join(sorted(set(READ) - {'axial'}))}.",
    seen=(
        "https://github.com/huggingface/text-generation-inference/issues/2172",
        "https://github.com/unslothai/unsloth/issues/1042",
    ),
    trigger=Case({"rope_scaling": {"rope_type": "yarm", "factor": 4.0}}),
    near_miss=Case(
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 1024,
            }
        }
    ),
)
def unknown_type(patient: Patient) -> Iterator[Symptom]:
    for block in patient.every_block:
        name = "rope_type" if block.has("rope_type") else "type"
        given = block.keys.get(name)
        if given is None or knows_type(block):
            continue
        if not isinstance(given, str):
            yield Symptom(block.path(name), f"{name} must be a string; got {shown(given)}.")
            continue
        near = "longrope" if given == "su" else _near(given.lower(), READ, 0.7)
        edits = (Edit("set", (*block.where, name), near),) if near else ()
        yield Symptom(block.path(name), _unknown_type(name, given, block), edits=edits)


def _unknown_type(name: str, given: str, block: Block) -> str:
    if given == "su":
        return f"{name} 'su' is what longrope was called; {block.tower.family} knows longrope only."
    if given in ALIASES:
        return f"{name} {shown(given)} is not one that {block.tower.family} takes."
    return f"{name} {spelt(given)} is not known{suggest_name(_plain(given.lower()), READ)}"


@rule(
    "unknown-key",
    "warning",
    what="A rope parameter that nothing reads.",
    why="It is most often a slip, or a key of another project: vLLM multiplies YaRN's scale by"
    " attn_factor, which transformers, whose attention_factor replaces it, does not read."
    " transformers warns once in the log and runs without it.",
    remedy="Correct the name, or remove it.",
    seen=(
        "https://github.com/deepseek-ai/DeepSeek-R1/issues/684",
        "https://github.com/turboderp-org/exllamav3/issues/259",
    ),
    trigger=Case(
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_positional_embeddings": 1024,
            }
        }
    ),
    near_miss=Case(
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 1024,
            }
        }
    ),
)
def unknown_key(patient: Patient) -> Iterator[Symptom]:
    for block in patient.every_block:
        named = [name for name in block.keys if isinstance(name, str) and not name.startswith("_")]
        unknown = [name for name in named if name not in KNOWN | set(_VLLM)]
        for name in (name for name in named if name in _VLLM):
            yield Symptom(
                block.path(name),
                f"vLLM reads {name}, transformers does not: {_VLLM[name]}.",
                remedy="Decide which of the two the model was trained as, and write that for both.",
            )
        if len(unknown) > _MOST_TOLD:
            words = f"nothing reads {len(unknown)} keys: {list_quoted(unknown)}."
            yield Symptom(block.path(), words)
            continue
        for name in unknown:
            yield _unknown(block, name)


def _unknown(block: Block, name: str) -> Symptom:
    """What to do about one unknown key: rename it to a key that its value fits, or remove it."""
    there = _near(name, [key for key in block.keys if key in KNOWN and block.has(key)])
    if there:
        message = f"nothing reads {spelt(name)}; {shown(there)} is there already, and is read."
        return Symptom(block.path(name), message, "Keep the right one of the two values.")
    read = read_by(block) if block.kind in READ else KNOWN
    is_list = isinstance(block.keys[name], list)
    fits = [key for key in read if (key in LISTS) == is_list]
    near, other = _near(name, fits), _OTHER_NAMES.get(name)
    edits = (Edit("rename", (*block.where, name), near),) if near and not other else ()
    hint = f"; did you mean {shown(other)}?" if other else suggest_name(_plain(name), fits)
    return Symptom(block.path(name), f"nothing reads {spelt(name)}{hint}", edits=edits)


@rule(
    "misspelt-key",
    "warning",
    what="A key beside the rope parameters that is almost, but not quite, the name of one.",
    why="An unknown key of a config is kept and never read, without a word, and the default takes"
    " its place: for rope_theta that is 10,000.",
    remedy="Correct the name.",
    seen=("https://github.com/Blaizzy/mlx-vlm/pull/2196",),
    trigger=Case({"rope_thta": 500000.0}),
    near_miss=Case({"rope_theta": 500000.0, "rope_thetas": [500000.0]}),
)
def misspelt_key(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        free = [name for name in _TOP if tower.config.get(name) is None]
        for name in tower.config if patient.rotates(tower) else ():
            if not isinstance(name, str) or name in _TOP or _OWN.get(name) == tower.family:
                continue
            near = _near(name, free, 0.92)
            near = near or _near(name, {"rope_theta"} & set(free), _LEAST_ALIKE)
            if near:
                yield Symptom(
                    tower.path(name),
                    f"nothing reads {spelt(name)}; did you mean {near!r}?",
                    edits=(Edit("rename", (*tower.where, name), near),),
                )


def _near(name: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """The one known name that ``name`` can only be a slip for."""
    found = difflib.get_close_matches(_plain(name), sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def _plain(name: str) -> str:
    """A name with wide and styled letters as plain ones."""
    return unicodedata.normalize("NFKC", name[:64])
