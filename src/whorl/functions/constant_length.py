"""Calls that all have the same number of tokens and the same largest position.

A function that follows the length of its call, or the longest one it has seen, gives every call
other frequencies, which hides other mistakes. In calls of one length it has one set of them: longer
calls are cut into pieces, shorter ones filled up, and one more token far away ends each.

    asked for    p0 p1 p2                        5 tokens a call, largest position L
    called with  p0 p1 p2 p2 L                   results 0, 1, 2 are given back
"""

import torch
from torch import Tensor

from .measured_function import MeasuredFunction, make_reference_call
from .pair_rotations import compute_difference
from .probe import CallForm, FunctionProbe, NoAnswerError

__all__ = ["TOKENS", "ConstantLengthProbe", "build_constant_length_probe"]

#: Of every call. Many, because far positions are looked at in calls of a thousand.
TOKENS = 256
#: Beyond all positions that are asked for; then the last of them, for tables that end there.
_LARGEST = (2**18 - 1, 2**17 - 1)


class ConstantLengthProbe(FunctionProbe):
    """A probe whose calls all have ``TOKENS`` tokens, the last of them at position ``largest``."""

    def __init__(self, probe: FunctionProbe, largest: int) -> None:
        self.__dict__.update(vars(probe))
        self.largest = largest

    def call(self, given: dict[str, Tensor], form: CallForm | None = None) -> list[Tensor]:
        """The results for these ``arguments``, piece by piece; the arguments stay as they are."""
        length = given["x" if self.kind == "x" else "q"].shape[2]
        made = []
        for first in range(0, length, TOKENS - 1):
            index = torch.arange(first, first + TOKENS).clamp(max=length - 1)
            made.append(super().call(self._piece(given, index), form))
        return [
            torch.cat([out[:, :, :-1] for out in each], dim=2)[:, :, :length]
            for each in zip(*made, strict=True)
        ]

    def _piece(self, given: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
        axes = {"positions": -1, "cos": -2, "sin": -2}
        piece = {name: x.index_select(axes.get(name, 2), index) for name, x in given.items()}
        if "positions" in piece:
            piece["positions"][..., -1] = self.largest
        return piece


def build_constant_length_probe(seen: MeasuredFunction) -> ConstantLengthProbe | None:
    """A probe in whose calls earlier ones change nothing; None where there is none."""
    probe, lengths = seen.probe, seen.lengths
    if probe.addressing != "each" or lengths is None:
        return None
    for largest in (lengths.reach - 1,) if lengths.slow else (*_LARGEST, lengths.reach - 1):
        held = ConstantLengthProbe(probe, largest)
        try:
            first = make_reference_call(held)[probe.role]
            moved, again = (make_reference_call(held, start=start)[probe.role] for start in (7, 0))
        except NoAnswerError:
            continue
        return (
            held
            if compute_difference(first, again) == 0 < compute_difference(first, moved)
            else None
        )
    return None
