"""Checks that every kind of attention makes: TypeError for types and dtypes, ValueError for shapes.

``where`` names the function that was called: "attention", "linear_attention", "KVCache.update".
"""

from typing import Any

import torch
from torch import Tensor

from whorl._support.storage import check_storage, is_sharded
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.encodings.base import Encoding
from whorl.positions.resolve import INTEGERS

__all__ = [
    "check_coordinates",
    "check_dropout",
    "check_encoding",
    "check_heads",
    "check_integers",
    "check_mask",
    "check_positive",
    "check_qkv",
    "check_rows",
    "has_key_axis",
]

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_encoding(encoding: Any, where: str) -> None:
    """Refuse what is neither an encoding nor None."""
    if encoding is not None and not isinstance(encoding, Encoding):
        raise TypeError(
            f"{where}: encoding must be a whorl.Encoding such as whorl.RoPE(64), or None; got"
            f" {quote(encoding)}. whorl.make('rope', head_dim=64) builds one by its name."
        )
    if encoding is None or torch.compiler.is_compiling():
        return
    if any(is_sharded(parameter) for parameter in encoding.parameters()):
        raise TypeError(
            f"{where}: parameters of the encoding must be plain tensors when it is used; got"
            f" DTensors in {quote(encoding)}. With FSDP2 wrap the layer or model that calls it, not"
            " the encoding; for heads split over processes use whorl.parallel.HeadParallel."
        )


def check_heads(encoding: Encoding, heads: int, where: str) -> None:
    """Refuse an encoding that is built for another number of heads."""
    for part in encoding.parts:
        known = getattr(part.config, "num_heads", None)
        if known is not None and known != heads:
            raise ValueError(
                f"{where}: q must have {known} heads for {quote(part)}; got {heads}. Build the"
                f" encoding with num_heads={heads}."
            )


def check_coordinates(encoding: Encoding | None, positions: Tensor | None, where: str) -> None:
    """Refuse positions [T], where the encoding needs one on each of several axes (AxialRoPE)."""
    if positions is not None and encoding is not None:
        encoding.check_coordinates(positions, where)


def check_dropout(dropout: Any, where: str) -> None:
    """Refuse a dropout that is no probability below 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ValueError(f"{where}: dropout must be a number in [0, 1); got {quote(dropout)}.")


def check_integers(given: Any, where: str, name: str, wanted: str) -> None:
    """Refuse all but a tensor of integers or booleans; wanted: what it has to be, in words."""
    if not isinstance(given, Tensor) or given.is_floating_point() or given.is_complex():
        came = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise TypeError(f"{where}: {name} must be {wanted}; got {came}.")
    check_storage(given, where, name)


def check_positive(value: Any, name: str, where: str) -> None:
    """Refuse all but an int from 1 to 2^62, so that sums of two are int64."""
    if type(value) is not int or not 1 <= value <= 1 << 62:
        raise ValueError(f"{where}: {name} must be a positive int up to 2^62; got {quote(value)}.")


def check_mask(mask: Any, device: torch.device, where: str) -> Tensor:
    """A mask of any shape as booleans: True for what is visible."""
    is_integer = isinstance(mask, Tensor) and not (mask.is_floating_point() or mask.is_complex())
    if not is_integer or mask.device != device:
        came = f"{mask.dtype} on {mask.device}" if isinstance(mask, Tensor) else quote(mask)
        raise TypeError(
            f"{where}: mask must be a tensor, boolean or integers, 1 for visible tokens and 0 for"
            f" padding, on {device}; got {came}. An additive mask of 0 and -inf becomes one by"
            " `mask == 0`."
        )
    check_storage(mask, where, "mask")
    visible: Tensor = mask.bool()
    return visible


def has_key_axis(x: Tensor, k: Tensor) -> bool:
    """Whether ``x`` is [S] or [B, S] for keys [B, G, S, D].

    Axes are counted first: a comparison of [B, S] with [S] would tie an exported program to B != S.
    """
    return x.shape == ((k.shape[2],) if x.dim() == 1 else (k.shape[0], k.shape[2]))


def check_qkv(q: Any, k: Any, v: Any, where: str) -> None:
    """Refuse all but q [B, H, T, D], k [B, G, S, D] and v [B, G, S, Dv] of one dtype and device."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{where}: {name} must be a tensor [B, heads, tokens, channels]; got"
                f" {type(x).__name__}."
            )
        if x.dtype not in _DTYPES:
            raise TypeError(
                f"{where}: {name} must be float32, float64, bfloat16 or float16; got {x.dtype}."
                f" Convert it with {name}.float()."
            )
        if x.dim() != 4:
            raise ValueError(
                f"{where}: {name} must be [B, heads, tokens, channels]; got {list(x.shape)}."
                f" Reshape [B, T, H * D] with {name}.unflatten(-1, (H, -1)).transpose(1, 2)."
            )
        check_storage(x, where, name)
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise TypeError(
            f"{where}: q, k and v must have one dtype and device; got {q.dtype} on {q.device},"
            f" {k.dtype} on {k.device}, {v.dtype} on {v.device}. Convert one of them."
        )
    (B, H, _, D), (G, S) = q.shape, k.shape[1:3]
    if k.shape != (B, G, S, D) or v.shape[:3] != (B, G, S) or not G or H % G:
        raise ValueError(
            f"{where}: shapes must be q [B, H, T, D], k [B, G, S, D], v [B, G, S, Dv], G a divisor"
            f" of H; got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}."
        )


def check_rows(index: Any, batch: int, device: torch.device, where: str) -> Tensor:
    """The rows of a batch that ``index`` lists, at least one, as int64 [N]."""
    try:
        rows = torch.as_tensor(index, device=device)
    except (TypeError, ValueError, RuntimeError):
        rows = None
    if rows is None or (rows.dtype not in INTEGERS and rows.numel()):
        came = quote(index) if rows is None else str(rows.dtype)
        raise TypeError(
            f"{where}: index must be integers, the old row of each new one; got {came}."
        )
    if rows.dim() != 1 or not rows.numel():
        raise ValueError(
            f"{where}: index must be [N], one old row for each new one, at least one; got"
            f" {list(rows.shape)}."
        )
    check_storage(rows, where, "index")
    if not batch:
        raise ValueError(f"{where}: index needs rows, but no tokens are held; add tokens first.")
    if has_values(rows) and (int(rows.min()) < 0 or int(rows.max()) >= batch):
        raise ValueError(
            f"{where}: index must be rows from 0 to {batch - 1}; got {quote(rows.tolist())}."
        )
    return rows.to(torch.int64)
