"""Is everything of q and k known? A tensor that should have moved and did not breaks a model.

Asked before anything is written: names that look like q or k and have no role, numbers for each
channel of a head that have none, layers that are missing or have weights of only one of q and k,
heads of q that are no multiple of those of k.
"""

import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from whorl._support.words import list_quoted, quote

from .layout import Part
from .plan import RowMove
from .safetensors_file import TensorEntry
from .shards import WeightFiles
from .sizes import HeadSizes
from .tensor_names import SAY_PATTERN, Pattern, has_query_or_key_word, is_untouched, parse_layer

__all__ = ["check_key_heads", "check_known", "check_layers", "check_pairs"]

_SHOWN = 3


def check_known(
    checkpoint: WeightFiles,
    sizes: Callable[[int | None], HeadSizes | None],
    moves: Sequence[RowMove],
    patterns: Sequence[Pattern],
) -> None:
    """Refuse tensors of rotated layers that may belong to q or k and are not known."""
    done = {move.entry.name for move in moves}
    widths: dict[str, set[int]] = {}
    for move in moves:
        widths.setdefault(move.named.attention, set()).update(head.rows for head in move.heads)
    left = [
        entry
        for _, entry in checkpoint.tensors()
        if entry.name not in done and not any(p.regex.search(entry.name) for p in patterns)
    ]
    odd = [
        e.name
        for e in left
        if has_query_or_key_word(e.name) and sizes(parse_layer(e.name)) is not None
    ]
    if odd:
        _refuse(odd, "by their names")
    odd = [entry.name for entry in left if _has_channel_values(entry, widths)]
    if odd:
        _refuse(odd, "as they have a number for each channel of a head")


def _has_channel_values(entry: TensorEntry, widths: dict[str, set[int]]) -> bool:
    """Whether a tensor of a known attention has one number for each channel of a head."""
    if len(entry.shape) != 1 or is_untouched(entry.name):
        return False
    return any(
        entry.name.startswith(f"{attention}.") and entry.shape[0] in mine
        for attention, mine in widths.items()
    )


def _refuse(odd: Sequence[str], why: str) -> NoReturn:
    raise ValueError(
        f"convert: these tensors are not known and may belong to q or k, {why}:"
        f" {list_quoted(odd, _SHOWN)}; {SAY_PATTERN} q={_build_name_regex(odd[0])}"
        f" (or k=...) if it moves with q, leave={_build_name_regex(odd[0])} if it stays."
    )


def check_pairs(moves: Sequence[RowMove], borrowing: Callable[[int | None], bool]) -> None:
    """Refuse a layer that has the weights of q and none of k, or of k and none of q.

    borrowing: whether a layer takes its keys from another one, by the config.
    """
    for (layer, attention), counts in _count_heads(moves).items():
        where = quote(attention) if layer is None else f"layer {layer}"
        q, k = counts.get("q", 0), counts.get("k", 0)
        if q and not k and borrowing(layer):
            continue
        if not q or not k:
            have, lack = ("q", "k") if q else ("k", "q")
            raise ValueError(
                f"convert: {where} has the weights of {have} and none of {lack}. Both must move, or"
                f" scores change; if {lack} has a name of its own, {SAY_PATTERN} {lack}=REGEX. If"
                f" its {lack} is in another file or another layer, force=True (--force) converts"
                f" what is here."
            )
        if q % k:
            raise ValueError(
                f"convert: {where} has {q} heads of q and {k} of k; q must have a multiple, so a"
                " head has another width. State it by stated=Stated(head_dim=...) (--head-dim)."
            )


def check_key_heads(
    moves: Sequence[RowMove], sizes: Callable[[int | None], HeadSizes | None]
) -> None:
    """Refuse a model in which no layer has as many heads of k as the config or the caller says.

    Some may have others: windowed layers of MiMo-V2 have more, global ones of Gemma 4 fewer.
    """
    counted: dict[tuple[int | None, str], int] = {}
    for move in filter(_is_weight, moves):  # LongCat has two attentions in a layer
        where = move.named.layer, move.named.attention
        count = sum(head.part == "k" for head in move.heads)
        counted[where] = counted.get(where, 0) + count
    found = [(layer, count, sizes(layer)) for (layer, _), count in counted.items() if count]
    if any(size is None or size.num_kv_heads in (None, count) for _, count, size in found):
        return
    for layer, count, size in found:
        assert size is not None
        raise ValueError(
            f"convert: k must have {size.num_kv_heads} heads of {size.k.rows} channels, as the"
            f" config or the caller says; it has {count} in layer {layer}, and no layer has as many"
            " as that. State other sizes by stated=Stated(head_dim=..., num_kv_heads=...)"
            " (--head-dim, --kv-heads)."
        )


def check_layers(checkpoint: WeightFiles, num_layers: int) -> None:
    """Refuse a model of which whole layers are missing: an index may leave out a file.

    A file that is named by itself may be one of several.
    """
    if checkpoint.path.is_file() and checkpoint.index is None:
        return
    seen = {parse_layer(entry.name) for _, entry in checkpoint.tensors()}
    missing = [n for n in range(num_layers) if n not in seen]
    if missing and 2 * len(missing) <= num_layers:  # else numbers in names are not those of layers
        raise ValueError(
            f"convert: config.json has {num_layers} layers, and of layer {missing[0]} there is no"
            " tensor; the index leaves out a file, or it was not downloaded. force=True (--force)"
            " converts what is here."
        )


def _count_heads(moves: Sequence[RowMove]) -> dict[tuple[int | None, str], dict[Part, int]]:
    """By layer: how many heads the weights of q and k have; adapters have weights of neither."""
    found: dict[tuple[int | None, str], dict[Part, int]] = {}
    for move in filter(_is_weight, moves):
        named = move.named
        where = named.layer, named.attention if named.layer is None else ""
        mine = found.setdefault(where, {})
        for head in move.heads:
            mine[head.part] = mine.get(head.part, 0) + 1
    return found


def _is_weight(move: RowMove) -> bool:
    named = move.named
    return not named.is_gain and "lora" not in named.leaf and len(move.entry.shape) > 1


def _build_name_regex(name: str) -> str:
    """A regular expression for a name in every layer."""
    if len(name) > 200:
        return "REGEX"
    return re.sub(r"(?<=[.])\d+(?=[.])", r"[0-9]+", name).replace(".", "[.]")
