"""The layer groups whose frequencies are known, for rules about lengths and stored values."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whorl.configs import LayerGroup, ModelPositions

__all__ = ["RotaryGroup", "find_rotary_groups"]


@dataclass(frozen=True)
class RotaryGroup:
    """A layer group that rotates by one position per token, and its path in the config."""

    where: str
    reading: ModelPositions
    group: LayerGroup
    _computed: dict[int | None, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def get_frequencies(self, length: int | None) -> Tensor:
        """Radians per position of each pair at a context length, without sign, float64 [P].

        Computed once for each length; empty where the rotation cannot be built.
        """
        if length not in self._computed:
            self._computed[length] = self._compute_frequencies(length)
        return self._computed[length]

    def _compute_frequencies(self, length: int | None) -> Tensor:
        assert self.group.rotation is not None
        try:
            return self.group.rotation.frequencies(length).inv_freq.detach().abs()
        except (ValueError, OverflowError):
            return torch.empty(0, dtype=torch.float64)

    def get_longest_distance(self, length: int) -> int:
        """The longest distance between a query and a key that it attends to."""
        return length if self.group.window is None else min(length, self.group.window)

    def path(self, name: str) -> str:
        """The path of a key beside the rope parameters: text_config.rope_theta."""
        return f"{self.where}.{name}" if self.where else name


def find_rotary_groups(readings: Iterable[tuple[str, ModelPositions]]) -> tuple[RotaryGroup, ...]:
    """The layer groups whose frequencies are known; equal rotations of a part count once."""
    found: dict[tuple[str, str, int | None], RotaryGroup] = {}
    for where, reading in readings:
        for group in reading.groups:
            if group.rotation is not None and group.rotation.encoding in ("rope", "mrope"):
                key = (where, repr(group.rotation), group.window)
                found.setdefault(key, RotaryGroup(where, reading, group))
    return tuple(found.values())
