"""Options of a cache and checks of what it is given: what must hold, what came, what to do."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whorl.encodings import Encoding
from whorl.encodings.base import Config
from whorl.positions.resolve import INTEGERS

__all__ = [
    "CacheConfig",
    "check_crop",
    "check_drop",
    "check_encoding",
    "check_mask",
    "check_rows",
    "check_tokens",
]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class CacheConfig(Config):
    """Options of KVCache, checked on construction; ``KVCache`` says what they mean."""

    window: int | None = None
    sinks: int = 0
    placement: Literal["absolute", "in_cache"] = "absolute"
    frequencies: Literal["exact", "stepped"] = "exact"
    steps: int = 64
    capacity: int = 0

    def __post_init__(self) -> None:
        for option, least in (("window", 1), ("sinks", 0), ("steps", 1), ("capacity", 0)):
            value = getattr(self, option)
            if not (value is None and option == "window") and (
                type(value) is not int or value < least
            ):
                raise ValueError(
                    f"KVCache: {option} must be an int, at least {least}; got {value!r}."
                )
        for option, known in (
            ("placement", ("absolute", "in_cache")),
            ("frequencies", ("exact", "stepped")),
        ):
            if getattr(self, option) not in known:
                raise ValueError(
                    f"KVCache: {option} must be {known[0]!r} or {known[1]!r};"
                    f" got {getattr(self, option)!r}."
                )
        for option, used in (("sinks", self.sinks), ("placement", self.placement == "in_cache")):
            if used and self.window is None:
                raise ValueError(
                    f"KVCache: {option}={getattr(self, option)!r} needs a window, because nothing"
                    " is dropped without one; pass window=."
                )


def check_encoding(encoding: Any, placement: str) -> None:
    """Refuse what is no encoding, and positions in the cache for tokens on several axes."""
    if encoding is not None and not isinstance(encoding, Encoding):
        raise TypeError(f"KVCache: encoding must be an Encoding or None; got {encoding!r}.")
    if encoding is not None and placement == "in_cache" and encoding.position_axes > 1:
        raise ValueError(
            f"KVCache: placement='in_cache' counts tokens, but {encoding!r} places them on"
            f" {encoding.position_axes} axes; use placement='absolute'."
        )


def check_tokens(q: Any, k: Any, v: Any, held: dict[str, Tensor] | None) -> None:
    """Refuse tensors that do not belong together, or not to what the cache holds."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.dim() != 4:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"KVCache.update: {name} must be a tensor [B, H, T, D]; got {got}.")
        if x.dtype not in _DTYPES:
            raise TypeError(
                f"KVCache.update: {name} must be float32, float64, bfloat16 or float16;"
                f" got {x.dtype}."
            )
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(
                f"KVCache.update: {name} needs a gradient, but a cache writes over its memory and"
                " passes none on; decode under torch.no_grad(), train without a cache."
            )
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if not q.shape[0] == k.shape[0] == v.shape[0] or not q.shape[2] == k.shape[2] == v.shape[2]:
        raise ValueError(
            "KVCache.update: q, k and v must be the same new tokens, equal in B and T;"
            f" got {shapes}."
        )
    if k.shape[1] != v.shape[1] or k.shape[3] != q.shape[3]:
        raise ValueError(
            "KVCache.update: k and v must have the same heads, q and k the same head width;"
            f" got {shapes}."
        )
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise TypeError(
            "KVCache.update: q, k and v must have one dtype and device; got"
            f" {q.dtype} {q.device}, {k.dtype} {k.device}, {v.dtype} {v.device}."
        )
    if held is not None:
        _check_held(k, v, held)


def _check_held(k: Tensor, v: Tensor, held: dict[str, Tensor]) -> None:
    for name, x in (("k", k), ("v", v)):
        old = held[name]
        if [old.shape[n] for n in (0, 1, 3)] != [x.shape[n] for n in (0, 1, 3)]:
            B, G, _, D = old.shape
            raise ValueError(
                f"KVCache.update: the cache holds {name} [{B}, {G}, S, {D}]; got {list(x.shape)}."
                " Use one cache per layer, reorder() to change the batch, reset() to begin anew."
            )
        if old.dtype != x.dtype or old.device != x.device:
            raise TypeError(
                f"KVCache.update: the cache holds {old.dtype} on {old.device}; got {name} as"
                f" {x.dtype} on {x.device}. reset() before a change."
            )


