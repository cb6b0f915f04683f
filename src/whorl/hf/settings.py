"""Settings of the attention of a loaded model against its config, and config keys without effect.

An attention module of transformers takes its numbers from the config when it is made: its window,
its softmax scale, a softcap, whether it rotates. Here a second module is made from the config, on
the meta device, and the two must have the same numbers.
"""

import copy
import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from whorl._support.words import quote

from .findings import LOAD_AGAIN, LiveFinding

__all__ = ["compare_attention", "find_attention_modules", "find_unused_keys"]

#: Attributes that a user sets after loading, or that say how a module was called.
_OTHER = ("training", "layer_idx", "attention_dropout", "dropout", "gradient_checkpointing")

_WITHOUT_WINDOWS = (
    *("cohere", "deepseek_v3", "falcon", "gemma", "glm", "glm4", "gpt_neox", "llama", "olmo2"),
)


def find_attention_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Paths and attention modules that have a config and the number of their layer."""
    for path, module in model.named_modules():
        kind = type(module).__name__
        if "Attention" in kind and hasattr(module, "layer_idx") and hasattr(module, "config"):
            yield path, module


def compare_attention(module: nn.Module, path: str) -> Iterator[LiveFinding]:
    """Numbers of an attention module that are not those that its config gives.

    Raises:
        TypeError: there is no way to make another module of this class.
    """
    fresh = vars(_build_again(module))
    for name, expected in sorted(fresh.items()):
        if name.startswith("_") or name in _OTHER or name not in vars(module):
            continue
        found = vars(module)[name]
        if not (_is_plain(expected) and _is_plain(found)) or _are_equal(found, expected):
            continue
        yield LiveFinding(
            "error",
            f"{path}.{name}",
            f"it is {quote(found)}, and the config gives {quote(expected)}.",
            LOAD_AGAIN,
        )


def _build_again(module: nn.Module) -> nn.Module:
    """A module of the same class from the same config, without weights."""
    kind, given = type(module), {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if hasattr(module, name):
            given[name] = getattr(module, name)
        elif parameter.default is parameter.empty:
            raise TypeError(f"{kind.__name__} needs {name}, which it does not keep")
    given["config"] = copy.deepcopy(given.get("config"))
    try:
        with torch.device("meta"):
            return kind(**given)
    except Exception as error:
        raise TypeError(f"{kind.__name__} cannot be made again: {error}") from None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


def find_unused_keys(model: PreTrainedModel) -> Iterator[LiveFinding]:
    """Keys of the config about positions that the code of transformers does not go by."""
    config = model.config.get_text_config()
    kind = getattr(config, "model_type", "")
    for key, value, does in _list_unused(kind, config):
        yield LiveFinding(
            "warning",
            f"config.{key}",
            f"{quote(value)} changes nothing: {does}.",
            "Remove it, or use code that goes by it.",
        )


def _list_unused(kind: str, config: Any) -> Iterator[tuple[str, Any, str]]:
    """Key, value, and what transformers does instead."""
    if kind == "mpt":
        attention = config.attn_config
        if attention.alibi_bias_max != 8:
            does = "transformers' MPT always has a largest bias of 8"
            yield "attn_config.alibi_bias_max", attention.alibi_bias_max, does
        if not attention.alibi:
            does = "transformers' MPT adds ALiBi's bias in any case, and has no other positions"
            yield "attn_config.alibi", attention.alibi, does
        return
    if kind == "mpnet":
        buckets = config.relative_attention_num_buckets
        if buckets != 32:
            does = "transformers' MPNet counts distances in 32 buckets whatever their number"
            yield "relative_attention_num_buckets", buckets, does
        return
    if kind in ("gptj", "roformer", "codegen"):
        for key in ("rope_parameters", "rope_scaling", "rope_theta"):
            value = getattr(config, key, None)
            if value is not None:
                yield key, value, f"the frequencies of {kind} are fixed in its code"
        return
    yield from _list_unused_windows(kind, config)


def _list_unused_windows(kind: str, config: Any) -> Iterator[tuple[str, Any, str]]:
    """A window that no layer has."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return
    if types is not None and not any("sliding" in name for name in types):
        yield "sliding_window", window, "no layer has a window (layer_types)"
    elif kind in _WITHOUT_WINDOWS:
        yield "sliding_window", window, f"transformers' {kind} has no windows"
