"""Effective lengths by retrieval: two rules, both on the forms of ``whorl.lab.retrieval``.

threshold   the largest length whose mean share of right answers exceeds 85.6 %. That is the
            threshold of RULER, the score of Llama-2-7B at 4,096 tokens over RULER's 13 tasks: Hsieh
            et al. 2024, https://arxiv.org/abs/2404.06654. Here it is applied to other texts, so the
            result is not RULER's, and small models rarely pass it.
own         the largest length with at least 85 % of the model's own mean, that of the model as
            published at its trained length.

A mean is that over all depths of all forms that were measured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["OWN_SHARE", "RULER_THRESHOLD", "compute_means", "find_effective_lengths"]

RULER_THRESHOLD = 0.856
OWN_SHARE = 0.85

Shares = Mapping[str, Mapping[str, Sequence[float]]]


def compute_means(forms: Mapping[str, Shares]) -> dict[str, dict[str, float]]:
    """Mean share of right answers by row and length; lengths that a form lacks are left out.

    forms: shares by depth, by form, row and length.
    """
    rows = dict.fromkeys(row for shares in forms.values() for row in shares)
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        lengths = [set(shares.get(row, ())) for shares in forms.values()]
        found[row] = {}
        for length in sorted(set.intersection(*lengths), key=int):
            cells = [shares[row][length] for shares in forms.values()]
            found[row][length] = sum(sum(cell) / len(cell) for cell in cells) / len(cells)
    return found


def find_effective_lengths(
    means: Mapping[str, Mapping[str, float]], own: float
) -> dict[str, dict[str, int | None]]:
    """Both effective lengths of each row; None if no length that was measured is enough.

    own: the mean of the model as published at its trained length.

    >>> find_effective_lengths({"yarn": {"1024": 1.0, "2048": 0.9, "4096": 0.2}}, own=1.0)
    {'yarn': {'threshold': 2048, 'own': 2048}}
    """
    return {
        row: {
            "threshold": _find_largest(found, lambda mean: mean > RULER_THRESHOLD),
            "own": _find_largest(found, lambda mean: mean >= OWN_SHARE * own),
        }
        for row, found in means.items()
    }


def _find_largest(means: Mapping[str, float], is_enough: Any) -> int | None:
    return max((int(n) for n, mean in means.items() if is_enough(mean)), default=None)
