"""Rules for layers that one family or two have."""

from collections.abc import Sequence

from whorl.configs._values import MOST_LAYERS, Keys

from .layers import CHUNKED, FULL, LINEAR, SLIDING, Types

__all__ = [
    "alternating_below",
    "attention_windows",
    "blocks",
    "chunked",
    "dense_prefix",
    "ends_and_every_fourth",
    "first_and_every_sixth",
    "full_at",
    "in_blocks",
    "null_base",
    "only_alibi",
    "ratios",
    "referring",
    "unforced",
    "windowed",
]

_COMPRESSED = ("heavily_compressed_attention", "compressed_sparse_attention")


def attention_windows(keys: Keys, count: int) -> list[str]:
    """UltraBERT: a list of windows, 0 or None for none; else each third layer sees everything."""
    windows = keys.items("attention_windows", (int, float, type(None)), "windows")
    if windows is not None:
        return [SLIDING if window else FULL for window in windows[:count]]
    return [SLIDING if (i + 1) % 3 else FULL for i in range(count)]


def blocks(keys: Keys, count: int) -> list[str]:
    """RecurrentGemma: a few block types, repeated."""
    pattern = keys.items("block_types", str, "strings") or ("recurrent", "recurrent", "attention")
    return [pattern[i % len(pattern)] for i in range(count)]


def in_blocks(keys: Keys, count: int) -> list[str]:
    """Zamba2: attention in its hybrid blocks."""
    hybrid = {6, 12, 18, 24, 30, 36, 42, 47, 51}
    return ["hybrid" if i in hybrid else LINEAR for i in range(count)]


def dense_prefix(keys: Keys, count: int) -> list[str]:
    """Command-A MoE: one pattern for the dense layers at the start, another for the rest."""
    dense = min(keys.whole("first_k_dense_replace", least=0, most=MOST_LAYERS) or 0, count)
    of_dense = keys.whole("prefix_dense_sliding_window_pattern", most=MOST_LAYERS) or 1
    of_rest = keys.whole("sliding_window_pattern", most=MOST_LAYERS) or 4
    head = [SLIDING if (i + 1) % of_dense else FULL for i in range(dense)]
    return head + [SLIDING if (i + 1) % of_rest else FULL for i in range(count - dense)]


def ends_and_every_fourth(keys: Keys, count: int) -> list[str]:
    """Flint."""
    return [FULL if i < 2 or i % 4 == 1 or i == count - 1 else SLIDING for i in range(count)]


def first_and_every_sixth(keys: Keys, count: int) -> list[str]:
    """MiMo-V2-Flash."""
    return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(count)]


def full_at(key: str, other: str, *, without: str) -> Types:
    """Attention in the layers of a list, ``other`` elsewhere; ``without`` it, all are that."""

    def rule(keys: Keys, count: int) -> list[str]:
        given = keys.items(key, int, "layer numbers")
        if given is None:
            return [without] * count
        numbers = set(given)
        return [FULL if i in numbers else other for i in range(count)]

    return rule


def alternating_below(keys: Keys, count: int) -> list[str]:
    """Qwen2-MoE: each second layer below ``max_window_layers`` has a window, if asked for."""
    end = keys.whole("max_window_layers", least=0) or 0
    asked = keys.flag("use_sliding_window")
    return [SLIDING if asked and i < end and (i + 1) % 2 else FULL for i in range(count)]


def windowed(keys: Keys, count: int) -> list[str]:
    """Ministral: all layers have the window."""
    return [SLIDING if "sliding_window" in keys else FULL] * count


def referring(keys: Keys, count: int) -> list[str]:
    """Unlimited-OCR: a window, and all of the image and the prompt."""
    return ["reference_sliding_attention" if "sliding_window" in keys else FULL] * count


def chunked(keys: Keys, count: int) -> list[str]:
    """Llama-4: layers that rotate attend within chunks."""
    flags = keys.items("no_rope_layers", (int, bool), "0 and 1, one for each layer")
    period = keys.whole("no_rope_layer_interval", most=MOST_LAYERS) or 4
    if not flags:
        flags = tuple((i + 1) % period != 0 for i in range(count))
    return [CHUNKED if flag else FULL for flag in flags[:count]]


def ratios(keys: Keys, count: int) -> list[str]:
    """DeepSeek-V4: by compression ratio; else two heavy layers, then light and heavy in turn."""
    given = keys.items("compress_ratios", int, "compression ratios")
    if given is not None:
        names = {0: SLIDING, 4: _COMPRESSED[1], 128: _COMPRESSED[0]}
        return [names.get(ratio, SLIDING) for ratio in given[:count]]
    return [_COMPRESSED[0] if i < 2 else _COMPRESSED[i % 2] for i in range(count)]


def unforced(keys: Keys, types: Sequence[str | None]) -> list[bool]:
    """Command-A MoE: dense layers rotate though they see everything, if they all do."""
    forced = keys.whole("prefix_dense_sliding_window_pattern", most=MOST_LAYERS) in (None, 1)
    kinds = keys.items("mlp_layer_types", str, "strings")
    dense = min(keys.whole("first_k_dense_replace", least=0, most=MOST_LAYERS) or 0, len(types))
    if kinds is None:
        kinds = ("dense",) * dense
    return [
        kind == FULL and not (forced and i < len(kinds) and kinds[i] == "dense")
        for i, kind in enumerate(types)
    ]


def null_base(keys: Keys, types: Sequence[str | None]) -> list[bool]:
    """OLMo hybrid: a base of null, written out, is none."""
    rope = keys.under("rope_parameters")
    data = keys.data if rope is None else rope.data
    return ["rope_theta" in data and data["rope_theta"] is None] * len(types)


def only_alibi(keys: Keys, types: Sequence[str | None]) -> list[bool]:
    """Falcon: ALiBi instead of rotation."""
    return [keys.flag("alibi")] * len(types)
