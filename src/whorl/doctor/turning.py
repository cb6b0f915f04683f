"""How fast the pairs of a model turn, for the rules that look at a length or at stored values."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from whorl.configs.model import ConfigError, LayerGroup, ModelPositions
from whorl.encodings._rotary import Rotary

__all__ = ["Turning", "turnings"]


@dataclass(frozen=True)
class Turning:
    """A group of layers that rotates by one position, and where it stands in the config."""

    where: str
    model: ModelPositions
    group: LayerGroup

    @cached_property
    def _encoding(self) -> Rotary | None:
        """None where it cannot be built."""
        try:
            assert self.group.rotation is not None
            found = self.group.rotation.build(table="on_the_fly", table_length=0)
        except (ConfigError, ValueError, OverflowError):
            return None
        return found if isinstance(found, Rotary) else None

    def frequencies(self, length: int | None) -> Tensor:
        """Radians per position of each pair, without sign, float64 [P], at a length."""
        if self._encoding is None:
            return torch.empty(0, dtype=torch.float64)
        return self._encoding.frequencies(length).inv_freq.detach().abs()

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
