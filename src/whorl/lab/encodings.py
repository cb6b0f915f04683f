"""Encodings by name for a model of given shape: "rope", "learned+rope", {"name": "rope", ...}.

Sizes come from the model. A few options depart from the encoding's own defaults, because those
belong to another model than the lab's: see ``_defaults``.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from whorl._support.words import quote, suggest_name
from whorl.encodings import Encoding, base

from .config import EncodingSpec, ModelConfig

__all__ = ["EMBEDDING_STD", "build_encoding", "title_of"]

#: Standard deviation of token embeddings at the start; input encodings start at the same size.
EMBEDDING_STD = 0.02


def build_encoding(spec: EncodingSpec, model: ModelConfig, longest: int) -> Encoding:
    """The encoding that ``spec`` names, sized for ``model`` and sequences up to ``longest``.

    >>> build_encoding("learned+rope", ModelConfig(width=64, heads=2), longest=512)
    Learned(64, max_length=512) + RoPE(32)
    """
    parts = [_part(options, model, longest) for options in parts_of(spec)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def title_of(spec: EncodingSpec) -> str:
    """A short name for a spec: its parts joined by +, with the options that were given.

    >>> title_of([{"name": "rope", "base": 500.0, "scaling": {"name": "linear", "factor": 2.0}}])
    'rope(base=500.0,scaling=linear)'
    """
    return "+".join(_title(dict(options)) for options in parts_of(spec))


def _title(options: dict[str, Any]) -> str:
    name = str(options.pop("name"))
    words = (f"{k}={v['name'] if isinstance(v, dict) else v}" for k, v in options.items())
    return f"{name}({','.join(words)})" if options else name


def parts_of(spec: EncodingSpec) -> list[dict[str, Any]]:
    """One dictionary with a name per part, whichever way the spec is written."""
    if isinstance(spec, str):
        return [{"name": name.strip()} for name in spec.split("+")]
    if isinstance(spec, Mapping):
        if not isinstance(spec.get("name"), str):
            raise ValueError(f"model.encoding as a table needs a name; got {quote(dict(spec))}.")
        head, *rest = spec["name"].split("+")
        if rest:
            raise ValueError(
                "model.encoding: options go with one encoding; write a list of tables for"
                f" {quote(spec['name'])}."
            )
        return [{**spec, "name": head.strip()}]
    if isinstance(spec, (list, tuple)) and spec:
        return [options for part in spec for options in parts_of(part)]
    raise TypeError(
        "model.encoding must be a name such as 'rope' or 'learned+rope', a table with a name, or a"
        f" list of them; got {quote(spec)}."
    )


def _part(options: dict[str, Any], model: ModelConfig, longest: int) -> Encoding:
    given = dict(options)
    name = given.pop("name")
    known = base.get_classes()
    if name not in known:
        raise ValueError(
            f"unknown encoding {quote(name)}{suggest_name(name, known)} Known:"
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
        return base.make(name, **{**sized, **_defaults(name, model), **given})
    except TypeError as error:  # an option that it has not, or of the wrong type: from a TOML file
        raise ValueError(f"model.encoding: {error}") from None


def _defaults(name: str, model: ModelConfig) -> dict[str, Any]:
    """Options that fit the lab's model better than those of the paper's own."""
    pairs = model.head_dim // 2
    causal = model.kind == "decoder"
    table: dict[str, dict[str, Any]] = {
        # Its scale of 1 goes with T5's initialisation of the projections.
        "t5": {"scale": None, "direction": "causal" if causal else "bidirectional"},
        "relative_bias": {"max_future": 0 if causal else None},
        # As large as the embeddings that it is added to (a sinusoid of amplitude a has a / sqrt 2).
        "sinusoidal": {"scale": EMBEDDING_STD * 2**0.5},
        "learned": {"std": EMBEDDING_STD},
        # Qwen2-VL's quarter of the pairs for time, the rest shared by rows and columns.
        "mrope": {"sections": _sections(pairs)},
    }
    return table.get(name, {})


def _sections(pairs: int) -> tuple[int, int, int]:
    rows = (pairs - pairs // 4) // 2
    return pairs - 2 * rows, rows, rows
