"""Rules for layer types and unrotated layers that only one or two families have."""

from collections.abc import Sequence

from whorl.configs._values import MOST_LAYERS, Keys

from .layers import CHUNKED, FULL, LINEAR, SLIDING, TypeRule

__all__ = [
    "assign_alternating_windows",
    "assign_by_compression_ratio",
    "assign_chunks",
    "assign_dense_prefix",
    "assign_ends_and_every_fourth",
    "assign_first_and_every_sixth",
    "assign_full_to_listed",
    "assign_hybrid_blocks",
    "assign_listed_windows",
    "assign_reference_windows",
    "assign_windows_to_all",
    "repeat_block_types",
    "skip_full_except_dense",
    "skip_if_alibi",
    "skip_if_base_is_null",
]

_COMPRESSED = ("heavily_compressed_attention", "compressed_sparse_attention")


def assign_listed_windows(keys: Keys, count: int) -> list[str]:
    """UltraBERT: a list of windows, 0 or null for none; by default every third layer has none."""
    windows = keys.read_list("attention_windows", (int, float, type(None)), "windows")
    if windows is not None:
        return [SLIDING if window else FULL for window in windows[:count]]
    return [SLIDING if (i + 1) % 3 else FULL for i in range(count)]


def repeat_block_types(keys: Keys, count: int) -> list[str]:
    """RecurrentGemma: a short list of block types that repeats."""
    pattern = keys.read_list("block_types", str, "strings") or (
        "recurrent",
        "recurrent",
        "attention",
    )
    return [pattern[i % len(pattern)] for i in range(count)]


def assign_hybrid_blocks(keys: Keys, count: int) -> list[str]:
    """Zamba2: attention only in hybrid blocks."""
    hybrid = {6, 12, 18, 24, 30, 36, 42, 47, 51}
    return ["hybrid" if i in hybrid else LINEAR for i in range(count)]


def assign_dense_prefix(keys: Keys, count: int) -> list[str]:
    """Command-A MoE: one pattern for the dense layers at the start, another for the others."""
    dense = min(keys.read_int("first_k_dense_replace", least=0, most=MOST_LAYERS) or 0, count)
    of_dense = keys.read_int("prefix_dense_sliding_window_pattern", most=MOST_LAYERS) or 1
    of_rest = keys.read_int("sliding_window_pattern", most=MOST_LAYERS) or 4
    head = [SLIDING if (i + 1) % of_dense else FULL for i in range(dense)]
    return head + [SLIDING if (i + 1) % of_rest else FULL for i in range(count - dense)]


def assign_ends_and_every_fourth(keys: Keys, count: int) -> list[str]:
    """Flint: full attention in the first two, the last, and every fourth layer."""
    return [FULL if i < 2 or i % 4 == 1 or i == count - 1 else SLIDING for i in range(count)]


def assign_first_and_every_sixth(keys: Keys, count: int) -> list[str]:
    """MiMo-V2-Flash: full attention in the first and every sixth layer."""
    return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(count)]


def assign_full_to_listed(key: str, other: str, *, without: str) -> TypeRule:
    """Full attention in layers listed under ``key``, else ``other``; all ``without`` if no list."""

    def rule(keys: Keys, count: int) -> list[str]:
        given = keys.read_list(key, int, "layer numbers")
        if given is None:
            return [without] * count
        numbers = set(given)
        return [FULL if i in numbers else other for i in range(count)]

    return rule


def assign_alternating_windows(keys: Keys, count: int) -> list[str]:
    """Qwen2-MoE: with use_sliding_window every second layer below ``max_window_layers`` has one."""
    end = keys.read_int("max_window_layers", least=0) or 0
    asked = keys.read_flag("use_sliding_window")
    return [SLIDING if asked and i < end and (i + 1) % 2 else FULL for i in range(count)]


def assign_windows_to_all(keys: Keys, count: int) -> list[str]:
    """Ministral: all layers have the sliding window, if there is one."""
    return [SLIDING if "sliding_window" in keys else FULL] * count


def assign_reference_windows(keys: Keys, count: int) -> list[str]:
    """Unlimited-OCR: layers attend to a window, and to all of the image and the prompt."""
    return ["reference_sliding_attention" if "sliding_window" in keys else FULL] * count


def assign_chunks(keys: Keys, count: int) -> list[str]:
    """Llama-4: rotated layers attend within chunks."""
    flags = keys.read_list("no_rope_layers", (int, bool), "0 and 1, one for each layer")
    period = keys.read_int("no_rope_layer_interval", most=MOST_LAYERS) or 4
    if not flags:
        flags = tuple((i + 1) % period != 0 for i in range(count))
    return [CHUNKED if flag else FULL for flag in flags[:count]]


def assign_by_compression_ratio(keys: Keys, count: int) -> list[str]:
    """DeepSeek-V4: types by compression ratio; by default two heavy layers, then alternating."""
    given = keys.read_list("compress_ratios", int, "compression ratios")
    if given is not None:
        names = {0: SLIDING, 4: _COMPRESSED[1], 128: _COMPRESSED[0]}
        return [names.get(ratio, SLIDING) for ratio in given[:count]]
    return [_COMPRESSED[0] if i < 2 else _COMPRESSED[i % 2] for i in range(count)]


def skip_full_except_dense(keys: Keys, types: Sequence[str | None]) -> list[bool]:
    """Command-A MoE: full attention is unrotated, except in dense layers that all have it."""
    forced = keys.read_int("prefix_dense_sliding_window_pattern", most=MOST_LAYERS) in (None, 1)
    kinds = keys.read_list("mlp_layer_types", str, "strings")
    dense = min(keys.read_int("first_k_dense_replace", least=0, most=MOST_LAYERS) or 0, len(types))
    if kinds is None:
        kinds = ("dense",) * dense
    return [
        kind == FULL and not (forced and i < len(kinds) and kinds[i] == "dense")
        for i, kind in enumerate(types)
    ]


def skip_if_base_is_null(keys: Keys, types: Sequence[str | None]) -> list[bool]:
    """OLMo hybrid: a rope_theta of null means that no layer is rotated."""
    rope = keys.read_object("rope_parameters")
    data = keys.data if rope is None else rope.data
    return ["rope_theta" in data and data["rope_theta"] is None] * len(types)


def skip_if_alibi(keys: Keys, types: Sequence[str | None]) -> list[bool]:
    """Falcon: no layer is rotated if the config asks for ALiBi."""
    return [keys.read_flag("alibi")] * len(types)
