"""Read the config of a model and of all its parts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whorl._support.words import quote
from whorl.configs._notes import get_note
from whorl.configs._values import Keys
from whorl.configs.model import ConfigError, LayerGroup, ModelPositions, Note, Parity, Part
from whorl.configs.source import Document

from . import defaults, nd, published
from .differences import note_differences, note_unread_keys
from .families import FAMILIES, PLAIN, Family
from .groups import build_groups
from .parity import refuse_without_latent_attention
from .parts import TEXT_PARTS, find_parts, find_text_part
from .sizes import NAMES, add_usual_names

__all__ = ["read"]

_MOST_DEPTH = 8


def read(document: Document, parity: Parity | None) -> ModelPositions:
    """What the config of a model says about positions."""
    empty = ModelPositions(document.kind, None, None, None, (), parity=parity)
    return _read(Keys(document.data), None, empty, 0)


def _read(keys: Keys, assumed: str | None, empty: ModelPositions, depth: int) -> ModelPositions:
    """One config and its parts; ``assumed``: the model type if the config does not name it."""
    written = keys.read_text("model_type") or assumed
    alias = published.find_equivalent_type(written, keys)
    model_type = alias or defaults.get_known_name(written)
    entry: Mapping[str, Any] = defaults.get_entry(model_type) or {}
    parts = _read_parts(keys, entry, empty, depth) if depth < _MOST_DEPTH else {}
    own = Part(keys.where, model_type, keys.data)
    found = replace(empty, model_type=model_type, parts=parts, part=own)
    data = keys.data if entry and alias is None else published.use_transformers_names(keys, written)
    full = {**entry.get("keys", {}), **add_usual_names(data, entry.get("names", NAMES))}
    if model_type in nd.BESIDE:
        alone = replace(found, parts={})
        parts[nd.BESIDE[model_type]] = _read_own_layers(Keys(full, keys.where), alone, known=True)
        entry = {name: value for name, value in entry.items() if name != "keys"}
    text = find_text_part(parts, keys, entry)
    if text is not None:
        part = parts[text]
        return replace(
            found,
            context=part.context,
            trained_context=part.trained_context,
            groups=part.groups,
            notes=part.notes,
            part=part.part,
        )
    own_answer = _read_own_layers(Keys(full, keys.where), found, known=bool(entry))
    if alias is None or written is None:
        return own_answer
    told = f"transformers has no type {quote(written)}; it is read as {alias}, whose code does the"
    return replace(own_answer, notes=(Note("read-as", f"{told} same."), *own_answer.notes))


def _read_parts(
    keys: Keys, entry: Mapping[str, Any], empty: ModelPositions, depth: int
) -> dict[str, ModelPositions]:
    """All parts. A part that cannot be read gets a note; only a text part raises its error."""
    parts = {}
    for name, (inside, kind) in find_parts(keys, entry).items():
        try:
            parts[name] = _read(Keys(inside, keys.path(name)), kind, empty, depth + 1)
        except ConfigError as error:
            if name in TEXT_PARTS:
                raise
            parts[name] = replace(empty, notes=(Note("unreadable-part", str(error)),))
    return parts


def _read_own_layers(keys: Keys, found: ModelPositions, *, known: bool) -> ModelPositions:
    """The groups of layers of a config itself, without its parts."""
    context = keys.read_int("max_position_embeddings")
    found = replace(found, context=context, trained_context=context)
    model_type = found.model_type or ""
    why_not = None if known else published.explain_no_rotation(keys, model_type)
    if model_type in defaults.POSITION_FREE:
        why_not = "no-rotary"
    unread = not known and defaults.has_no_rotation(
        model_type
    )  # rope keys that transformers does not read
    if unread and found.parity is not None:
        why_not = "no-rotary"
    if why_not is not None:
        return replace(found, notes=(get_note(why_not),))
    if model_type in nd.FAMILIES:
        axes = nd.read(keys, model_type)
        return replace(found, groups=axes, transformers_groups=axes)
    backbone = nd.MROPE.get(model_type)
    if backbone is not None:
        family = backbone.family
    else:
        family = FAMILIES.get(model_type, PLAIN) if known else published.infer_family(keys)
    if "mla" in family.notes and keys.data.get("use_mla") is False:  # DeepSeek-OCR
        family = Family(parity_schema=refuse_without_latent_attention)
    follows = known and backbone is None  # other classes have no parity schema
    schema = family.parity_schema if follows and found.parity is not None else family.schema
    groups = build_groups(keys, family, found.parity, schema)
    apart: tuple[Note, ...] = note_unread_keys(model_type) if unread else ()
    followed: list[LayerGroup] = []  # the same layers as transformers reads them

    def follow() -> list[LayerGroup]:
        followed.extend(build_groups(keys, family, "transformers", family.parity_schema))
        return followed

    if follows and found.parity is None:
        apart = note_differences(groups, follow)
    if backbone is not None:
        groups = tuple(nd.add_axes(group, model_type) for group in groups)
    trained = [
        Keys(group.parameters).read_int("original_max_position_embeddings")
        for group in groups
        if group.rotation is not None
    ]
    rotates = any(group.rotation is not None for group in groups)
    ids = (*(() if known else ("unknown-family",)), *(family.notes if rotates else ()))
    return replace(
        found,
        trained_context=min((n for n in trained if n is not None), default=context),
        groups=groups,
        notes=(*map(get_note, ids), *apart),
        transformers_groups=tuple(followed) if follows and found.parity is None else None,
    )
