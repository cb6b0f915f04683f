"""What a search for LongRoPE2 varies: the critical pair, and the factors from there on.

Slow pairs took less than one rotation in training and are out of distribution past it. By angles
that begins at the first pair whose wavelength exceeds the trained length. LongRoPE2 supposes that
it begins earlier, because few tokens of a text depend on distant ones, and searches where: Shang et
al. 2025, section 3.2, https://arxiv.org/abs/2502.20082.

From the critical pair c on, factors lie between target / trained length and twice that and do not
fall. Those before it follow from the one at c as with a raised base, factor[c] ** (i / c). c lies
between the first pair that took fewer than ten rotations in training and the one by angles.
Departures: all factors start at target / trained length, mutations are those of ``PairFactors``,
and some move c by one pair; there, each line of candidates keeps the c that it began with.
"""

import math
import random
from collections.abc import Sequence

from whorl.scaling import LongRoPE

from .spaces import DIGITS, Candidate, SearchSpace, change_factors

__all__ = ["CriticalFactors"]

_MOST_OF_RATIO = 2.0
_LEAST_ROTATIONS = 10


class CriticalFactors(SearchSpace):
    """Candidates are the critical pair, then the factors of all pairs from there on."""

    name = "searched"

    def __init__(self, inv_freq: Sequence[float], trained: int, target: int) -> None:
        self.trained, self.ratio, self.pairs = trained, target / trained, len(inv_freq)
        rotations = [trained * frequency / (2 * math.pi) for frequency in inv_freq]
        self.earliest = self._find_first(rotations, _LEAST_ROTATIONS)
        self.by_angles = self._find_first(rotations, 1)

    def _find_first(self, rotations: Sequence[float], least: float) -> int:
        """The first pair that took fewer rotations in training; the last one if none did."""
        fewer = (n for n, count in enumerate(rotations) if count < least)
        return next(fewer, self.pairs - 1)

    def list_first(self) -> list[Candidate]:
        """Every critical pair with the smallest factors, the one by angles first."""
        every = range(self.by_angles, self.earliest - 1, -1)
        return [self.fit_candidate([c, *[self.ratio] * (self.pairs - c)]) for c in every]

    def fit_candidate(self, values: Sequence[float]) -> Candidate:
        first, *factors = values
        most = _MOST_OF_RATIO * self.ratio
        fitted = sorted(round(min(max(each, self.ratio), most), DIGITS) for each in factors)
        return (float(first), *fitted)

    def expand(self, candidate: Candidate) -> list[float]:
        """The factors of all pairs."""
        critical, at_critical = int(candidate[0]), candidate[1]
        before = [round(at_critical ** (n / critical), DIGITS) for n in range(critical)]
        return [*before, *candidate[1:]]

    def build_scaling(self, candidate: Candidate) -> LongRoPE:
        factors = tuple(self.expand(candidate))
        return LongRoPE((1.0,) * self.pairs, factors, self.trained, factor=self.ratio)

    def find_critical_pair(self, candidate: Candidate) -> int:
        return int(candidate[0])

    def mutate(self, parent: Candidate, source: random.Random) -> Candidate:
        """Other factors from the same critical pair on, or its neighbour with the same ones."""
        critical = int(parent[0])
        if source.random() < 0.25:
            step = 1 if source.random() < 0.5 else -1
            moved = min(max(critical + step, self.earliest), self.by_angles)
            return self._cut(moved, self._level(parent))
        return self.fit_candidate([critical, *change_factors(parent[1:], source)])

    def cross(self, one: Candidate, other: Candidate, source: random.Random) -> Candidate:
        """The critical pair of one parent, with each factor from either."""
        pairs = zip(self._level(one), self._level(other), strict=True)
        return self._cut(int(one[0]), [a if source.random() < 0.5 else b for a, b in pairs])

    def _level(self, candidate: Candidate) -> list[float]:
        """A factor for every pair, those before the critical one as at it."""
        return [*[candidate[1]] * int(candidate[0]), *candidate[1:]]

    def _cut(self, critical: int, factors: Sequence[float]) -> Candidate:
        return self.fit_candidate([critical, *factors[critical:]])
