"""The frequencies of each method written out by hand, in plain Python floats.

Nothing of whorl is used here: these are the formulas of the papers, for pairs i = 0 .. d/2 - 1.
"""

import math
from collections.abc import Callable

__all__ = ["METHODS", "count_new", "find_change", "find_context", "unscaled"]


def unscaled(d: int, base: float) -> list[float]:
    return [base ** (-2 * i / d) for i in range(d // 2)]


def linear(d: int, base: float, s: float, trained: int) -> list[float]:
    return [theta / s for theta in unscaled(d, base)]


def ntk(d: int, base: float, s: float, trained: int) -> list[float]:
    return unscaled(d, base * s ** (d / (d - 2)))


def raised_base(d: int, base: float, s: float, trained: int) -> list[float]:
    """The base with which the first pair that is too slow is divided by exactly s."""
    first = next(i for i, t in enumerate(unscaled(d, base)) if 2 * math.pi / t > trained)
    return unscaled(d, base * s ** (d / (2 * first)))


def by_parts(d: int, base: float, s: float, trained: int) -> list[float]:
    def corner(rotations: float) -> float:
        return d * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(corner(32)), 0), min(math.ceil(corner(1)), d - 1)
    found = []
    for i, theta in enumerate(unscaled(d, base)):
        divided = min(max((i - low) / (high - low), 0.0), 1.0)
        found.append(theta / s * divided + theta * (1 - divided))
    return found


def llama3(d: int, base: float, s: float, trained: int) -> list[float]:
    found = []
    for theta in unscaled(d, base):
        rotations = trained * theta / (2 * math.pi)
        kept = min(max((rotations - 1) / (4 - 1), 0.0), 1.0)
        found.append(kept * theta + (1 - kept) * theta / s)
    return found


METHODS: dict[str, Callable[[int, float, float, int], list[float]]] = {
    "none": lambda d, base, s, trained: unscaled(d, base),
    "linear": linear,
    "ntk": ntk,
    "raised_base": raised_base,
    "ntk_by_parts": by_parts,
    "yarn": by_parts,
    "llama3": llama3,
}


def slow_pairs(old: list[float], trained: int) -> list[int]:
    return [i for i, theta in enumerate(old) if 2 * math.pi / theta > trained]


def count_new(old: list[float], new: list[float], trained: int, target: int) -> int:
    """Pairs that never came round in training, and whose largest angle grows at the target."""
    slow = slow_pairs(old, trained)
    return sum(target * new[i] > trained * old[i] * (1 + 1e-9) for i in slow)


def find_context(old: list[float], new: list[float], trained: int) -> float:
    """The longest text in which no slow pair exceeds its largest angle of training."""
    return min(trained * old[i] / new[i] for i in slow_pairs(old, trained))


def find_change(old: list[float], new: list[float], trained: int) -> float:
    return max(trained * abs(a - b) for a, b in zip(old, new, strict=True))
