"""Coordinates of the cells of a grid: patches of an image, voxels, frames and patches of a video.

    index     i                       integers 0 .. n - 1
    centers   (2 i + 1) / n - 1       middles of n cells that fill [-1, 1]
    corners   2 i / (n - 1) - 1       n points from -1 to 1, both included; one point lies at -1

"centers" is what DINOv3 turns by (Simeoni et al. 2025, https://arxiv.org/abs/2508.10104), and its
three ways to normalise are ``side``; "corners" is torch.linspace(-1, 1, n), the pixel coordinates
of rotary-embedding-torch.
"""

from typing import Literal

import torch
from torch import Tensor

from whorl._support.words import quote

__all__ = ["grid"]


def grid(
    *sizes: int,
    coordinates: Literal["index", "centers", "corners"] = "index",
    side: Literal["own", "longest", "shortest"] = "own",
) -> Tensor:
    """Coordinates [n, T] of the T cells of an n-dimensional grid, the last axis fastest.

    coordinates: "index", int64; "centers" and "corners", float64 in [-1, 1].
    side: what "centers" and "corners" divide by: the size of each axis ("own"), or of the longest
    or shortest for all, so that a step means the same on each; every axis still starts at -1, and
    ends below or above 1.

    >>> grid(2, 3).tolist()
    [[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    >>> grid(4, coordinates="centers").tolist()
    [[-0.75, -0.25, 0.25, 0.75]]
    """
    _check(sizes, coordinates, side)
    lines = []
    for size in sizes:
        line = torch.arange(size)
        if coordinates != "index":
            length = {"own": size, "longest": max(sizes), "shortest": min(sizes)}[side]
            line = _normalised(line, length, coordinates == "centers")
        lines.append(line)
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])


def _normalised(line: Tensor, length: int, middles: bool) -> Tensor:
    line = line.double()
    return (2 * line + 1) / length - 1 if middles else 2 * line / max(length - 1, 1) - 1


def _check(sizes: tuple[int, ...], coordinates: str, side: str) -> None:
    if not sizes or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(
            f"grid: sizes must be ints >= 0, one for each axis, as in grid(14, 14); got {sizes}."
        )
    for option, value, known in (
        ("coordinates", coordinates, ("index", "centers", "corners")),
        ("side", side, ("own", "longest", "shortest")),
    ):
        if value not in known:
            words = " or ".join(map(repr, known))
            raise ValueError(f"grid: {option} must be {words}; got {quote(value)}.")
    if coordinates == "index" and side != "own":
        raise ValueError(
            f"grid: side={side!r} is for coordinates that are divided by it, 'centers' and"
            " 'corners'; got coordinates='index'."
        )
