"""Types of layers for configs that do not list them, and which layers do not rotate.

The functions here are, or make, the rules that families.py uses:

    types       (keys, number of layers) -> the type of each layer
    unrotated   (keys, types of the layers) -> for each layer whether it is not rotated
"""

from collections.abc import Callable, Sequence

from whorl.configs._values import MOST_LAYERS, Keys

__all__ = [
    "CHUNKED",
    "NO_ATTENTION",
    "SkipRule",
    "TypeRule",
    "assign_every_nth",
    "assign_every_nth_from_last",
    "assign_one_type",
    "assign_windows_from_layer",
    "count_layers",
    "list_layer_types",
    "skip_all_unless",
    "skip_flagged",
    "skip_numbered",
    "skip_types",
    "skip_zero_base",
]

TypeRule = Callable[[Keys, int], Sequence[str]]
SkipRule = Callable[[Keys, Sequence[str | None]], list[bool]]

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
CHUNKED = "chunked_attention"
#: Layer types without queries and keys.
NO_ATTENTION = frozenset((LINEAR, "conv", "recurrent"))
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
