"""Options of a cache, and checks of what is passed to it: what must hold, what came, what to do."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.words import quote
from whorl.attention._checks import check_mask, check_qkv
from whorl.encodings import Encoding
from whorl.encodings.base import Config
from whorl.positions.resolve import INTEGERS

__all__ = [
    "CacheConfig",
    "check_crop",
    "check_drop",
    "check_placement",
    "check_positions",
    "check_tokens",
    "read_mask",
]


# Each option, its least value, and the power of two that is its largest. Slots for sinks and
# capacity are allocated; a window is only compared with.
_SIZES = (("window", 1, 62), ("sinks", 0, 32), ("steps", 1, 62), ("capacity", 0, 32))


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
        for option, least, most in _SIZES:
            value = getattr(self, option)
            if value is None and option == "window":
                continue
            if type(value) is not int or value < least:
                raise ValueError(
                    f"KVCache: {option} must be an int, at least {least}; got {quote(value)}."
                )
            if value > 1 << most:
                raise ValueError(
                    f"KVCache: {option} must be at most 2^{most}, more than any memory holds; got"
                    f" {quote(value)}."
                )
        for option, known in (
            ("placement", ("absolute", "in_cache")),
            ("frequencies", ("exact", "stepped")),
        ):
            if getattr(self, option) not in known:
                raise ValueError(
                    f"KVCache: {option} must be {known[0]!r} or {known[1]!r};"
                    f" got {quote(getattr(self, option))}."
                )
        for option, used in (("sinks", self.sinks), ("placement", self.placement == "in_cache")):
            if used and self.window is None:
                raise ValueError(
                    f"KVCache: window must be an int with {option}={quote(getattr(self, option))},"
                    " because nothing is dropped without one; got None. Pass window=."
                )


def check_placement(encoding: Encoding | None, placement: str) -> None:
    """Refuse to count positions inside the cache, where they have several axes."""
    if encoding is not None and placement == "in_cache" and encoding.position_axes > 1:
        raise ValueError(
            f"KVCache: placement must be 'absolute' for {quote(encoding)}, because positions on"
            f" {encoding.position_axes} axes cannot be counted in the cache; got 'in_cache'."
        )


def check_tokens(q: Any, k: Any, v: Any, held: dict[str, Tensor] | None) -> None:
    """Refuse tensors that do not belong together, or do not match the tokens held."""
    check_qkv(q, k, v, "KVCache.update")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(
                f"KVCache.update: {name} must not need a gradient, because a cache overwrites its"
                " memory; got one that does. Decode under torch.no_grad(), train without a cache."
            )
    if q.shape[2] != k.shape[2]:
        raise ValueError(
            "KVCache.update: q, k and v must be the same new tokens, equally many;"
            f" got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}."
        )
    if held is not None:
        _check_held(k, v, held)


def _check_held(k: Tensor, v: Tensor, held: dict[str, Tensor]) -> None:
    for name, x in (("k", k), ("v", v)):
        old = held[name]
        if [old.shape[n] for n in (0, 1, 3)] != [x.shape[n] for n in (0, 1, 3)]:
            B, G, _, D = old.shape
            raise ValueError(
                f"KVCache.update: {name} must be [{B}, {G}, T, {D}] as the tokens held; got"
                f" {list(x.shape)}. Use one cache per layer, reorder() to change the batch, reset()"
                " to start again."
            )
        if old.dtype != x.dtype or old.device != x.device:
            raise TypeError(
                f"KVCache.update: {name} must be {old.dtype} on {old.device} as the tokens held;"
                f" got {x.dtype} on {x.device}. reset() before a change."
            )


def check_positions(positions: Any, encoding: Encoding | None, where: str) -> None:
    """Refuse positions that would fail later in a call, after the cache has taken the tokens in."""
    if not isinstance(positions, Tensor) or not positions.is_floating_point():
        return
    check_storage(positions, where, "positions")
    for part in [] if encoding is None else encoding.parts:
        if not part.fractional and part.hooks - {"input"}:
            raise TypeError(
                f"{where}: positions must be integers for {quote(part)}, whose table is read by"
                f" distance; got {positions.dtype}. Use positions.long() if they are whole."
            )
    if not bool(positions.isfinite().all()):
        raise ValueError(
            f"{where}: positions must be finite numbers, because tokens are ordered by them; got"
            " NaN or infinity."
        )


def read_mask(mask: Tensor | None, k: Tensor) -> Tensor | None:
    """The mask [B, T] of new tokens k [B, G, T, D], true for real ones; None where all are."""
    if mask is None:
        return None
    B, T = k.shape[0], k.shape[2]
    mask = check_mask(mask, k.device, "KVCache.update")
    if mask.shape != (B, T):
        raise ValueError(
            f"KVCache.update: mask must be [B, T] = [{B}, {T}], for the new tokens only; got"
            f" {list(mask.shape)}."
        )
    return None if bool(mask.all()) else mask


def check_crop(length: Any, held: int, lengths: list[int]) -> None:
    """Refuse a length that the cache, or one of its rows, does not have."""
    is_integer = length.dtype in INTEGERS if isinstance(length, Tensor) else type(length) is int
    if not is_integer:
        came = length.dtype if isinstance(length, Tensor) else quote(length)
        raise TypeError(f"KVCache.crop: length must be an int, or integers [B]; got {came}.")
    if isinstance(length, Tensor):
        if length.shape != (len(lengths),):
            raise ValueError(
                f"KVCache.crop: length must be an int, or integers [B] = [{len(lengths)}];"
                f" got {list(length.shape)}."
            )
        check_storage(length, "KVCache.crop", "length")
        if not all(0 <= n <= m for n, m in zip(length.tolist(), lengths, strict=True)):
            raise ValueError(
                f"KVCache.crop: length must be from 0 to the tokens of each row, {lengths}; got"
                f" {length.tolist()}."
            )
    elif length and not held:
        raise ValueError(
            f"KVCache.crop: length must be 0, as no tokens are held; got {quote(length)}."
        )
    elif not -held <= length <= held:
        raise ValueError(
            f"KVCache.crop: length must be from {-held} to {held}, as many as are held, or one for"
            f" each row; got {quote(length)}."
        )


def check_drop(
    drop: Any, lengths: list[int], held: int, sinks: int, device: torch.device
) -> Tensor:
    """The tokens to evict as a mask [B, S]; refuse sinks."""
    dropped = _convert_to_mask(drop, len(lengths), held, device)
    first = held - torch.tensor(lengths, device=device).unsqueeze(-1)
    slots = torch.arange(held, device=device)
    if bool((dropped & (slots >= first) & (slots < first + sinks)).any()):
        raise ValueError(
            f"KVCache.evict: drop must not contain the first {sinks} tokens of a row, because they"
            " are sinks, which are kept; got some of them. Build the cache with sinks=0 to evict"
            " them too."
        )
    return dropped


def _convert_to_mask(drop: Any, batch: int, held: int, device: torch.device) -> Tensor:
    wanted = (
        f"KVCache.evict: drop must be slots, or a mask [S] = [{held}] or [B, S] = [{batch}, {held}]"
        ", true for tokens to drop"
    )
    if not isinstance(drop, Tensor):
        try:
            drop = torch.as_tensor(drop, device=device)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{wanted}; got {quote(drop)}.") from None
        drop = drop.long() if not drop.numel() else drop
    check_storage(drop, "KVCache.evict", "drop")
    if drop.dtype == torch.bool and drop.shape in ((held,), (batch, held)):
        expanded: Tensor = drop.to(device).expand(batch, held)
        return expanded
    if drop.dtype not in INTEGERS or drop.dim() > 1:
        kind = ValueError if drop.dtype == torch.bool or drop.dtype in INTEGERS else TypeError
        raise kind(f"{wanted}; got {drop.dtype} {list(drop.shape)}.")
    index = drop.to(device, torch.int64).reshape(-1)
    if index.numel() and not (-held <= int(index.min()) and int(index.max()) < held):
        known = f"slots from {-held} to {held - 1}, which" if held else "empty, as no tokens"
        raise ValueError(f"KVCache.evict: drop must be {known} are held; got {drop.tolist()}.")
    mask = torch.zeros(held, dtype=torch.bool, device=device)
    mask[index] = True
    return mask.expand(batch, held)
