"""What a search varies: a factor for each pair, or the options of YaRN; critical: for LongRoPE2.

A candidate is a tuple of numbers. Those of ``PairFactors`` lie between 1 and 1.25 times the target
over the trained length and do not fall from fast pairs to slow ones, as in LongRoPE. Departures
from the paper: a mutation changes numbers by up to a factor of 1.65, those of single pairs or of
neighbours together, and is sorted; there, numbers are drawn anew from the whole range and those
that fall are dropped, which needs many more evaluations. LongRoPE also searches for a number of
first tokens that keep their angles (n-hat). That is absent: no config has a key for it, so nobody
could run what was found, and scores across that border would not depend on distance alone.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from whorl.scaling import LongRoPE, Scaling, YaRN

__all__ = ["DIGITS", "Candidate", "PairFactors", "SearchSpace", "YaRNOptions", "change_factors"]

Candidate = tuple[float, ...]

_MOST_OF_RATIO = 1.25
_LARGEST_STEP = 0.5  # of the logarithm of a number in a mutation
_SHARE_CHANGED = 0.3
DIGITS = 4  # enough for a config, and the same numbers after it was read


class SearchSpace(ABC):
    """Candidates of one kind: where a search starts, and how it goes on from known ones."""

    name: str

    @abstractmethod
    def list_first(self) -> list[Candidate]:
        """The candidates that a search starts with."""

    @abstractmethod
    def fit_candidate(self, values: Sequence[float]) -> Candidate:
        """The candidate with these numbers, brought within the limits."""

    @abstractmethod
    def build_scaling(self, candidate: Candidate) -> Scaling:
        """The scaling that a candidate stands for."""

    def find_critical_pair(self, candidate: Candidate) -> int | None:
        """The pair from which on factors are searched for; None if that is not varied."""
        return None

    def mutate(self, parent: Candidate, source: random.Random) -> Candidate:
        """A candidate near ``parent``: some of its numbers changed, each by itself."""
        return self.fit_candidate(_change_each(parent, source))

    def cross(self, one: Candidate, other: Candidate, source: random.Random) -> Candidate:
        """A candidate with each number from one of two parents."""
        pairs = zip(one, other, strict=True)
        return self.fit_candidate([a if source.random() < 0.5 else b for a, b in pairs])


class PairFactors(SearchSpace):
    """Long factors of LongRoPE; the short ones are 1.

    known: factors of other methods, which the search starts with.
    """

    name = "searched"

    def __init__(self, known: Sequence[Sequence[float]], trained: int, target: int) -> None:
        self.trained, self.ratio = trained, target / trained
        self.known = [self.fit_candidate(each) for each in known]

    def list_first(self) -> list[Candidate]:
        return list(dict.fromkeys(self.known))

    def fit_candidate(self, values: Sequence[float]) -> Candidate:
        most = _MOST_OF_RATIO * self.ratio
        return tuple(sorted(round(min(max(value, 1.0), most), DIGITS) for value in values))

    def build_scaling(self, candidate: Candidate) -> LongRoPE:
        ones = (1.0,) * len(candidate)
        return LongRoPE(ones, candidate, self.trained, factor=self.ratio)

    def mutate(self, parent: Candidate, source: random.Random) -> Candidate:
        return self.fit_candidate(change_factors(parent, source))

    def cross(self, one: Candidate, other: Candidate, source: random.Random) -> Candidate:
        """The fast pairs of one parent and the slow ones of the other, or each from either."""
        if source.random() < 0.5:
            return super().cross(one, other, source)
        cut = 1 + int(source.random() * (len(one) - 1))
        return self.fit_candidate([*one[:cut], *other[cut:]])


class YaRNOptions(SearchSpace):
    """Factor, beta_fast and beta_slow of YaRN: what a fair rival of found factors may vary."""

    name = "tuned_yarn"

    def __init__(self, trained: int, target: int) -> None:
        self.trained, self.ratio = trained, target / trained

    def list_first(self) -> list[Candidate]:
        """YaRN as it is, then others: betas act by steps, and small changes often do nothing."""
        betas = ((32.0, 1.0), (16.0, 1.0), (8.0, 1.0), (4.0, 1.0), (16.0, 2.0), (8.0, 2.0))
        return [self.fit_candidate((self.ratio, fast, slow)) for fast, slow in betas]

    def fit_candidate(self, values: Sequence[float]) -> Candidate:
        factor, fast, slow = values
        factor = round(min(max(factor, 1.0), 4 * self.ratio), DIGITS)
        slow, fast = sorted(round(min(max(beta, 0.05), 512.0), DIGITS) for beta in (slow, fast))
        return factor, fast, slow

    def build_scaling(self, candidate: Candidate) -> YaRN:
        factor, fast, slow = candidate
        return YaRN(factor, self.trained, beta_fast=fast, beta_slow=slow)


def change_factors(factors: Sequence[float], source: random.Random) -> list[float]:
    """Factors of which some changed, each by itself or neighbours together."""
    if source.random() < 0.5:
        return _change_each(factors, source)
    # Neighbouring pairs together, because methods that work are smooth.
    first = int(source.random() * len(factors))
    end = first + 1 + int(source.random() * (len(factors) - first))
    step = _draw_step(source)
    return [v * step if first <= n < end else v for n, v in enumerate(factors)]


def _change_each(values: Sequence[float], source: random.Random) -> list[float]:
    steps = [_draw_step(source) for _ in values]
    chosen = [source.random() < _SHARE_CHANGED for _ in values]
    chosen[int(source.random() * len(values))] = True
    return [v * s if yes else v for v, s, yes in zip(values, steps, chosen, strict=True)]


def _draw_step(source: random.Random) -> float:
    return math.exp(_LARGEST_STEP * (2 * source.random() - 1))
