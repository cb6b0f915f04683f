"""The search itself: generations of candidates, made of the best so far by mutation and crossover.

A generation follows from the seed and the losses before it. So the losses are all that is kept: a
search that was stopped computes the same candidates again, takes the losses that it knows, and goes
on with the same result.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whorl.extend.evaluation.results import ResultFile
from whorl.lab.model import derive_seed
from whorl.scaling import Scaling

from .settings import FactorSearch
from .spaces import Candidate, SearchSpace

__all__ = ["SearchOutcome", "SearchProgress", "run_evolution"]

_MOST_TRIES = 20  # to make a candidate that is new


@dataclass(frozen=True)
class SearchProgress:
    """State of a search: evaluations done of all, what is searched, and the lowest loss so far."""

    done: int
    total: int
    label: str
    loss: float
    seconds_left: float | None = None


@dataclass(frozen=True)
class SearchOutcome:
    """The best scaling of a search.

    loss: its loss on the search text. losses: the lowest so far after each evaluation; the first is
    that of what the search started with. critical_pair: the first pair whose factor was searched
    for, as LongRoPE2 does; those before it follow from that one.
    """

    name: str
    scaling: Scaling
    loss: float
    losses: tuple[float, ...]
    critical_pair: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "scaling": self.scaling.to_dict(),
            "loss": self.loss,
            "evaluations": len(self.losses),
            "losses": list(self.losses),
            "critical_pair": self.critical_pair,
        }


def run_evolution(
    space: SearchSpace,
    compute_loss: Callable[[Scaling], float],
    settings: FactorSearch,
    results: ResultFile,
    show: Callable[[str, float], None],
) -> SearchOutcome:
    """Search ``space`` for the scaling with the lowest loss, by ``settings.evaluations`` losses.

    results: where losses are kept, and taken from. show: called with the name of the space and the
    lowest loss so far, after each evaluation.
    """
    source = random.Random(derive_seed(settings.seed, "search", space.name))
    found: dict[Candidate, float] = {}
    lowest: list[float] = []
    generation = _fill_generation(space, space.list_first(), found, settings, source)
    while generation:
        for candidate in generation:
            cell, number = f"{space.name} {len(found)}", len(found)
            if number == settings.evaluations:
                break
            known = results.get(cell)
            if known is None or tuple(known["candidate"]) != candidate:
                loss = compute_loss(space.build_scaling(candidate))
                known = {"candidate": list(candidate), "loss": loss}
                results.add(cell, known)
            loss = known["loss"]  # None in a file that had NaN
            found[candidate] = loss if loss is not None and math.isfinite(loss) else math.inf
            lowest.append(min(found.values()))
            show(space.name, lowest[-1])
        if len(found) == settings.evaluations:
            break
        generation = _fill_generation(space, [], found, settings, source)
    best = min(found, key=found.__getitem__)
    return SearchOutcome(
        *(space.name, space.build_scaling(best), found[best], tuple(lowest)),
        critical_pair=space.find_critical_pair(best),
    )


def _fill_generation(
    space: SearchSpace,
    first: list[Candidate],
    found: dict[Candidate, float],
    settings: FactorSearch,
    source: random.Random,
) -> list[Candidate]:
    """New candidates: ``first``, then mutations and crossovers of the best half generation."""
    parents = sorted(found, key=found.__getitem__)[: settings.population // 2] or first
    made = list(first)
    for _ in range(_MOST_TRIES * settings.population):
        if len(made) >= settings.population:
            break
        one, other = (parents[int(source.random() * len(parents))] for _ in range(2))
        mutates = len(made) % 2 == 0 or one == other
        child = space.mutate(one, source) if mutates else space.cross(one, other, source)
        if child not in found and child not in made:
            made.append(child)
    return made