def check_mask(mask: Any, batch: int, count: int, device: torch.device) -> Tensor:
    """A boolean mask [B, T] of the new tokens, true for real ones."""
    if not isinstance(mask, Tensor) or mask.shape != (batch, count) or mask.device != device:
        got = f"{list(mask.shape)} on {mask.device}" if isinstance(mask, Tensor) else repr(mask)
        raise ValueError(
            f"KVCache.update: mask must be [B, T] = [{batch}, {count}] on {device}, for the new"
            f" tokens only; got {got}."
        )
    if mask.dtype != torch.bool and mask.dtype not in INTEGERS:
        raise TypeError(
            "KVCache.update: mask must be boolean, or integers 0 (padding) and 1 (token);"
            f" got {mask.dtype}. An additive mask of 0 and -inf becomes one by `mask == 0`."
        )
    wanted: Tensor = mask != 0
    return wanted


def check_crop(length: Any, held: int, lengths: list[int]) -> None:
    """Refuse a length that the cache, or a row, does not have."""
    if isinstance(length, Tensor):
        if length.dtype not in INTEGERS or length.shape != (len(lengths),):
            raise ValueError(
                f"KVCache.crop: length must be an int, or integers [B] = [{len(lengths)}];"
                f" got {length.dtype} {list(length.shape)}."
            )
        if not all(0 <= n <= m for n, m in zip(length.tolist(), lengths, strict=True)):
            raise ValueError(
                f"KVCache.crop: rows hold {lengths} tokens and can keep at most those;"
                f" got {length.tolist()}."
            )
    elif type(length) is not int or not -held <= length <= held:
        raise ValueError(
            f"KVCache.crop: length must be an int from {-held} to {held}, as many as are held, or"
            f" one for each row; got {length!r}."
        )


def check_drop(
    drop: Any, lengths: list[int], held: int, sinks: int, device: torch.device
) -> Tensor:
    """What to evict as a mask [B, S]; refuse sinks."""
    gone = _as_mask(drop, len(lengths), held, device)
    begun = held - torch.tensor(lengths, device=device).unsqueeze(-1)
    inside = torch.arange(held, device=device)
    if bool((gone & (inside >= begun) & (inside < begun + sinks)).any()):
        raise ValueError(
            f"KVCache.evict: the first {sinks} tokens of each row are sinks, which are kept; evict"
            " others, or build the cache with sinks=0."
        )
    return gone


def _as_mask(drop: Any, batch: int, held: int, device: torch.device) -> Tensor:
    if not isinstance(drop, Tensor):
        try:
            drop = torch.as_tensor(drop, device=device)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"KVCache.evict: {_DROP.format(held, batch)}; got {drop!r}.") from None
        drop = drop.long() if not drop.numel() else drop
    if drop.dtype == torch.bool and drop.shape in ((held,), (batch, held)):
        whole: Tensor = drop.to(device).expand(batch, held)
        return whole
    if drop.dtype not in INTEGERS or drop.dim() > 1:
        raise ValueError(
            f"KVCache.evict: {_DROP.format(held, batch)}; got {drop.dtype} {list(drop.shape)}."
        )
    index = drop.to(device, torch.int64).reshape(-1)
    if index.numel() and not (-held <= int(index.min()) and int(index.max()) < held):
        raise ValueError(
            f"KVCache.evict: the cache holds {held} slots, 0 to {held - 1}; got {drop.tolist()}."
        )
    mask = torch.zeros(held, dtype=torch.bool, device=device)
    mask[index] = True
    return mask.expand(batch, held)


_DROP = "drop must be slots, or a mask [S] = [{0}] or [B, S] = [{1}, {0}], true for what goes"


def check_rows(index: Any, batch: int, device: torch.device) -> Tensor:
    """Rows as int64 [B']."""
    rows = torch.as_tensor(index, device=device)
    if rows.dtype not in INTEGERS or rows.dim() != 1 or not rows.numel():
        raise ValueError(
            "KVCache.reorder: index must be integers, the old row of each new one; got"
            f" {rows.dtype} {list(rows.shape)}."
        )
    if int(rows.min()) < 0 or int(rows.max()) >= batch:
        raise ValueError(
            f"KVCache.reorder: the cache has rows 0 to {batch - 1}; got {rows.tolist()}."
        )
    return rows.to(torch.int64)
