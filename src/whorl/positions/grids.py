"""Coordinates of the cells of a grid: patches of an image, voxels, frames and patches of a video.

    index     i                       integers 0 .. n - 1
    centers   (2 i + 1) / n - 1       centers of n cells that fill [-1, 1]
    corners   2 i / (n - 1) - 1       n points from -1 to 1, both included; a single point is at -1

"centers" are the coordinates of DINOv3 (Simeoni et al. 2025, https://arxiv.org/abs/2508.10104),
whose three ways to normalize are the values of ``side``. "corners" is torch.linspace(-1, 1, n), the
pixel coordinates of rotary-embedding-torch.
"""

from typing import Literal

import torch
from torch import Tensor

from whorl._support.words import quote

__all__ = ["check_choice", "grid"]


def grid(
    *sizes: int,
    coordinates: Literal["index", "centers", "corners"] = "index",
    side: Literal["own", "longest", "shortest"] = "own",
) -> Tensor:
    """Coordinates [n, T] of the T cells of an n-dimensional grid, the last axis fastest.

    coordinates: "index", int64; "centers" and "corners", float64 in [-1, 1].
    side: the size n of "centers" and "corners". "own" takes the size of each axis. "longest" and
    "shortest" take that of one axis for all, so that a step is equally long on every axis; every
    axis still starts at -1, and may end below or above 1.

    >>> grid(2, 3).tolist()
    [[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    >>> grid(4, coordinates="centers").tolist()
    [[-0.75, -0.25, 0.25, 0.75]]
    """
    _check_options(sizes, coordinates, side)
    axes = []
    for size in sizes:
        axis = torch.arange(size)
        if coordinates != "index":
            divisor = {"own": size, "longest": max(sizes), "shortest": min(sizes)}[side]
            axis = _normalize_coordinates(axis, divisor, coordinates == "centers")
        axes.append(axis)
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")])


def _normalize_coordinates(index: Tensor, size: int, centers: bool) -> Tensor:
    """Coordinates in [-1, 1] of cells 0 .. size - 1, as defined above."""
    index = index.double()
    return (2 * index + 1) / size - 1 if centers else 2 * index / max(size - 1, 1) - 1


def _check_options(sizes: tuple[int, ...], coordinates: str, side: str) -> None:
    if not sizes or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(
            f"grid: sizes must be ints >= 0, one for each axis, as in grid(14, 14); got {sizes}."
        )
    check_choice("grid", "coordinates", coordinates, ("index", "centers", "corners"))
    check_choice("grid", "side", side, ("own", "longest", "shortest"))
    if coordinates == "index" and side != "own":
        raise ValueError(
            f"grid: side={side!r} needs coordinates='centers' or 'corners', which are divided by"
            " a size; got coordinates='index'. Leave side out."
        )


def check_choice(where: str, option: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ValueError if the option of the function ``where`` is not one of ``choices``."""
    if value not in choices:
        words = " or ".join(map(repr, choices))
        raise ValueError(f"{where}: {option} must be {words}; got {quote(value)}.")
