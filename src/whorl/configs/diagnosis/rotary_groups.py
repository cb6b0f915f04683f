"""How fast the pairs of a model turn, for the rules that look at a length or at stored values."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.configs import LayerGroup, ModelPositions

__all__ = ["Turning", "turnings"]


@dataclass(frozen=True)
class Turning:
    """A group of layers that rotates by one position, and where it stands in the config."""

    where: str
    model: ModelPositions
    group: LayerGroup

    def frequencies(self, length: int | None) -> Tensor:
        """Radians per position of each pair, without sign, float64 [P], at a length.

        Empty where the rotation cannot be built.
        """
        assert self.group.rotation is not None
        try:
            return self.group.rotation.frequencies(length).inv_freq.detach().abs()
        except (ValueError, OverflowError):
            return torch.empty(0, dtype=torch.float64)

    def reach(self, length: int) -> int:
        """The farthest distance that these layers see."""
        return length if self.group.window is None else min(length, self.group.window)

    def path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name


def turnings(readings: Iterable[tuple[str, ModelPositions]]) -> tuple[Turning, ...]:
    """The groups whose frequencies are known, each kind of rotation once."""
    found: dict[tuple[str, str, int | None], Turning] = {}
    for where, model in readings:
        for group in model.groups:
            if group.rotation is not None and group.rotation.encoding in ("rope", "mrope"):
                key = (where, repr(group.rotation), group.window)
                found.setdefault(key, Turning(where, model, group))
    return tuple(found.values())
