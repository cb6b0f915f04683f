"""When a cache rotates keys: once, at every call, or when the length has grown by a step.

none      the encoding does not rotate
once      frequencies never change: a key is rotated when it is added
always    frequencies depend on the length, or the rotation is unknown: keys are kept unrotated
stepped   frequencies change when the length has grown by a step: keys are kept in both forms

Encodings with a span, such as XPos, rotate relative to a reference position, which moves with the
queries, block by block and row by row, and the keys held are rescaled then: by powers of two,
exactly. Moving back a little is exact too; from further away keys have vanished and would be
missing, which is refused.
"""

from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from whorl.encodings import Encoding
from whorl.encodings.rotary.lookahead import LookaheadRotation
from whorl.encodings.rotary.rotary import Rotary

if TYPE_CHECKING:
    from .new_tokens import NewTokens

__all__ = ["CacheReferences", "CacheRotation", "get_per_row"]


class CacheRotation:
    """The rotating part of an encoding, and when a cache applies it.

    kind: see the top of this file. has_reference: keys are kept rotated, relative to a reference
    position that moves with the queries.
    """

    def __init__(
        self, encoding: Encoding | None, frequencies: Literal["exact", "stepped"], steps: int
    ) -> None:
        self.part = None if encoding is None else encoding.rotating_part
        self.needs_positions = encoding is not None and encoding.needs_positions
        self._steps = steps
        self._scaling = self.part.config.scaling if isinstance(self.part, Rotary) else None
        self._follows = self._scaling is not None and bool(self._scaling.follows_length)
        self.kind: Literal["none", "once", "always", "stepped"] = "once"
        if self.part is None:
            self.kind = "none"
        elif not isinstance(self.part, Rotary) or (self._follows and frequencies == "exact"):
            self.kind = "always"
        elif self._follows:
            self.kind = "stepped"
        self._has_span = self.part is not None and self.part.acts("span")
        self.has_reference = self._has_span and self.kind == "once"
        # One for new tokens, one for sinks, which lie a window behind.
        self._ahead, self._behind = (
            LookaheadRotation.create(cast(Rotary, self.part))
            if self.kind in ("once", "stepped")
            else None
            for _ in range(2)
        )

    def rotate(
        self,
        q: Tensor,
        k: Tensor,
        where: dict[str, Any],
        context: list[int],
        references: list[int],
    ) -> tuple[Tensor, Tensor]:
        """Rotated queries and keys; where: options positions, key_positions, offset or out."""
        if self.part is None:
            return q, k
        if self._ahead is not None and "offset" in where:
            outs, length = where["out"], self._get_length(q, context)
            if self._ahead.rotate([q, k], where["offset"], list(outs), length):
                return outs[0], outs[1]
        options = self._get_options(q, context, references)
        if self._has_span and not self.has_reference:
            options["reference"] = self.part.reference_near(where["positions"])
        rotated: tuple[Tensor, Tensor] = self.part(q, k, **where, **options)
        return rotated

    def rotate_keys(
        self,
        k: Tensor,
        positions: int | Tensor,
        context: list[int],
        references: list[int],
        out: Tensor,
    ) -> None:
        """Rotate keys into ``out``; positions as an int are consecutive from there."""
        where: dict[str, Any] = {"positions": positions}
        if isinstance(positions, int):
            length = self._get_length(k, context)
            if self._behind is not None and self._behind.rotate([k], positions, [out], length):
                return
            where = {"offset": positions}
        options = self._get_options(k, context, references)
        if self.has_reference:
            options["role"] = "key"
        cast(Rotary, self.part).rotate(k, **where, out=out, **options)

    def _get_options(self, x: Tensor, context: list[int], references: list[int]) -> dict[str, Any]:
        if self.has_reference:
            return {"reference": get_per_row(references, x.device)}
        length = self._get_length(x, context)
        return {} if length is None else {"context_length": length}

    def _get_length(self, x: Tensor, context: list[int]) -> int | Tensor | None:
        return get_per_row(context, x.device) if self._follows else None

    def round_up(self, length: int) -> int:
        """The length whose frequencies serve this one: the next of ``steps`` for each doubling.

        Up to the trained length it is at most that, so nothing changes too early.
        """
        unit = max(1, (1 << (length - 1).bit_length()) // (2 * self._steps))
        above = -(-length // unit) * unit
        trained = getattr(self._scaling, "original_context", None)
        return min(above, trained) if trained is not None and length <= trained else above

    def find_changed_rows(self, old: list[int], new: list[int]) -> list[int]:
        """The rows whose frequencies differ between two lists of lengths."""
        rows = [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        part, different = cast(Rotary, self.part), {}
        for pair in {(old[n], new[n]) for n in rows}:
            before, after = (part.frequencies(length) for length in pair)
            same = torch.equal(before.inv_freq, after.inv_freq)
            different[pair] = not same or before.attention_scale != after.attention_scale
        return [n for n in rows if different[old[n], new[n]]]


class CacheReferences:
    """The reference position of each row, and the largest that it ever had."""

    def __init__(self, rotation: Encoding, batch: int) -> None:
        self._rotation, self._name = rotation, type(rotation).__name__
        self.current, self._largest = [0] * batch, [0] * batch

    def reorder(self, rows: list[int]) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        self.current = [self.current[n] for n in rows]
        self._largest = [self._largest[n] for n in rows]

    def plan(self, tokens: "NewTokens", lengths: list[int]) -> list[int]:
        """The references for new tokens; lengths: tokens that each row holds already."""
        found, dtype = list(self.current), tokens.k.dtype
        rows = [row for row, count in enumerate(tokens.counts) if count]
        if not rows:
            return found
        ends = torch.tensor([tokens.find_ends(row) for row in rows], dtype=torch.float64)
        near = torch.as_tensor(self._rotation.reference_near(ends)).tolist()
        for row, reference, (low, high) in zip(rows, near, ends.tolist(), strict=True):
            found[row] = reference
            self._check_range(low, high, dtype)
            # Further back, more than a rounding of what was lost to underflow is missing.
            span, largest = self._rotation.span(dtype), self._largest[row]
            if lengths[row] and span is not None and largest - reference > span:
                raise ValueError(
                    f"KVCache.update: positions must not go back by more than {span} with"
                    f" {self._name} in {dtype}, because factors of the keys held have vanished;"
                    f" got {reference} after {largest}. reset() and feed the prompt again."
                )
        return found

    def move(self, new: list[int], keys: Tensor, lengths: list[int]) -> None:
        """Rescale the rotated keys held, [B, G, S, D], to new references, in place."""
        if new != self.current and keys.shape[2]:
            before, after = (get_per_row(each, keys.device) for each in (self.current, new))
            keys.copy_(self._rotation.rescale(keys, old=before, new=after))
        rows = zip(self._largest, new, lengths, strict=True)
        self._largest = [max(most, now) if length else now for most, now, length in rows]
        self.current = new

    def _check_range(self, low: float, high: float, dtype: torch.dtype) -> None:
        longest = self._rotation.call_span(dtype)
        if longest is not None and high - low > longest:
            raise ValueError(
                f"KVCache.update: positions of one call must lie within {longest} of each other"
                f" with {self._name} in {dtype}, because factors grow with the distance;"
                f" got {low:g} to {high:g}. Feed the prompt in pieces."
            )


def get_per_row(values: list[int], device: torch.device) -> int | Tensor:
    """One number where all rows have the same, which is faster, or one for each, [B]."""
    if all(value == values[0] for value in values):
        return values[0] if values else 0
    return torch.tensor(values, device=device)
