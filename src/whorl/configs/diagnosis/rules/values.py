"""Values that their keys cannot have: text, switches, lists, and numbers out of range."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from whorl._support.numerals import TextNumber, is_json_number, parse_number
from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.patient import Block, Patient, Tower, number, shown
from whorl.configs.huggingface import classes
from whorl.configs.huggingface.families import FAMILIES
from whorl.configs.huggingface.schema import read_lists_per_layer
from whorl.configs.limits import MOST_CHANNELS, MOST_LAYERS, MOST_TOKENS

from ._vocabulary import (
    BASES,
    KNOWN,
    LISTS,
    ORIGINAL,
    READ,
    SECTIONS,
    SHARES,
    SIZES,
    SWITCHES,
    read_by,
)

__all__: list[str] = []

_LENGTHS = ("max_position_embeddings", ORIGINAL)
#: The largest sizes that are read.
_MOST = {
    "num_hidden_layers": MOST_LAYERS,
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "num_attention_heads"), MOST_CHANNELS),
}
_POSITIVE = (
    *("alpha", "attention_factor", "long_attention_factor", "low_freq_factor"),
    *("high_freq_factor", "short_mscale", "long_mscale"),
)
_BESIDE = (*SIZES, *BASES, *SHARES)
_INSIDE = tuple(sorted(KNOWN - {"rope_type", "type"}))
_WORDS = {"true": True, "false": False}


@rule(
    "quoted-number",
    "error",
    what="A number or a switch in quotes.",
    why='JSON tells 4.0 from "4.0". transformers stops at the string when the config is made or'
    " when the frequencies are computed; software that looks for a number may pass it by and rotate"
    " unscaled.",
    remedy="Remove the quotes.",
    seen=(
        "https://github.com/ml-explore/mlx-swift-lm/issues/110",
        "https://github.com/axolotl-ai-cloud/axolotl/issues/544",
    ),
    trigger=Case({"rope_scaling": {"rope_type": "linear", "factor": "4.0"}}),
    near_miss=Case({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
)
def quoted_number(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        yield from _quoted(tower.config, _BESIDE, tower.where)
    for block in patient.every_block:
        yield from _quoted(block.keys, _INSIDE, block.where)


def _quoted(
    keys: Mapping[str, Any], names: Iterable[str], where: tuple[str, ...]
) -> Iterator[Symptom]:
    for name in names:
        value = keys.get(name)
        if isinstance(value, str):
            yield _quoted_value(name, value, where)
        elif isinstance(value, list) and any(isinstance(v, str) for v in value):
            numbers = [_number_in(name, v) if isinstance(v, str) else v for v in value]
            right = [v.value if isinstance(v, TextNumber) and v.certain else v for v in numbers]
            sure = not any(v is None or isinstance(v, TextNumber) for v in right)
            first = next(index for index, v in enumerate(value) if isinstance(v, str))
            yield Symptom(
                ".".join((*where, name)),
                f"{name} holds strings in place of numbers, the first at index {first}:"
                f" {shown(value[first])}.",
                edits=(Edit("set", (*where, name), right),) if sure else (),
            )


def _quoted_value(name: str, value: str, where: tuple[str, ...]) -> Symptom:
    path = ".".join((*where, name))
    if name in SWITCHES:
        good = _WORDS.get(value.strip().lower())
        edits = () if good is None else (Edit("set", (*where, name), good),)
        remedy = None if edits else "Write true or false, without quotes."
        return Symptom(
            path, f"{name} is a string, not true or false: {shown(value)}.", remedy, edits
        )
    if name in LISTS:
        remedy = f"Write {name} as a list of numbers, without quotes."
        return Symptom(path, f"{name} is a string, not a list: {shown(value)}.", remedy)
    found = _number_in(name, value)
    said = f"{name} is a string, not a number: {shown(value)}"
    if found is None:
        return Symptom(path, f"{said}.", "Write the number that is meant, without quotes.")
    if found.certain:
        edits = (Edit("set", (*where, name), found.value),)
        remedy = None if is_json_number(value) else f"Write {found.value}, without quotes."
        return Symptom(path, f"{said}.", remedy, edits)
    remedy = f"Write {found.value} if that is meant, without quotes; --fix does not guess."
    return Symptom(path, f"{said}, perhaps {found.value} ({found.reason}).", remedy)


def _number_in(name: str, text: str) -> TextNumber | None:
    return parse_number(text, whole=name in (*SIZES, *SECTIONS), large=name in BASES)


@rule(
    "impossible-value",
    "error",
    what="A value that its key cannot have: a switch, a list or an object where a number belongs,"
    " NaN, or a number out of range.",
    why="No frequencies follow from it. Some software stops, some computes NaN for every token, and"
    " some takes true for 1. Strings are quoted-number, factors below 1 factor-below-one.",
    remedy="Write the value of the published config of the model.",
    seen=(
        "https://github.com/huggingface/transformers/issues/32167",
        "https://github.com/sgl-project/sglang/issues/26674",
    ),
    trigger=Case({"rope_theta": True, "rope_scaling": {"rope_type": "linear", "factor": [4.0]}}),
    near_miss=Case({"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
)
def impossible_value(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        kind = tower.config.get("model_type")
        if kind is not None and not isinstance(kind, str):
            message = f"model_type must be a string; got {_described(kind)}."
            yield Symptom(tower.path("model_type"), message)
        if not patient.rotates(tower):
            continue
        told = {name for name, _ in classes.find_wrong_types(tower.config, tower.family, int)}
        for name in _BESIDE:
            value = tower.config.get(name)
            unread = name in told or (tower.coded and name in BASES)
            if not unread and not (isinstance(value, list) and _may_list(tower, name)):
                yield from _wrong(name, value, tower.where)
        if not tower.coded:
            yield from _not_objects(tower)
    for block in patient.every_block:
        read = read_by(block) if block.kind in READ else KNOWN
        for name in _INSIDE:
            if name in read or name in LISTS:
                yield from _wrong(name, block.keys.get(name), block.where)
        if "factor" in read:
            yield from _endless(block)


def _may_list(tower: Tower, name: str) -> bool:
    """Whether the class takes a list here, one value for each layer, or is not known."""
    family = FAMILIES.get(tower.family or "")
    listed = family is not None and (family.schema is read_lists_per_layer or family.bases == name)
    return listed or not tower.known_family


def _not_objects(tower: Tower) -> Iterator[Symptom]:
    """Rope parameters, or those of a layer type, that are no dictionary."""
    types = tower.config.get("layer_types")
    labels = {t for t in types if isinstance(t, str)} if isinstance(types, list) else set()
    for name in ("rope_scaling", "rope_parameters"):
        given = tower.config.get(name)
        if given is not None and not isinstance(given, Mapping):
            message = f"{name} must be an object or null; got {_described(given)}."
            remedy = 'Write an object, such as {"rope_type": "linear", "factor": 4.0}, or null.'
            yield Symptom(tower.path(name), message, remedy)
        for label, inner in given.items() if isinstance(given, Mapping) else ():
            if label in labels and inner is not None and not isinstance(inner, Mapping):
                message = f"{label} must be an object or null; got {_described(inner)}."
                yield Symptom(tower.path(name, label), message, "Write its parameters, or null.")


def _wrong(name: str, value: Any, where: tuple[str, ...]) -> Iterator[Symptom]:
    """What is wrong with a value; strings are told by quoted-number."""
    if value is None or isinstance(value, str):
        return
    path = ".".join((*where, name))
    if name in SWITCHES:
        if not isinstance(value, bool):
            yield Symptom(path, f"{name} must be true or false; got {_described(value)}.")
        return
    wanted, holds = _wanted(name)
    if name not in LISTS:
        if not holds(value):
            yield Symptom(path, f"{name} must be {wanted}; got {_described(value)}.")
        return
    if not isinstance(value, (list, tuple)):
        yield Symptom(path, f"{name} must be a list of numbers; got {_described(value)}.")
        return
    for index, inner in enumerate(value):
        if not isinstance(inner, str) and not holds(inner):
            got = "null" if inner is None else _described(inner)
            yield Symptom(path, f"{name}[{index}] must be {wanted}; got {got}.")
            return  # one is enough to find the others


def _wanted(name: str) -> tuple[str, Callable[[Any], bool]]:
    """What a number under this name must be, in words and as a test of any value."""

    def within(least: float, most: float = math.inf, *, whole: bool = False) -> Callable[..., bool]:
        def holds(value: Any) -> bool:
            found = number(value)
            return found is not None and least <= found <= most and (found % 1 == 0 or not whole)

        return holds

    if name in _LENGTHS:
        return f"a whole number from 1 to {MOST_TOKENS}", within(1, MOST_TOKENS, whole=True)
    if name in _MOST:
        least = 0 if name == "num_hidden_layers" else 1
        return f"a whole number from {least} to {_MOST[name]}", within(
            least, _MOST[name], whole=True
        )
    if name == "sliding_window" or name in SECTIONS:
        return "a whole number, 0 or more", within(0, whole=True)
    if name in SIZES:
        return "a whole number above 0", within(1, whole=True)
    if name in SHARES:
        return "a number above 0 and at most 1", within(math.ulp(0.0), 1)
    if name in BASES:
        return "a number above 1", within(math.nextafter(1.0, 2.0))
    if name in (*_POSITIVE, *LISTS):
        return "a number above 0", within(math.ulp(0.0))
    if name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
        return "a number, 0 or more", within(0)
    return "a number", within(-math.inf)


def _endless(block: Block) -> Iterator[Symptom]:
    """A factor that makes more tokens of the trained length than any text has."""
    factor, length = block.number("factor"), block.original or block.tower.context or 1
    if factor is not None and factor * length > MOST_TOKENS:
        yield Symptom(
            block.path("factor"),
            f"factor is {shown(factor)}, and {length} tokens times that are more than any text"
            " has.",
            "Write how many times longer the context gets, such as 4.0.",
        )


def _described(value: Any) -> str:
    """A wrong value with the name that JSON has for its kind."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "-Infinity" if value < 0 else "Infinity"
    kinds: dict[type, str] = {str: "the string ", list: "a list, ", dict: "an object, "}
    kind = kinds.get(type(value), "")
    return f"{kind}{shown(value)}"
