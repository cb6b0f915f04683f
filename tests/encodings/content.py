"""Inputs for the tests of encodings that score by content and distance."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def filled(module: nn.Module, seed: int = 7) -> Any:
    """The module in float64, with parameters large enough that each of them shows."""
    module.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator)
    return module


@st.composite
def places(draw: st.DrawFn, length: int) -> Tensor:
    """Positions [T] or [2, T]: consecutive from anywhere, or in any order and with any gaps."""
    rows = draw(st.integers(1, 2))
    if draw(st.booleans()):
        starts = draw(st.lists(st.integers(-40, 40), min_size=rows, max_size=rows))
        at = torch.arange(length) + torch.tensor(starts).unsqueeze(-1)
    else:
        count = rows * length
        steps = st.lists(st.integers(-60, 60), min_size=count, max_size=count)
        at = torch.tensor(draw(steps), dtype=torch.int64).view(rows, length)
    return at[0] if rows == 1 and draw(st.booleans()) else at


def row(at: Tensor, b: int) -> list[int]:
    """The positions of one batch row."""
    chosen: list[int] = (at if at.dim() == 1 else at[b % at.shape[0]]).tolist()
    return chosen


def worst(got: Tensor, want: Tensor) -> float:
    """The largest difference."""
    return float((got.detach().double() - want.detach().double()).abs().max())
