"""What a scaling does to each pair, read off its frequencies, and how far it reaches.

Statuses come from the ratio of unscaled to scaled frequency, whatever the scaling:

    kept           ratio 1
    interpolated   ratio at least s, the scaling's full factor
    blended        any other ratio
    unused         scaled frequency 0: the pair never turns

The reach is the longest context in which no pair comes to an angle that it never took in training.
Within L tokens pair i swept the angles from 0 to L theta_i. A pair with L theta_i >= 2 pi took
every angle and sets no limit; one that did not stays inside for n tokens while n theta'_i is at
most L theta_i. So

    reach = floor(min L theta_i / theta'_i, over the pairs with L theta_i < 2 pi)

It says that no angle is new, which is necessary for good text at that length, not sufficient.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .base import Frequencies

__all__ = ["Description", "PairDescription", "Status", "describe", "known_context"]

Status = Literal["kept", "blended", "interpolated", "unused"]
_STATUSES: tuple[Status, ...] = ("kept", "blended", "interpolated", "unused")
_POSITION_LIMIT = 2**63  # that whole numbers of 64 bits count


@dataclass(frozen=True)
class PairDescription:
    """One pair before and after; None where a number would be infinite or is not known."""

    index: int
    status: Status
    wavelength: float | None  # positions in a full turn, unscaled
    new_wavelength: float | None
    factor: float | None  # unscaled over scaled frequency
    rotations: float | None  # full turns within the original context, unscaled


@dataclass(frozen=True)
class Description:
    """What ``Scaling.describe`` found; ``str`` makes a table of it, ``to_dict`` is for JSON."""

    scaling: str
    context_length: int | None
    original_context: int | None
    attention_scale: float
    pairs: tuple[PairDescription, ...]
    #: Tokens; None if the original context is not known, or if every pair turned fully within it.
    reach: int | None
    #: The pair that sets the reach, the fastest of several.
    limited_by: int | None

    @property
    def counts(self) -> dict[Status, int]:
        """How many pairs have each status."""
        return {status: sum(p.status == status for p in self.pairs) for status in _STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, strings, lists and dicts."""
        plain = dataclasses.asdict(self)
        plain["pairs"] = list(plain["pairs"])
        return {**plain, "counts": dict(self.counts)}

    def __str__(self) -> str:
        heads = (
            "pairs",
            "status",
            "wavelength",
            "new wavelength",
            "divided by",
            "turns in training",
        )
        rows = [heads, *map(_row, _groups(self.pairs))]
        widths = [max(len(row[n]) for row in rows) for n in range(len(heads))]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        title = self.scaling if len(self.scaling) <= 100 else self.scaling[:97] + "..."
        at = "" if self.context_length is None else f" at {self.context_length} tokens"
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items() if n)
        scale = f"{counts}; attention scale {self.attention_scale:.6g}"
        return "\n".join([title + at, *table, scale, self._reach_in_words()])

    def _reach_in_words(self) -> str:
        if self.original_context is None:
            return "reach unknown: pass original_context="
        if self.reach is None:
            return f"reach unlimited: what turns, turns fully within {self.original_context} tokens"
        return f"reach {self.reach} tokens, trained on {self.original_context}"


def describe(
    scaling: str,
    *,
    before: Tensor,
    after: "Frequencies",
    full_factor: float | None,
    original_context: int | None,
    context_length: int | None,
) -> Description:
    """Compare frequencies [P] with scaled ones; ``full_factor`` None takes the largest ratio."""
    slack = 1e-9 if before.dtype == torch.float64 else 1e-5
    old, new = [[abs(v) for v in values.tolist()] for values in (before, after.inv_freq)]
    ratios = [_quotient(a, b) for a, b in zip(old, new, strict=True)]
    full = max((r for r in ratios if r is not None), default=1.0)
    if full_factor is not None:
        full = float(full_factor)
    pairs = tuple(
        PairDescription(
            index=i,
            status=_status(ratio, full, slack),
            wavelength=_wavelength(old[i]),
            new_wavelength=_wavelength(new[i]),
            factor=ratio,
            rotations=None
            if original_context is None
            else _quotient(original_context * old[i], math.tau),
        )
        for i, ratio in enumerate(ratios)
    )
    reach, limited_by = _reach(pairs, original_context, slack)
    scale = float(after.attention_scale)
    return Description(scaling, context_length, original_context, scale, pairs, reach, limited_by)


def known_context(given: int | None, own: int | None, where: str) -> int | None:
    """The length of training: what the caller says, or what the scaling knows."""
    if given is None:
        return own
    if type(given) is not int or given < 1:
        raise ValueError(
            f"{where}.describe: original_context must be a positive int, the length of training;"
            f" got {given!r}."
        )
    if own is not None and own != given:
        raise ValueError(
            f"{where}.describe: original_context is {own} in the scaling; got {given}. Leave it"
            " out."
        )
    return given


def _status(ratio: float | None, full: float, slack: float) -> Status:
    if ratio is None:
        return "unused"
    if abs(ratio - 1) <= slack:
        return "kept"
    wholly = ratio >= full * (1 - slack) if full > 1 else ratio <= full * (1 + slack)
    return "interpolated" if wholly and full != 1 else "blended"


def _wavelength(frequency: float) -> float | None:
    return _quotient(math.tau, frequency)


def _quotient(above: float, below: float) -> float | None:
    """None where it is no finite number: ``below`` is 0, or too small."""
    found = above / below if below else math.inf
    return found if math.isfinite(found) else None


def _reach(
    pairs: tuple[PairDescription, ...], original_context: int | None, slack: float
) -> tuple[int | None, int | None]:
    """The reach, and the pair that sets it."""
    limits = [
        (pair.factor, pair.index)
        for pair in pairs
        if pair.factor and pair.rotations is not None and pair.rotations < 1 - slack
    ]
    if original_context is None or not limits:
        return None, None
    least = min(limits)[0] * (1 + slack)  # rounding must not turn 4 x 2048 into 8191
    tokens = min(original_context * least, _POSITION_LIMIT)  # which may be infinite
    return math.floor(tokens), next(i for f, i in limits if f <= least)


def _groups(pairs: tuple[PairDescription, ...]) -> list[list[PairDescription]]:
    """Runs of consecutive pairs with one status."""
    runs: list[list[PairDescription]] = []
    for pair in pairs:
        if runs and runs[-1][-1].status == pair.status:
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _row(run: list[PairDescription]) -> tuple[str, ...]:
    first, last = run[0], run[-1]
    span = str(first.index) if first is last else f"{first.index}-{last.index}"
    numbers = ("wavelength", "new_wavelength", "factor", "rotations")
    return (span, first.status, *(_range([getattr(p, n) for p in run]) for n in numbers))


def _range(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    low, high = f"{min(known):.4g}", f"{max(known):.4g}"
    return low if low == high else f"{low} - {high}"
