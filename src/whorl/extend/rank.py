"""The order of the methods, by a rule that the report states.

    1. a framework can run it
    2. fewest pairs are out of distribution at the target
    3. its frequencies do not follow the length of the text
    4. smallest order of magnitude of the angle change within the trained length
    5. most frameworks run it
    6. smallest angle change
    7. attention scale nearest to the published one

Angles that no training text had come first, because a model has no way to know them. Frequencies
that follow the length do not fit keys that a cache holds from a shorter text. Then what the
extension costs short texts: by powers of ten, because 6 rad or 17 rad of a few pairs are much alike
and 1,800 rad of the fast pairs are not. Among equals the one that more frameworks run is of more
use. Measured results are no part of the rule: on a given model another method may be better.
"""

import math
from collections.abc import Sequence

from whorl.configs.inspection.words import format_brief, format_number, join_words

from .report import MethodReport

__all__ = ["RULE", "find_first", "rank_methods", "write_reason"]

RULE = (
    "run by a framework; fewest pairs out of distribution; frequencies that do not follow the"
    " length of the text; smallest angle change within the trained length, by powers of ten; run by"
    " most frameworks; smallest angle change; attention scale nearest to the published one"
)


def rank_methods(methods: Sequence[MethodReport]) -> list[MethodReport]:
    """The methods by the rule, the best first."""
    return sorted(methods, key=_compute_key)


def find_first(ranked: Sequence[MethodReport]) -> MethodReport | None:
    """The method to recommend: the first, if a framework can run it."""
    return ranked[0] if ranked and ranked[0].run_by else None


def write_reason(first: MethodReport, ranked: Sequence[MethodReport], trained: int) -> str:
    """Why the rule puts ``first`` before the next method, as a sentence."""
    words = [_describe_new_angles(first), _describe_runners(first)]
    following = next((m for m in ranked if m is not first and m.run_by), None)
    if following is None:
        return f"{first.name}: {join_words(words)}; no other method is run by a framework."
    mine, other = first.angles, following.angles
    if mine.out_of_distribution < other.out_of_distribution:
        words.append(f"{following.name}, the next, has {other.out_of_distribution} such pairs")
    elif _follows_length(following) and not _follows_length(first):
        words.append(f"{following.name}, the next, follows the length of the text")
    elif _round_change(first) == _round_change(following) and (
        len(first.run_by) > len(following.run_by)
    ):
        words.append(f"{following.name}, the next, is run by {len(following.run_by)}")
    else:
        tokens = format_number(trained)
        words.append(
            f"within {tokens} tokens it changes angles by up to {format_brief(mine.angle_change)}"
            f" rad ({following.name}, the next, by {format_brief(other.angle_change)})"
        )
    return f"{first.name}: {join_words(words)}."


def _compute_key(method: MethodReport) -> tuple[bool, int, bool, int, int, float, float]:
    angles = method.angles
    ratio = angles.attention_scale / angles.published_scale
    return (
        not method.run_by,
        angles.out_of_distribution,
        _follows_length(method),
        _round_change(method),
        -len(method.run_by),
        round(angles.angle_change, 9),
        abs(math.log(ratio)),
    )


def _follows_length(method: MethodReport) -> bool:
    return method.scaling is not None and method.scaling.follows_length


def _round_change(method: MethodReport) -> int:
    """The power of ten nearest to the angle change; changes below 0.1 rad count as none."""
    change = method.angles.angle_change
    return -1 if change < 0.1 else round(math.log10(change))


def _describe_new_angles(method: MethodReport) -> str:
    new, pairs = method.angles.out_of_distribution, method.angles.pairs
    return (
        f"{new} of {pairs} pairs are out of distribution"
        if new
        else "no pair is out of distribution"
    )


def _describe_runners(method: MethodReport) -> str:
    names = list(method.run_by)
    if len(names) == len(method.support):
        return "every framework runs it"
    return f"{join_words(names)} {'runs' if len(names) == 1 else 'run'} it"
