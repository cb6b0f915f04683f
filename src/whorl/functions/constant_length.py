"""Calls that all have the same number of tokens and the same largest position.

A function whose frequencies depend on the length of a call, or on the longest call so far, has
other frequencies in every call, which hides other mistakes. In calls of one length they are always
the same. So longer calls are cut into pieces, shorter ones are filled up, and each ends with one
more token at a far position.

    wanted       p0 p1 p2                        5 tokens per call, largest position L
    called with  p0 p1 p2 p2 L                   results 0, 1, 2 are returned
"""

import torch
from torch import Tensor

from .measured_function import MeasuredFunction, make_reference_call
from .pair_rotations import compute_difference
from .probe import CallForm, FunctionProbe, NoAnswerError

__all__ = ["TOKENS", "ConstantLengthProbe", "build_constant_length_probe"]

#: Tokens of every call. Many, because far positions are measured in calls of a thousand tokens.
TOKENS = 256
#: A position beyond all that are measured; then the last of those, for tables that end there.
_LARGEST = (2**18 - 1, 2**17 - 1)


class ConstantLengthProbe(FunctionProbe):
    """A probe whose calls all have ``TOKENS`` tokens, the last of them at position ``largest``."""

    def __init__(self, probe: FunctionProbe, largest: int) -> None:
        self.__dict__.update(vars(probe))
        self.largest = largest

    def call(self, given: dict[str, Tensor], form: CallForm | None = None) -> list[Tensor]:
        """Results for these arguments, piece by piece; the arguments do not change."""
        length = given["x" if self.kind == "x" else "q"].shape[2]
        made = []
        for first in range(0, length, TOKENS - 1):
            index = torch.arange(first, first + TOKENS).clamp(max=length - 1)
            made.append(super().call(self._cut_piece(given, index), form))
        return [
            torch.cat([out[:, :, :-1] for out in each], dim=2)[:, :, :length]
            for each in zip(*made, strict=True)
        ]

    def _cut_piece(self, given: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
        axes = {"positions": -1, "cos": -2, "sin": -2}
        piece = {name: x.index_select(axes.get(name, 2), index) for name, x in given.items()}
        if "positions" in piece:
            piece["positions"][..., -1] = self.largest
        return piece


def build_constant_length_probe(function: MeasuredFunction) -> ConstantLengthProbe | None:
    """A probe whose calls do not change later ones, or None if there is none."""
    probe, lengths = function.probe, function.lengths
    if probe.addressing != "each" or lengths is None:
        return None
    for largest in (
        (lengths.longest_context - 1,)
        if lengths.too_slow
        else (*_LARGEST, lengths.longest_context - 1)
    ):
        candidate = ConstantLengthProbe(probe, largest)
        try:
            first = make_reference_call(candidate)[probe.role]
            moved, again = (
                make_reference_call(candidate, start=start)[probe.role] for start in (7, 0)
            )
        except NoAnswerError:
            continue
        return (
            candidate
            if compute_difference(first, again) == 0 < compute_difference(first, moved)
            else None
        )
    return None
