"""The heads of q and k of every layer, out of whatever file they are kept in."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from whorl._support.words import quote

from .plan import RowMove, plan_moves, read_head
from .safetensors_file import open_regular
from .shards import open_weight_files
from .sizes import Stated, find_sizes
from .tensor_names import Pattern

__all__ = ["AttentionLayer", "RowReader", "find_layers", "group_layers"]

#: For each key head: the query heads that use it, and itself; rotated rows [R, E] only.
Heads = Iterator[tuple[Iterable[Tensor], Tensor]]
#: Reads the rotated rows of one head of a tensor, by the number of the head in it.
RowReader = Callable[[RowMove, int], Tensor]


@dataclass(frozen=True)
class AttentionLayer:
    """One attention; ``heads`` reads it, a key head at a time."""

    name: str
    number: int | None
    heads: Callable[[], Heads]


def find_layers(
    source: str | Path, patterns: Sequence[Pattern], stated: Stated
) -> list[AttentionLayer]:
    """The layers of a file or folder that have the weights of both q and k."""
    path = Path(source)
    if path.suffix.lower() == ".gguf":
        from .gguf import find_gguf_layers

        return find_gguf_layers(path, stated)
    checkpoint = open_weight_files(path)
    sizes = find_sizes(checkpoint.config, stated)
    return group_layers(plan_moves(checkpoint, sizes, patterns))


def group_layers(
    moves: Sequence[RowMove], read_rows: RowReader | None = None
) -> list[AttentionLayer]:
    """The layers of a checkpoint whose q and k read the same input.

    read_rows: where weights are not in the files of the checkpoint.
    """
    read_rows = read_rows or _read_rotated_rows
    weights: dict[str, list[RowMove]] = {}
    for move in moves:
        named = move.named
        if len(move.entry.shape) == 2 and not named.is_gain and "lora" not in named.leaf:
            weights.setdefault(named.attention, []).append(move)
    layers = []
    for name, mine in weights.items():
        q, k = ([m for m in mine if any(h.part == p for h in m.heads)] for p in ("q", "k"))
        # In latent attention q comes from a narrower input of its own: no products with k.
        if q and k and q[0].entry.shape[1] == k[0].entry.shape[1]:
            layers.append(
                AttentionLayer(name, q[0].named.layer, _make_reader(q[0], k[0], read_rows))
            )
    # Files have them in the order of their names: 1, 10, 11, 2.
    return sorted(layers, key=lambda layer: -1 if layer.number is None else layer.number)


def _make_reader(q: RowMove, k: RowMove, read_rows: RowReader) -> Callable[[], Heads]:
    def heads() -> Heads:
        queries = [n for n, head in enumerate(q.heads) if head.part == "q"]
        keys = [n for n, head in enumerate(k.heads) if head.part == "k"]
        if len(queries) % len(keys):
            raise ValueError(
                f"{str(q.header.path)!r}: {quote(q.entry.name)} has {len(queries)} heads and"
                f" {quote(k.entry.name)} {len(keys)}; q must have a multiple, so a head has another"
                " width. State it by stated=Stated(head_dim=...) (--head-dim)."
            )
        each = len(queries) // len(keys)
        for n, key in enumerate(keys):
            users = queries[n * each : (n + 1) * each]
            yield (read_rows(q, user) for user in users), read_rows(k, key)

    return heads


def _read_rotated_rows(move: RowMove, index: int) -> Tensor:
    head = move.heads[index]
    with open_regular(move.header.path) as file:
        return read_head(file, move, index)[head.start : head.start + head.width]
