"""Notes on configs that transformers reads differently, or refuses.

    transformers-differs    it has other frequencies, scales or layers; the note says which
    transformers-refuses    it raises an error; the note says why

The config is read twice, by default and with parity="transformers", and the results compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from whorl.configs.model import ConfigError, LayerGroup, Note

from . import defaults

__all__ = ["note_differences", "note_unread_keys"]

_LONG = 2**40


def note_differences(
    mine: Sequence[LayerGroup], follow: Callable[[], Sequence[LayerGroup]]
) -> tuple[Note, ...]:
    """Notes on how groups read by default differ from those that ``follow`` reads for parity."""
    try:
        theirs = follow()
    except ConfigError as error:
        why = str(error)
        if why.startswith("transformers "):
            return (Note("transformers-refuses", why),)
        name = f"transformers {defaults.get_version()}"
        text = f"What {name} makes of this config is not followed: {why}"
        return (Note("transformers-differs", text),)
    found: dict[str, list[str | None]] = {}
    for group in mine:
        if difference := _describe_difference(group, _find_same_layers(group, theirs)):
            found.setdefault(difference, []).append(group.name)
    if not found:
        return ()
    said = "; ".join(f"{_name_layers(names)}{text}" for text, names in found.items())
    text = f"transformers {defaults.get_version()} reads this config differently: {said}."
    return (Note("transformers-differs", f"{text} parity='transformers' follows it."),)


def note_unread_keys(model_type: str) -> tuple[Note, ...]:
    """The note on rope keys of a model type that does not rotate in transformers."""
    name = f"transformers {defaults.get_version()}"
    text = f"{name} rotates nothing in {model_type}: none of its rope keys is read."
    return (Note("transformers-differs", text),)


def _find_same_layers(group: LayerGroup, theirs: Sequence[LayerGroup]) -> LayerGroup | None:
    """The group of the other reading that contains the first layer of this group."""
    for other in theirs:
        same = group.layers[0] in other.layers if group.layers else group.name == other.name
        if same or len(theirs) == 1:
            return other
    return None


def _describe_difference(mine: LayerGroup, theirs: LayerGroup | None) -> str | None:
    """Text on how the rotation of a group differs, without its name; None if it does not."""
    if theirs is None or (mine.rotation is None and theirs.rotation is None):
        return None
    if mine.rotation is None or theirs.rotation is None:
        return "rotate" if mine.rotation is None else "do not rotate"
    ours, other = mine.rotation.options, theirs.rotation.options
    named = {key for key in (*ours, *other) if key != "lengths" and ours.get(key) != other.get(key)}
    if not named or _is_same_rotation(mine, theirs):
        return None
    words = [_describe_option_difference(key, ours, other) for key in sorted(named)]
    return ", ".join(words)


def _name_layers(names: Sequence[str | None]) -> str:
    """The beginning of a description: the groups of layers that it is about."""
    known = [name for name in dict.fromkeys(names) if name]
    return f"{' and '.join(known)} layers " if known else ""


def _describe_option_difference(key: str, ours: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Text "this, not that" for one option; of two scalings only the fields that differ."""
    one: Any = ours.get(key)
    two: Any = other.get(key)
    if key != "scaling" or one is None or type(one) is not type(two):
        return f"{_describe_option(key, other)}, not {_describe_option(key, ours)}"
    pairs = [
        (field.name, getattr(two, field.name), getattr(one, field.name)) for field in fields(one)
    ]
    parts = [
        f"{name.replace('_', ' ')} {_shorten_value(theirs)}, not {_shorten_value(mine)}"
        for name, theirs, mine in pairs
        if theirs != mine
    ]
    return f"{type(one).__name__} with {', '.join(parts)}"


def _shorten_value(value: Any) -> str:
    """A value in short form: of a long list the length, first and last number."""
    if isinstance(value, tuple) and len(value) > 4:
        return f"{len(value)} numbers from {value[0]:.4g} to {value[-1]:.4g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_same_rotation(mine: LayerGroup, theirs: LayerGroup) -> bool:
    """Whether two groups have the same frequencies, attention scale and rotated channels."""
    assert mine.rotation is not None
    assert theirs.rotation is not None
    for key in ("head_dim", "rotary_start", "layout", "out_layout", "direction"):
        if mine.rotation.options.get(key) != theirs.rotation.options.get(key):
            return False
    for length in (None, _LONG):
        ours, other = mine.rotation.frequencies(length), theirs.rotation.frequencies(length)
        if ours.inv_freq.shape != other.inv_freq.shape:
            return False
        away = (ours.inv_freq - other.inv_freq).abs() > 1e-9 * ours.inv_freq.abs()
        if bool(away.any()) or float(ours.attention_scale) != float(other.attention_scale):
            return False
    return True


def _describe_option(key: str, options: Any) -> str:
    value = options.get(key)
    if key == "base":
        return f"base {value:,.10g}"
    if key == "rotary_dim":
        return f"{value or options['head_dim']} rotated channels"
    if key == "scaling":
        return "unscaled" if value is None else _describe_scaling(value)
    if key == "layout":
        return f"layout {value or 'half'}"
    return f"{key.replace('_', ' ')} {'none' if value is None else str(value)[:60]}"


def _describe_scaling(scaling: Any) -> str:
    words = (
        f"{field.name}={_shorten_value(getattr(scaling, field.name))}" for field in fields(scaling)
    )
    return f"{type(scaling).__name__}({', '.join(words)})"
