"""Types of layers for configs that do not list them, and which layers do not rotate.

The functions assign_... and skip_... are, or make, the rules that families.py uses:

    types       (keys, number of layers) -> the type of each layer
    unrotated   (keys, types of the layers) -> for each layer whether it is not rotated
"""

from collections.abc import Callable, Sequence

from whorl.configs._values import MOST_LAYERS, Keys

__all__ = [
    "CHUNKED",
    "FULL",
    "LINEAR",
    "NO_ATTENTION",
    "SLIDING",
    "SkipRule",
    "TypeRule",
    "count_layers",
    "list_layer_types",
]

TypeRule = Callable[[Keys, int], Sequence[str]]
SkipRule = Callable[[Keys, Sequence[str | None]], list[bool]]

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
CHUNKED = "chunked_attention"
#: Layer types without queries and keys.
NO_ATTENTION = frozenset((LINEAR, "conv", "recurrent"))
_COMPRESSED = ("heavily_compressed_attention", "compressed_sparse_attention")
#: Older names of layer types.
_OLD_NAMES = {
    "mamba": LINEAR,
    "attention": FULL,
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


def count_layers(keys: Keys) -> int | None:
    """Number of layers with weights; num_hidden_layers of HRM also counts their repetitions."""
    stack = keys.read_int("num_layers_per_stack", most=MOST_LAYERS)
    if stack is not None:
        return stack
    return keys.read_int("num_hidden_layers", least=0, most=MOST_LAYERS)


def list_layer_types(keys: Keys, rule: TypeRule | None) -> tuple[str, ...] | None:
    """The type of each layer; None if neither the config nor the family has types."""
    count = count_layers(keys)
    given = keys.read_list("layer_types", str, "strings, the type of each layer")
    if given is not None:
        there = given[: MOST_LAYERS if count is None else count]
        return tuple(_OLD_NAMES.get(name, name) for name in there)
    if rule is None or count is None:
        return None
    return tuple(rule(keys, count))


def assign_every_nth(
    n: int,
    key: str | None = None,
    *,
    hit: str = FULL,
    miss: str = SLIDING,
    first: int | None = None,
    last: str | None = None,
) -> TypeRule:
    """Every n-th layer has the type ``hit``, others ``miss``; the config may set n by ``key``.

    first: index of the first hit, n - 1 by default. last: the type of the last layer.
    """

    def rule(keys: Keys, count: int) -> list[str]:
        period = n if key is None else keys.read_int(key, most=MOST_LAYERS) or n
        start = period - 1 if first is None else first
        types = [hit if i % period == start % period else miss for i in range(count)]
        if last is not None and types:
            types[-1] = last
        return types

    return rule


def assign_every_nth_from_last(n: int) -> TypeRule:
    """Every n-th layer, counted from the last, has full attention."""
    return lambda keys, count: [SLIDING if (count - 1 - i) % n else FULL for i in range(count)]


def assign_one_type(name: str) -> TypeRule:
    """All layers have this type."""
    return lambda keys, count: [name] * count


def assign_windows_from_layer(keys: Keys, count: int) -> list[str]:
    """Layers from number ``max_window_layers`` on have sliding windows (Qwen)."""
    start = keys.read_int("max_window_layers", least=0)
    sliding = (
        keys.read_flag("use_sliding_window") and "sliding_window" in keys and start is not None
    )
    return [SLIDING if sliding and start is not None and i >= start else FULL for i in range(count)]


def skip_types(*names: str, needs: str | None = None) -> SkipRule:
    """Layers of these types are not rotated; with ``needs``, only if the config has that key."""
    return lambda keys, types: [t in names and (needs is None or needs in keys) for t in types]


def skip_flagged(key: str, interval: str) -> SkipRule:
    """A list under ``key`` has 0 for unrotated layers; without it, every ``interval``-th is one."""

    def rule(keys: Keys, types: Sequence[str | None]) -> list[bool]:
        flags = keys.read_list(key, (int, bool), "0 and 1, one for each layer")
        if flags:
            return [i < len(flags) and not flags[i] for i in range(len(types))]
        period = keys.read_int(interval, most=MOST_LAYERS) or 4
        return [(i + 1) % period == 0 for i in range(len(types))]

    return rule


def skip_zero_base(n: int | None = None) -> SkipRule:
    """Layers with base 0 in ``layer_rope_theta``; without the list, every n-th from the last."""

    def rule(keys: Keys, types: Sequence[str | None]) -> list[bool]:
        bases, count = keys.read_numbers("layer_rope_theta"), len(types)
        if bases:
            return [i < len(bases) and not bases[i] for i in range(count)]
        return [n is not None and (count - 1 - i) % n == 0 for i in range(count)]

    return rule


def skip_numbered(key: str, *usual: int) -> SkipRule:
    """Layers whose numbers are listed under ``key`` are not rotated (cross-attention)."""

    def rule(keys: Keys, types: Sequence[str | None]) -> list[bool]:
        given = keys.read_list(key, int, "layer numbers")
        numbers = set(usual if given is None else given)
        return [i in numbers for i in range(len(types))]

    return rule


def skip_all_unless(key: str, *values: object) -> SkipRule:
    """No layer is rotated unless ``key`` has one of these values."""
    return lambda keys, types: [keys.data.get(key) not in values] * len(types)


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
