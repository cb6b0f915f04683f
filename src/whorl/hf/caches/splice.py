"""Cached fragments of texts, put together to the cache of another text.

Keys that were rotated for one place are wrong at another, and nothing says so. Unrotated keys have
no place: attention rotates them where they are now.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from whorl._support.words import quote

__all__ = ["splice"]


def splice(
    model: PreTrainedModel, fragments: Sequence[DynamicCache | tuple[DynamicCache, slice]]
) -> DynamicCache:
    """A cache of all fragments one after another, as if the model had read them in this order.

    Exact in the first layer, whatever the fragments. In deeper layers the tokens of a fragment have
    not seen those before it; docs/hf.md has what that costs.

    Args:
        model: installed with ``whorl.hf.install(model, keys="unrotated")``, before any of the
            fragments was read.
        fragments: what the model returned as past_key_values, or a tuple of that and a slice of
            its tokens, such as ``slice(20, None)`` to leave out the first 20. The same number of
            rows each, without padding.
    """
    encodings = [vars(m)["whorl_encoding"] for m in model.modules() if "whorl_encoding" in vars(m)]
    if not encodings or any(encoding is None for encoding in encodings):
        raise ValueError(
            f"splice: model must cache unrotated keys; {type(model).__name__} does not. Call"
            " whorl.hf.install(model, keys='unrotated') and read the fragments again."
        )
    if isinstance(fragments, DynamicCache):
        raise TypeError("splice: fragments must be a list of caches; got one cache.")
    parts = [_read_fragment(fragment) for fragment in fragments]
    layers = model.config.get_text_config().num_hidden_layers
    sizes = [(len(part), part[0][0].shape[0]) for part in parts]
    if not parts or {*sizes} != {(layers, sizes[0][1])}:
        raise ValueError(
            f"splice: fragments must be at least one, each of the {layers} layers of the model and"
            f" of the same number of rows; got {sizes} (layers, rows)."
        )
    joined = DynamicCache()
    for n in range(len(parts[0])):
        keys, values = (torch.cat([part[n][which] for part in parts], -2) for which in (0, 1))
        joined.update(keys, values, n)
    return joined


def _read_fragment(fragment: Any) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer, [B, G, S, D]."""
    cache, tokens = fragment if isinstance(fragment, tuple) else (fragment, slice(None))
    filled = isinstance(cache, DynamicCache) and cache.get_seq_length() > 0
    if not filled or not isinstance(tokens, slice):
        raise TypeError(
            "splice: a fragment must be the DynamicCache that the model filled, or a tuple of it"
            f" and a slice; got {quote(cache)}."
        )
    for layer in cache.layers:
        if type(layer) is not DynamicLayer:
            raise ValueError(
                f"splice: layers must hold all tokens of a fragment; {type(layer).__name__} drops"
                " some. Read fragments with past_key_values=DynamicCache()."
            )
    found = [(layer.keys[:, :, tokens], layer.values[:, :, tokens]) for layer in cache.layers]
    if not found[0][0].shape[2]:
        raise ValueError(f"splice: a fragment must have tokens; {tokens} leaves none of them.")
    return found
