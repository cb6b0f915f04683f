"""Is everything of q and k known? A tensor that should have moved and did not breaks a model.

Asked before anything is written: names that look like q or k and have no role, numbers for each
channel of a head that have none, layers with weights of only one of q and k, heads of q that are no
multiple of those of k.
"""

import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from .layout import Part
from .names import SAY_PATTERN, Pattern, layer_of, looks_like, stays
from .plan import Move
from .safetensors_file import Entry
from .shards import Checkpoint
from .sizes import Sizes

__all__ = ["check_known", "check_pairs"]

_SHOWN = 3


def check_known(
    checkpoint: Checkpoint,
    sizes: Callable[[int | None], Sizes | None],
    moves: Sequence[Move],
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
    odd = [e.name for e in left if looks_like(e.name) and sizes(layer_of(e.name)) is not None]
    if odd:
        _refuse(odd, "by their names")
    odd = [entry.name for entry in left if _by_channel(entry, widths)]
    if odd:
        _refuse(odd, "as they have a number for each channel of a head")


def _by_channel(entry: Entry, widths: dict[str, set[int]]) -> bool:
    """Whether a tensor of a known attention has one number for each channel of a head."""
    if len(entry.shape) != 1 or stays(entry.name):
        return False
    return any(
        entry.name.startswith(f"{attention}.") and entry.shape[0] in mine
        for attention, mine in widths.items()
    )


def _refuse(odd: Sequence[str], why: str) -> NoReturn:
    more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
    raise ValueError(
        f"convert: these tensors are not known and may belong to q or k, {why}:"
        f" {', '.join(map(repr, odd[:_SHOWN]))}{more}; {SAY_PATTERN} q={_regex(odd[0])}"
        f" (or k=...) if it moves with q, leave={_regex(odd[0])} if it stays."
    )


def check_pairs(moves: Sequence[Move], borrowing: Callable[[int | None], bool]) -> None:
    """Refuse a layer that has the weights of q and none of k, or of k and none of q.

    borrowing: whether a layer takes its keys from another one, by the config.
    """
    for (layer, attention), counts in _counts(moves).items():
        where = repr(attention) if layer is None else f"layer {layer}"
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


def _counts(moves: Sequence[Move]) -> dict[tuple[int | None, str], dict[Part, int]]:
    """By layer: how many heads the weights of q and k have; adapters have weights of neither."""
    found: dict[tuple[int | None, str], dict[Part, int]] = {}
    for move in moves:
        named = move.named
        if named.is_gain or "lora" in named.leaf or len(move.entry.shape) < 2:
            continue
        where = named.layer, named.attention if named.layer is None else ""
        mine = found.setdefault(where, {})
        for head in move.heads:
            mine[head.part] = mine.get(head.part, 0) + 1
    return found


def _regex(name: str) -> str:
    """A regular expression for a name in every layer."""
    return re.sub(r"(?<=[.])\d+(?=[.])", r"[0-9]+", name).replace(".", "[.]")
