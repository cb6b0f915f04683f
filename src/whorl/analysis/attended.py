"""Attention weights by distance, of a trained model or any other.

    share(bin) = mean over queries of the sum of w_ij over keys whose distance i - j is in the bin

Only queries of the second half are used, so that each of them has keys at most distances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .record import Record

__all__ = ["Attended", "AttendedHead", "attended", "label_bin"]


@dataclass(frozen=True)
class AttendedHead(Record):
    """One head: its share of weight in each bin of distance, and summaries."""

    layer: int
    head: int
    shares: tuple[float, ...]
    mean_distance: float
    entropy: float  # nats
    first_token: float  # share of weight on position 0, the usual sink


@dataclass(frozen=True)
class Attended(Record):
    """Weights in bins [low, high) of distance i - j; future keys, if any, have their own bin."""

    name: str
    length: int
    bins: tuple[tuple[int, int], ...]
    uniform: tuple[float, ...]  # shares of a head with equal weights on all visible keys
    heads: tuple[AttendedHead, ...]

    def labels(self) -> tuple[str, ...]:
        """The bins in words: 0, 1, 2-3, 4-7, ..."""
        return tuple(label_bin(low, high) for low, high in self.bins)


@torch.no_grad()
def attended(weights: Sequence[Tensor], *, name: str = "attention") -> Attended:
    """Attention weights by distance, for every layer and head.

    weights: of each layer, [B, H, T, T] or [H, T, T], rows that sum to 1.

    >>> even = torch.ones(1, 2, 8, 8).tril()
    >>> attended([even / even.sum(-1, keepdim=True)]).labels()
    ('0', '1', '2-3', '4-7')
    """
    layers = [_check_weights(w, n) for n, w in enumerate(weights)]
    if not layers:
        raise ValueError("attended: weights must have at least one layer; got none.")
    length = layers[0].shape[-1]
    if any(w.shape[-1] != length for w in layers):
        raise ValueError(
            "attended: all layers must have the same length; got"
            f" {sorted({w.shape[-1] for w in layers})}."
        )
    at = torch.arange(length)
    distance = at.unsqueeze(-1) - at
    later = any(float(w[..., distance < 0].sum()) > 0 for w in layers)
    bins = _make_bins(length, later)
    half = slice(length // 2, length)
    masks = [((distance >= a) & (distance < b))[half] for a, b in bins]
    visible = torch.ones(length, length, dtype=torch.float64)
    visible = visible if later else visible.tril()
    even = (visible / visible.sum(-1, keepdim=True))[half]
    heads = [
        _measure_head(w[:, h, half], masks, distance[half], (layer, h))
        for layer, w in enumerate(layers)
        for h in range(w.shape[1])
    ]
    uniform = tuple(float((even * mask).sum(-1).mean()) for mask in masks)
    return Attended(name, length, bins, uniform, tuple(heads))


def _measure_head(
    w: Tensor, masks: list[Tensor], distance: Tensor, at: tuple[int, int]
) -> AttendedHead:
    """w [B, T/2, T] of one head."""
    shares = tuple(float((w * mask).sum(-1).mean()) for mask in masks)
    logs = torch.where(w > 0, w, 1.0).log()
    return AttendedHead(
        layer=at[0],
        head=at[1],
        shares=shares,
        mean_distance=float((w * distance.abs()).sum(-1).mean()),
        entropy=float(-(w * logs).sum(-1).mean()),
        first_token=float(w[..., 0].mean()),
    )


def _make_bins(length: int, later: bool) -> tuple[tuple[int, int], ...]:
    """Bins [low, high) for 0, 1, 2-3, 4-7, ... below the length; ``later`` adds the future."""
    found = [(0, 1)] + [
        (2**n, min(2 ** (n + 1), length)) for n in range(math.ceil(math.log2(length)))
    ]
    return tuple([(1 - length, 0)] * later + [(a, b) for a, b in found if a < length])


def label_bin(low: int, high: int) -> str:
    """A bin [low, high) of distances in words: "0", "4-7", or "to come"."""
    if low < 0:
        return "to come"
    return str(low) if high == low + 1 else f"{low}-{high - 1}"


def _check_weights(weights: Tensor, layer: int) -> Tensor:
    square = isinstance(weights, Tensor) and weights.dim() in (3, 4)
    if not square or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < 2:
        came = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(
            f"attended: weights of layer {layer} must be [B, H, T, T] or [H, T, T], with T >= 2;"
            f" got {came}."
        )
    wide = weights.detach().double()
    total = wide.sum(-1)
    if float((total - 1).abs().max()) > 0.02 or float(wide.min()) < 0:
        raise ValueError(
            f"attended: rows of weights of layer {layer} must sum to 1 and not be negative; got"
            f" sums from {float(total.min()):.3g} to {float(total.max()):.3g}. Pass the weights"
            " after the softmax."
        )
    return wide if wide.dim() == 4 else wide.unsqueeze(0)
