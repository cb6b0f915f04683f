"""How large inputs of an encoding must be."""

from typing import NamedTuple

from whorl.encodings import Encoding

__all__ = ["Sizes", "sizes_of"]


class Sizes(NamedTuple):
    """Heads, heads of keys, width of a head and of embeddings."""

    num_heads: int
    key_heads: int
    head_dim: int
    width: int


def sizes_of(encoding: Encoding, *, num_heads: int = 4, head_dim: int = 64) -> Sizes:
    """As the encoding's options say, or its parts'; where they are silent, as asked.

    >>> import whorl
    >>> sizes_of(whorl.RoPE(32) + whorl.ALiBi(8))
    Sizes(num_heads=8, key_heads=8, head_dim=32, width=256)
    """
    known: dict[str, int] = {}
    for part in encoding.parts:
        for option in ("num_heads", "num_kv_heads", "head_dim"):
            if isinstance(value := getattr(part.config, option, None), int):
                known.setdefault(option, value)
    D = known.get("head_dim", head_dim)
    groups = known.get("num_kv_heads")
    H = known.get("num_heads", 2 * groups if groups else num_heads)
    widths = [getattr(part.config, "dim", None) for part in encoding.parts if part.acts("embed")]
    width = next((w for w in widths if isinstance(w, int)), H * D)
    if widths and "head_dim" not in known:
        D = max(1, width // H)
    return Sizes(H, groups or H, D, width)
