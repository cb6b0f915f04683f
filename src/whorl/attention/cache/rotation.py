"""How a cache turns queries and keys: once, at every call, or by steps.

none      the encoding does not rotate
once      frequencies never change: a key is rotated as it comes
always    frequencies follow the length, or the rotation is unknown: keys are kept unrotated
stepped   frequencies follow the length by steps: keys are kept both ways
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from whorl.encodings import AxialRoPE, Encoding, XPos
from whorl.encodings.rotary.lookahead import LookaheadRotation
from whorl.encodings.rotary.rotary import Rotary

__all__ = ["Turning", "per_row"]


class Turning:
    """The rotating part of an encoding, as a cache needs it."""

    def __init__(
        self, encoding: Encoding | None, frequencies: Literal["exact", "stepped"], steps: int
    ) -> None:
        parts = [] if encoding is None else encoding.parts
        found = [part for part in parts if "rotation" in part.hooks]
        self.part = found[0] if found else None
        self.xpos = self.part if isinstance(self.part, XPos) else None
        self.needs_positions = any(isinstance(part, AxialRoPE) for part in parts)
        self._steps = steps
        self._scaling = getattr(self.part.config, "scaling", None) if self.part else None
        follows = self._scaling is not None and bool(self._scaling.follows_length)
        self._follows = follows
        self.kind: Literal["none", "once", "always", "stepped"] = "once"
        if self.part is None:
            self.kind = "none"
        elif not isinstance(self.part, Rotary) or (follows and frequencies == "exact"):
            self.kind = "always"
        elif follows:
            self.kind = "stepped"
        # One for new tokens, one for sinks, which lie a window behind.
        self._ahead, self._behind = (
            LookaheadRotation.create(cast(Rotary, self.part))
            if self.kind in ("once", "stepped")
            else None
            for _ in range(2)
        )

    def pair(
        self, q: Tensor, k: Tensor, where: dict[str, Any], context: list[int], refers: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Rotated queries and keys; ``where`` has positions, key_positions, offset or out."""
        if self.part is None:
            return q, k
        if self._ahead is not None and "offset" in where:
            outs = where["out"]
            if self._ahead.rotate([q, k], where["offset"], list(outs), self._length(q, context)):
                return outs[0], outs[1]
        rotated: tuple[Tensor, Tensor] = self.part(q, k, **where, **self._more(q, context, refers))
        return rotated

    def keys(
        self, k: Tensor, at: int | Tensor, context: list[int], refers: list[int], out: Tensor
    ) -> None:
        """Rotate keys into ``out``; at an int, consecutive ones from there."""
        part = cast(Rotary, self.part)
        where: dict[str, Any] = {"positions": at}
        if isinstance(at, int):
            length = self._length(k, context)
            if self._behind is not None and self._behind.rotate([k], at, [out], length):
                return
            where = {"offset": at}
        more = self._more(k, context, refers)
        if self.xpos is not None:
            more["role"] = "key"
        part.rotate(k, **where, out=out, **more)

    def _more(self, x: Tensor, context: list[int], refers: list[int]) -> dict[str, Any]:
        if self.xpos is not None:
            return {"reference": per_row(refers, x.device)}
        length = self._length(x, context)
        return {} if length is None else {"context_length": length}

    def _length(self, x: Tensor, context: list[int]) -> int | Tensor | None:
        return per_row(context, x.device) if self._follows else None

    def step_up(self, length: int) -> int:
        """The length whose frequencies serve up to it: the next of ``steps`` for each doubling.

        Up to the length of training it is at most that, so nothing changes too early.
        """
        unit = max(1, (1 << (length - 1).bit_length()) // (2 * self._steps))
        above = -(-length // unit) * unit
        trained = getattr(self._scaling, "original_context", None)
        return min(above, trained) if trained is not None and length <= trained else above

    def changed(self, old: list[int], new: list[int]) -> list[int]:
        """The rows whose frequencies differ between two lists of lengths."""
        rows = [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        part, different = cast(Rotary, self.part), {}
        for pair in {(old[n], new[n]) for n in rows}:
            before, after = (part.frequencies(length) for length in pair)
            same = torch.equal(before.inv_freq, after.inv_freq)
            different[pair] = not same or before.attention_scale != after.attention_scale
        return [n for n in rows if different[old[n], new[n]]]


def per_row(values: list[int], device: torch.device) -> int | Tensor:
    """One number where all rows have the same, which is faster, or one for each, [B]."""
    if all(value == values[0] for value in values):
        return values[0] if values else 0
    return torch.tensor(values, device=device)
