"""Values that their keys cannot have: text, switches, lists, and numbers out of range."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from whorl._support.numerals import TextNumber, is_json_number, parse_number
from whorl.configs.diagnosis.engine import Edit, Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import ConfigPart, RopeDictionary, format_value, read_number
from whorl.configs.huggingface import classes
from whorl.configs.huggingface.families import FAMILIES
from whorl.configs.huggingface.schema import read_lists_per_layer
from whorl.configs.limits import MOST_CHANNELS, MOST_LAYERS, MOST_TOKENS

from ._vocabulary import (
    BASE_KEYS,
    KEYS_BY_TYPE,
    KNOWN_KEYS,
    LIST_KEYS,
    ORIGINAL,
    SECTION_KEYS,
    SHARE_KEYS,
    SIZE_KEYS,
    SWITCH_KEYS,
    list_read_keys,
)

__all__: list[str] = []

_LENGTH_KEYS = ("max_position_embeddings", ORIGINAL)
_LARGEST_FLOAT32 = (2 - 2.0**-23) * 2.0**127
#: The largest sizes that whorl accepts.
_LARGEST = {
    "num_hidden_layers": MOST_LAYERS,
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "num_attention_heads"), MOST_CHANNELS),
}
_POSITIVE_KEYS = (
    *("alpha", "attention_factor", "long_attention_factor", "low_freq_factor"),
    *("high_freq_factor", "short_mscale", "long_mscale"),
)
_TOP_KEYS = (*SIZE_KEYS, *BASE_KEYS, *SHARE_KEYS)
_ROPE_KEYS = tuple(sorted(KNOWN_KEYS - {"rope_type", "type"}))
_BOOLEANS = {"true": True, "false": False}


@rule(
    "quoted-number",
    "error",
    what="A number or a switch is written in quotes.",
    why='In JSON, "4.0" is a string and 4.0 is a number. transformers stops at the string when it'
    " creates the config or computes the frequencies. Other software may skip a value that is no"
    " number, and rotate without scaling.",
    remedy="Remove the quotes.",
    seen=("ml-explore/mlx-swift-lm/issues/110", "axolotl-ai-cloud/axolotl/issues/544"),
    trigger={"rope_scaling": {"rope_type": "linear", "factor": "4.0"}},
    near_miss={"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
)
def check_quoted_number(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        yield from _find_quoted(part.keys, _TOP_KEYS, part.where)
    for rope in model.written_parameters:
        yield from _find_quoted(rope.keys, _ROPE_KEYS, rope.where)


def _find_quoted(
    keys: Mapping[str, Any], names: Iterable[str], where: tuple[str, ...]
) -> Iterator[Problem]:
    for name in names:
        value = keys.get(name)
        if isinstance(value, str):
            yield _report_quoted(name, value, where)
        elif isinstance(value, list) and any(isinstance(v, str) for v in value):
            numbers = [_parse_value(name, v) if isinstance(v, str) else v for v in value]
            right = [v.value if isinstance(v, TextNumber) and v.certain else v for v in numbers]
            sure = not any(v is None or isinstance(v, TextNumber) for v in right)
            first = next(index for index, v in enumerate(value) if isinstance(v, str))
            yield Problem(
                ".".join((*where, name)),
                f"{name} contains strings instead of numbers, the first at index {first}:"
                f" {format_value(value[first])}.",
                edits=(Edit("set", (*where, name), right),) if sure else (),
            )


def _report_quoted(name: str, value: str, where: tuple[str, ...]) -> Problem:
    path = ".".join((*where, name))
    if name in SWITCH_KEYS:
        good = _BOOLEANS.get(value.strip().lower())
        edits = () if good is None else (Edit("set", (*where, name), good),)
        remedy = None if edits else "Write true or false, without quotes."
        return Problem(
            path, f"{name} is a string, not true or false: {format_value(value)}.", remedy, edits
        )
    if name in LIST_KEYS:
        remedy = f"Write {name} as a list of numbers, without quotes."
        return Problem(path, f"{name} is a string, not a list: {format_value(value)}.", remedy)
    found = _parse_value(name, value)
    said = f"{name} is a string, not a number: {format_value(value)}"
    if found is None:
        return Problem(path, f"{said}.", "Write the number that you mean, without quotes.")
    if found.certain:
        edits = (Edit("set", (*where, name), found.value),)
        remedy = None if is_json_number(value) else f"Write {found.value}, without quotes."
        return Problem(path, f"{said}.", remedy, edits)
    remedy = f"Write {found.value} without quotes, if you mean that; --fix does not guess."
    return Problem(path, f"{said}, perhaps {found.value} ({found.reason}).", remedy)


def _parse_value(name: str, text: str) -> TextNumber | None:
    return parse_number(text, whole=name in (*SIZE_KEYS, *SECTION_KEYS), large=name in BASE_KEYS)


@rule(
    "impossible-value",
    "error",
    what="A value that its key cannot have: a switch, a list or an object where a number belongs,"
    " NaN, or a number out of range.",
    why="No frequencies can be computed from it. Some software stops, some computes NaN for every"
    " token, and some takes true for 1. Strings have a rule of their own (quoted-number), and so"
    " do factors below 1 (factor-below-one).",
    remedy="Write the value of the published config of the model.",
    seen=("huggingface/transformers/issues/32167", "sgl-project/sglang/issues/26674"),
    trigger={"rope_theta": True, "rope_scaling": {"rope_type": "linear", "factor": [4.0]}},
    near_miss={"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
)
def check_impossible_value(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        kind = part.keys.get("model_type")
        if kind is not None and not isinstance(kind, str):
            message = f"model_type must be a string; got {_describe_value(kind)}."
            yield Problem(part.path("model_type"), message)
        if not model.has_rotary_layers(part):
            continue
        reported = {name for name, _ in classes.find_wrong_types(part.keys, part.family, int)}
        for name in _TOP_KEYS:
            value = part.keys.get(name)
            unread = name in reported or (part.has_fixed_frequencies and name in BASE_KEYS)
            if not unread and not (isinstance(value, list) and _can_be_list(part, name)):
                yield from _check_value(name, value, part.where)
        if not part.has_fixed_frequencies:
            yield from _find_non_objects(part)
    for rope in model.written_parameters:
        read = list_read_keys(rope) if rope.rope_type in KEYS_BY_TYPE else KNOWN_KEYS
        for name in _ROPE_KEYS:
            if name in read or name in LIST_KEYS:
                yield from _check_value(name, rope.keys.get(name), rope.where)
        if "factor" in read:
            yield from _check_factor(rope)


def _can_be_list(part: ConfigPart, name: str) -> bool:
    """Whether the class accepts a list with one value for each layer here, or is not known."""
    family = FAMILIES.get(part.family or "")
    listed = family is not None and (family.schema is read_lists_per_layer or family.bases == name)
    return listed or not part.is_known_family


def _find_non_objects(part: ConfigPart) -> Iterator[Problem]:
    """Problems for rope parameters, or those of a layer type, that are no dictionary."""
    types = part.keys.get("layer_types")
    labels = {t for t in types if isinstance(t, str)} if isinstance(types, list) else set()
    for name in ("rope_scaling", "rope_parameters"):
        given = part.keys.get(name)
        if given is not None and not isinstance(given, Mapping):
            message = f"{name} must be an object or null; got {_describe_value(given)}."
            remedy = 'Write an object, such as {"rope_type": "linear", "factor": 4.0}, or null.'
            yield Problem(part.path(name), message, remedy)
        for label, inner in given.items() if isinstance(given, Mapping) else ():
            if label in labels and inner is not None and not isinstance(inner, Mapping):
                message = f"{label} must be an object or null; got {_describe_value(inner)}."
                yield Problem(part.path(name, label), message, "Write its parameters, or null.")


def _check_value(name: str, value: Any, where: tuple[str, ...]) -> Iterator[Problem]:
    """What is wrong with a value, if anything; strings are left to quoted-number."""
    if value is None or isinstance(value, str):
        return
    path = ".".join((*where, name))
    if name in SWITCH_KEYS:
        if not isinstance(value, bool):
            yield Problem(path, f"{name} must be true or false; got {_describe_value(value)}.")
        return
    wanted, holds = _get_requirement(name)
    if name not in LIST_KEYS:
        if not holds(value):
            yield Problem(path, f"{name} must be {wanted}; got {_describe_value(value)}.")
        return
    if not isinstance(value, (list, tuple)):
        yield Problem(path, f"{name} must be a list of numbers; got {_describe_value(value)}.")
        return
    for index, inner in enumerate(value):
        if not isinstance(inner, str) and not holds(inner):
            got = "null" if inner is None else _describe_value(inner)
            yield Problem(path, f"{name}[{index}] must be {wanted}; got {got}.")
            return  # one is enough, the user will see the others


def _get_requirement(name: str) -> tuple[str, Callable[[Any], bool]]:
    """What a number under this name must be: in words, and as a function that tests a value."""

    def within(least: float, most: float = math.inf, *, whole: bool = False) -> Callable[..., bool]:
        def holds(value: Any) -> bool:
            found = read_number(value)
            return found is not None and least <= found <= most and (found % 1 == 0 or not whole)

        return holds

    if name in _LENGTH_KEYS:
        return f"a whole number from 1 to {MOST_TOKENS}", within(1, MOST_TOKENS, whole=True)
    if name in _LARGEST:
        least = 0 if name == "num_hidden_layers" else 1
        return f"a whole number from {least} to {_LARGEST[name]}", within(
            least, _LARGEST[name], whole=True
        )
    if name == "sliding_window" or name in SECTION_KEYS:
        return "a whole number, 0 or more", within(0, whole=True)
    if name in SIZE_KEYS:
        return "a whole number above 0", within(1, whole=True)
    if name in SHARE_KEYS:
        return "a number above 0 and at most 1", within(math.ulp(0.0), 1)
    if name in BASE_KEYS:
        # transformers raises it to powers in float32, where a larger one gives frequencies of 0.
        return "a number above 1 that a float32 can hold", within(
            math.nextafter(1.0, 2.0), _LARGEST_FLOAT32
        )
    if name in (*_POSITIVE_KEYS, *LIST_KEYS):
        return "a number above 0", within(math.ulp(0.0))
    if name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
        return "a number, 0 or more", within(0)
    return "a number", within(-math.inf)


def _check_factor(rope: RopeDictionary) -> Iterator[Problem]:
    """A problem if factor times the trained length is more tokens than any text has."""
    factor, length = rope.get_number("factor"), rope.trained_length or rope.part.context_length or 1
    if factor is not None and factor * length > MOST_TOKENS:
        yield Problem(
            rope.path("factor"),
            f"factor is {format_value(factor)}, and {length} tokens times {format_value(factor)} is"
            " more than any text has.",
            "Write how many times longer the context gets, such as 4.0.",
        )


def _describe_value(value: Any) -> str:
    """A wrong value, with the name that JSON has for its type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "-Infinity" if value < 0 else "Infinity"
    kinds: dict[type, str] = {str: "the string ", list: "a list, ", dict: "an object, "}
    kind = kinds.get(type(value), "")
    return f"{kind}{format_value(value)}"
