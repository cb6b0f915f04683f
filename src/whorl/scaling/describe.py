"""What a scaling does to each pair, computed from its frequencies, and the effective context.

The status of a pair follows from the ratio of its unscaled to its scaled frequency:

    kept           ratio 1
    interpolated   ratio at least s, the scaling's full factor
    blended        any other ratio
    unused         scaled frequency 0: the pair does not rotate

The effective context is the longest context in which no pair has an out-of-distribution angle.
In training, within L tokens, pair i took the angles from 0 to L theta_i. A pair with
L theta_i >= 2 pi took every angle and sets no limit. Any other pair stays within its trained angles
for n tokens while n theta'_i <= L theta_i. So

    effective context = floor(min L theta_i / theta'_i, over the pairs with L theta_i < 2 pi)

That all angles are known is necessary for good text at that length, but not sufficient.
"""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .base import Frequencies

from whorl._support.words import quote

__all__ = [
    "Description",
    "PairDescription",
    "PairStatus",
    "describe_scaling",
    "resolve_original_context",
]

PairStatus = Literal["kept", "blended", "interpolated", "unused"]
_STATUSES: tuple[PairStatus, ...] = ("kept", "blended", "interpolated", "unused")
_POSITION_LIMIT = 2**63  # positions are 64-bit integers


@dataclass(frozen=True)
class PairDescription:
    """One pair before and after scaling; None where a number is infinite or not known."""

    index: int
    status: PairStatus
    wavelength: float | None  # positions in a full rotation, unscaled
    new_wavelength: float | None
    factor: float | None  # unscaled over scaled frequency
    rotations: float | None  # full rotations within the original context, unscaled


@dataclass(frozen=True)
class Description:
    """The result of ``Scaling.describe``; ``str`` renders a table, ``to_dict`` is for JSON."""

    scaling: str
    context_length: int | None
    original_context: int | None
    attention_scale: float
    pairs: tuple[PairDescription, ...]
    #: Tokens; None if the original context is unknown, or every pair rotates fully within it.
    effective_context: int | None
    #: The pair that limits the effective context, the fastest if there are several.
    limited_by: int | None

    @property
    def counts(self) -> dict[PairStatus, int]:
        """How many pairs have each status."""
        return {status: sum(p.status == status for p in self.pairs) for status in _STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """All fields as values that JSON can hold; ``effective_context`` is called "reach"."""
        plain = dataclasses.asdict(self)
        plain["pairs"] = list(plain["pairs"])
        plain["counts"] = dict(self.counts)
        return {"reach" if k == "effective_context" else k: v for k, v in plain.items()}

    def __str__(self) -> str:
        heads = (
            "pairs",
            "status",
            "wavelength",
            "new wavelength",
            "divided by",
            "rotations in training",
        )
        rows = [heads, *map(_format_row, _group_by_status(self.pairs))]
        widths = [max(len(row[n]) for row in rows) for n in range(len(heads))]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        title = self.scaling if len(self.scaling) <= 100 else self.scaling[:97] + "..."
        at = "" if self.context_length is None else f" at {self.context_length} tokens"
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items() if n)
        scale = f"{counts}; attention scale {self.attention_scale:.6g}"
        return "\n".join([title + at, *table, scale, self._describe_effective_context()])

    def _describe_effective_context(self) -> str:
        trained, effective = self.original_context, self.effective_context
        if trained is None:
            return "effective context unknown: pass original_context="
        if effective is None:
            pairs = "each pair that rotates does so fully"
            return f"effective context unlimited: {pairs} within {trained} tokens"
        return f"effective context {effective} tokens, trained on {trained}"


