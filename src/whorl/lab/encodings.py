"""Encodings by name for a model of given shape: "rope(base=100)", {"name": "rope", "base": 100}.

Sizes come from the model. A few options differ from the encoding's own defaults, which suit other
models than the lab's: see ``_choose_defaults``.
"""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from whorl._support.words import quote, suggest_name
from whorl.encodings import Encoding, base

from .config import EncodingSpec, ModelConfig, ModelKind
from .specs import format_spec, parse_spec, remove_spaces

__all__ = ["EMBEDDING_STD", "EncodedShape", "build_encoding", "format_title"]

#: Standard deviation of new token embeddings; input encodings start at the same size.
EMBEDDING_STD = 0.02


class EncodedShape(NamedTuple):
    """Sizes of a model that an encoding depends on; ``width`` is that of its embeddings."""

    heads: int
    head_dim: int
    width: int
    kind: ModelKind


def build_encoding(spec: EncodingSpec, model: ModelConfig | EncodedShape, longest: int) -> Encoding:
    """The encoding that ``spec`` names, sized for ``model`` and sequences up to ``longest``.

    >>> build_encoding("learned+rope", ModelConfig(width=64, heads=2), longest=512)
    Learned(64, max_length=512) + RoPE(32)
    """
    parts = [_build_part(options, model, longest) for options in split_spec(spec)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def format_title(spec: EncodingSpec) -> str:
    """Short name of a spec, as text that is read as the same spec; text stays as it is written.

    >>> scaling = {"name": "linear", "factor": 2.0}
    >>> format_title([{"name": "rope", "base": 500.0, "scaling": scaling}])
    'rope(base=500.0,scaling=linear(factor=2.0))'
    >>> format_title("learned + rope(base=1e6)")
    'learned+rope(base=1e6)'
    """
    parts = split_spec(spec)
    return remove_spaces(spec) if isinstance(spec, str) else format_spec(parts)


def split_spec(spec: EncodingSpec) -> list[dict[str, Any]]:
    """The parts of a spec, each as a dictionary with a name and options."""
    if isinstance(spec, str):
        return parse_spec(spec)
    if isinstance(spec, Mapping):
        if not isinstance(spec.get("name"), str):
            raise ValueError(f"model.encoding as a table needs a name; got {quote(dict(spec))}.")
        if "+" in spec["name"] or "(" in spec["name"]:
            raise ValueError(
                "model.encoding: a table must name one encoding, because its options belong to one;"
                f" write a list of tables, or all of it as text, instead of {quote(spec['name'])}."
            )
        return [{**spec, "name": spec["name"].strip()}]
    if isinstance(spec, (list, tuple)) and spec:
        return [options for part in spec for options in split_spec(part)]
    raise TypeError(
        "model.encoding must be a name such as 'rope' or 'learned+rope', with options as in"
        f" 'rope(base=500)', a table with a name, or a list of them; got {quote(spec)}."
    )


def _build_part(
    options: dict[str, Any], model: ModelConfig | EncodedShape, longest: int
) -> Encoding:
    given = dict(options)
    name = given.pop("name")
    known = base.get_classes()
    if name not in known:
        raise ValueError(
            f"model.encoding: {quote(name)} is unknown{suggest_name(name, known)} Known:"
            f" {', '.join(sorted(known))}."
        )
    sizes = {
        "num_heads": model.heads,
        "head_dim": model.head_dim,
        "dim": model.width,
        "max_length": longest,
    }
    parameters = inspect.signature(known[name]).parameters.values()
    wanted = [p.name for p in parameters if p.default is p.empty]
    sized = {size: sizes[size] for size in wanted if size in sizes}
    try:
        return base.make(name, **{**sized, **_choose_defaults(name, model), **given})
    except TypeError as error:  # an unknown option or a wrong type, from a TOML file
        raise ValueError(f"model.encoding: {error}") from None


def _choose_defaults(name: str, model: ModelConfig | EncodedShape) -> dict[str, Any]:
    """Options that suit the lab's model better than the defaults of an encoding."""
    pairs = model.head_dim // 2
    causal = model.kind == "decoder"
    table: dict[str, dict[str, Any]] = {
        # The default scale of 1 belongs to T5's initialization of the projections.
        "t5": {"scale": None, "direction": "causal" if causal else "bidirectional"},
        "relative_bias": {"max_future": 0 if causal else None},
        "learned": {"std": EMBEDDING_STD},
        # As in Qwen2-VL: a quarter of the pairs for time, the rest for rows and columns.
        "mrope": {"sections": _divide_pairs(pairs)},
    }
    return table.get(name, {})


def _divide_pairs(pairs: int) -> tuple[int, int, int]:
    rows = (pairs - pairs // 4) // 2
    return pairs - 2 * rows, rows, rows
