"""Misspelt names and values."""

import difflib
import unicodedata
from collections.abc import Iterable, Iterator

from whorl._support.words import list_quoted, suggest_name
from whorl.configs.diagnosis.engine import Edit, Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import RopeDictionary, format_value

from ._examples import build_yarn
from ._vocabulary import (
    KEYS_BY_TYPE,
    KNOWN_KEYS,
    LIST_KEYS,
    TYPE_ALIASES,
    is_known_type,
    list_read_keys,
    quote_name,
)

__all__: list[str] = []

_TOP_KEYS = (
    "max_position_embeddings",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
)

#: Names that look misspelt but are right in the family that reads them.
_FAMILY_KEYS = {"partial_rotary_factors": "step3p5", "t2u_max_position_embeddings": "seamless_m4t"}
#: Least similarity to rope_theta of a misspelt key: one letter of ten may differ.
_LEAST_SIMILARITY = 0.89
#: Names of other projects for a key, too different for an automatic correction.
_OTHER_NAMES = {
    **dict.fromkeys(("scaling_factor", "scale_factor", "scale"), "factor"),
    **dict.fromkeys(("base", "theta", "rope_base"), "rope_theta"),
}
#: Unknown keys of a dictionary that are reported one by one.
_MOST_REPORTED = 12
#: Keys of vLLM's YaRN: they are not misspelt, so there is nothing to rename.
_VLLM_KEYS = {
    "attn_factor": "it multiplies YaRN's scale, where attention_factor replaces it",
    "extrapolation_factor": "it weights the ramp between kept and slowed pairs",
}


@rule(
    "unknown-type",
    "error",
    what="A rope_type that transformers does not know.",
    why="transformers looks the type up when it builds the rotary module, and stops with a"
    " KeyError. Software with a default runs without scaling instead. Names differ between"
    " projects: su and longrope, ntk and dynamic.",
    remedy=f"Use one of {', '.join(sorted(set(KEYS_BY_TYPE) - {'axial'}))}.",
    seen=("huggingface/text-generation-inference/issues/2172", "unslothai/unsloth/issues/1042"),
    trigger={"rope_scaling": {"rope_type": "yarm", "factor": 4.0}},
    near_miss={"rope_scaling": build_yarn()},
)
def check_unknown_type(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        name = rope.type_key
        given = rope.keys.get(name)
        if given is None or is_known_type(rope):
            continue
        if not isinstance(given, str):
            yield Problem(rope.path(name), f"{name} must be a string; got {format_value(given)}.")
            continue
        near = "longrope" if given == "su" else _find_similar(given.lower(), KEYS_BY_TYPE, 0.7)
        edits = (Edit("set", (*rope.where, name), near),) if near else ()
        yield Problem(rope.path(name), _describe_unknown_type(name, given, rope), edits=edits)


def _describe_unknown_type(name: str, given: str, rope: RopeDictionary) -> str:
    if given == "su":
        return f"{name} 'su' is the old name of longrope; {rope.part.family} knows longrope only."
    if given in TYPE_ALIASES:
        return f"{name} {format_value(given)} is not a type that {rope.part.family} knows."
    hint = suggest_name(_normalize_letters(given.lower()), KEYS_BY_TYPE)
    return f"{name} {quote_name(given)} is not known{hint}"


@rule(
    "unknown-key",
    "warning",
    what="A rope parameter that nothing reads.",
    why="In most cases it is a typing error, or a key of another project. For example, vLLM"
    " multiplies YaRN's scale by attn_factor; transformers does not read that key, and its"
    " attention_factor replaces the scale. transformers writes one warning to the log and runs"
    " without the key.",
    remedy="Correct the name, or remove the key.",
    seen=("deepseek-ai/DeepSeek-R1/issues/684", "turboderp-org/exllamav3/issues/259"),
    trigger={
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_positional_embeddings": 1024,
        }
    },
    near_miss={"rope_scaling": build_yarn()},
)
def check_unknown_key(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        named = [name for name in rope.keys if isinstance(name, str) and not name.startswith("_")]
        unknown = [name for name in named if name not in KNOWN_KEYS | set(_VLLM_KEYS)]
        for name in (name for name in named if name in _VLLM_KEYS):
            yield Problem(
                rope.path(name),
                f"vLLM reads {name}, transformers does not: {_VLLM_KEYS[name]}.",
                remedy="Find out which of the two the model was trained with, and write that for"
                " both.",
            )
        if len(unknown) > _MOST_REPORTED:
            words = f"nothing reads {len(unknown)} keys: {list_quoted(unknown)}."
            yield Problem(rope.path(), words)
            continue
        for name in unknown:
            yield _report_unknown_key(rope, name)


def _report_unknown_key(rope: RopeDictionary, name: str) -> Problem:
    """The problem of one unknown key: rename it to a key that its value fits, or remove it."""
    there = _find_similar(name, [key for key in rope.keys if key in KNOWN_KEYS and rope.has(key)])
    if there:
        message = (
            f"nothing reads {quote_name(name)}; {format_value(there)} is also there, and read."
        )
        return Problem(rope.path(name), message, "Keep the correct one of the two values.")
    read = list_read_keys(rope) if rope.rope_type in KEYS_BY_TYPE else KNOWN_KEYS
    is_list = isinstance(rope.keys[name], list)
    fits = [key for key in read if (key in LIST_KEYS) == is_list]
    near, other = _find_similar(name, fits), _OTHER_NAMES.get(name)
    edits = (Edit("rename", (*rope.where, name), near),) if near and not other else ()
    hint = (
        f"; did you mean {format_value(other)}?"
        if other
        else suggest_name(_normalize_letters(name), fits)
    )
    return Problem(rope.path(name), f"nothing reads {quote_name(name)}{hint}", edits=edits)


@rule(
    "misspelt-key",
    "warning",
    what="A key beside the rope parameters whose name is almost, but not exactly, a known one.",
    why="An unknown key stays in the config, is never read, and causes no message; the default"
    " value is used in its place. For rope_theta that is 10,000.",
    remedy="Correct the name.",
    seen=("Blaizzy/mlx-vlm/pull/2196",),
    trigger={"rope_thta": 500000.0},
    near_miss=RuleExample({"rope_theta": 500000.0, "rope_thetas": [500000.0]}),
)
def check_misspelt_key(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        free = [name for name in _TOP_KEYS if not part.has(name)]
        for name in part.keys if model.has_rotary_layers(part) else ():
            if (
                not isinstance(name, str)
                or name in _TOP_KEYS
                or _FAMILY_KEYS.get(name) == part.family
            ):
                continue
            near = _find_similar(name, free, 0.92)
            near = near or _find_similar(name, {"rope_theta"} & set(free), _LEAST_SIMILARITY)
            if near:
                yield Problem(
                    part.path(name),
                    f"nothing reads {quote_name(name)}; did you mean {near!r}?",
                    edits=(Edit("rename", (*part.where, name), near),),
                )


def _find_similar(name: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """The known name that is most similar to ``name``, None if none is similar enough."""
    found = difflib.get_close_matches(_normalize_letters(name), sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def _normalize_letters(name: str) -> str:
    """A name with full-width and styled letters replaced by plain ones, at most 64 letters."""
    return unicodedata.normalize("NFKC", name[:64])