def describe_scaling(
    scaling: str,
    *,
    before: Tensor,
    after: "Frequencies",
    full_factor: float | None,
    original_context: int | None,
    context_length: int | None,
) -> Description:
    """The description of frequencies [P] ``before`` and ``after`` a scaling.

    full_factor: the ratio from which on a pair counts as interpolated; None takes the largest one.
    """
    slack = 1e-9 if before.dtype == torch.float64 else 1e-5
    old, new = [[abs(v) for v in values.tolist()] for values in (before, after.inv_freq)]
    ratios = [_divide_finite(a, b) for a, b in zip(old, new, strict=True)]
    full = max((r for r in ratios if r is not None), default=1.0)
    if full_factor is not None:
        full = float(full_factor)
    pairs = tuple(
        PairDescription(
            index=i,
            status=_find_status(ratio, full, slack),
            wavelength=_compute_wavelength(old[i]),
            new_wavelength=_compute_wavelength(new[i]),
            factor=ratio,
            rotations=None
            if original_context is None
            else _divide_finite(original_context * old[i], math.tau),
        )
        for i, ratio in enumerate(ratios)
    )
    effective, limited_by = _compute_effective_context(pairs, original_context, slack)
    return Description(
        scaling=scaling,
        context_length=context_length,
        original_context=original_context,
        attention_scale=float(after.attention_scale),
        pairs=pairs,
        effective_context=effective,
        limited_by=limited_by,
    )


def resolve_original_context(given: int | None, own: int | None, where: str) -> int | None:
    """The trained length: the caller's argument, or the scaling's own option."""
    if given is None:
        return own
    if type(given) is not int or given < 1:
        raise ValueError(
            f"{where}.describe: original_context must be a positive int, the trained length;"
            f" got {quote(given)}."
        )
    if own is not None and own != given:
        raise ValueError(
            f"{where}.describe: original_context must be {own}, the scaling's own value; got"
            f" {given}. Leave it out."
        )
    return given


def _find_status(ratio: float | None, full: float, slack: float) -> PairStatus:
    if ratio is None:
        return "unused"
    if abs(ratio - 1) <= slack:
        return "kept"
    reaches_full = ratio >= full * (1 - slack) if full > 1 else ratio <= full * (1 + slack)
    return "interpolated" if reaches_full and full != 1 else "blended"


def _compute_wavelength(frequency: float) -> float | None:
    return _divide_finite(math.tau, frequency)


def _divide_finite(numerator: float, denominator: float) -> float | None:
    """The quotient, or None if it is not finite because the denominator is 0 or too small."""
    quotient = numerator / denominator if denominator else math.inf
    return quotient if math.isfinite(quotient) else None


def _compute_effective_context(
    pairs: tuple[PairDescription, ...], original_context: int | None, slack: float
) -> tuple[int | None, int | None]:
    """The effective context, and the pair that limits it."""
    limits = [
        (pair.factor, pair.index)
        for pair in pairs
        if pair.factor and pair.rotations is not None and pair.rotations < 1 - slack
    ]
    if original_context is None or not limits:
        return None, None
    least = min(limits)[0] * (1 + slack)  # rounding must not make 8191 of 4 x 2048
    tokens = min(original_context * least, _POSITION_LIMIT)  # the product may be infinite
    return math.floor(tokens), next(i for f, i in limits if f <= least)


def _group_by_status(pairs: tuple[PairDescription, ...]) -> list[list[PairDescription]]:
    """Consecutive pairs with the same status, as groups."""
    return [list(group) for _, group in itertools.groupby(pairs, key=lambda pair: pair.status)]


def _format_row(group: list[PairDescription]) -> tuple[str, ...]:
    first, last = group[0], group[-1]
    indices = str(first.index) if first is last else f"{first.index}-{last.index}"
    numbers = ("wavelength", "new_wavelength", "factor", "rotations")
    ranges = (_format_range([getattr(pair, n) for pair in group]) for n in numbers)
    return (indices, first.status, *ranges)


def _format_range(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    low, high = f"{min(known):.4g}", f"{max(known):.4g}"
    return low if low == high else f"{low} - {high}"
