"""Mistakes in which queries, keys or heads differ from each other.

Every rule looks at all measurements, ``e``, and yields the mistakes that it finds.
"""

from .evidence import Evidence, Mistakes
from .report import Mistake
from .roles import describe_dependence

__all__ = ["RULES"]


def detect_mixed_roles(e: Evidence) -> Mistakes:
    if e.roles is None or not e.fails("roles"):
        return
    if e.roles.dependence == ((False, True), (True, False)):
        yield Mistake(
            "outputs-swapped",
            "The results are exchanged: the first is made of k alone and the second of q alone. It"
            " must return (q, k) in the order of its arguments.",
        )
        return
    (_, first_by_k), (second_by_q, _) = e.roles.dependence
    crossed = first_by_k or second_by_q
    head = "Queries and keys are mixed" if crossed else "An argument is ignored"
    yield Mistake(
        "roles-mixed",
        f"{head}: {describe_dependence(e.roles.dependence)}. The first must be made of q alone and"
        " the second of k alone.",
    )


def detect_different_keys(e: Evidence) -> Mistakes:
    if e.roles is None or not e.fails("keys"):
        return
    if e.fails("relative"):
        then = f"Scores do not depend on distances alone (they move by {e.error('relative'):.2g})."
    else:
        then = "Scores still depend on distances alone, but not as those of two equal rotations."
    lines = "; ".join(e.roles.differences)
    yield Mistake("keys-differ", f"Keys are treated differently from queries: {lines}. {then}")


def detect_grouped_keys(e: Evidence) -> Mistakes:
    if e.roles is not None and e.fails("grouped"):
        yield Mistake(
            "grouped-keys",
            f"With 4 heads of queries and 2 of keys, {e.roles.grouped_error}. Grouped-query"
            " attention has fewer heads of keys: read the shape of each tensor itself.",
        )


def detect_different_heads(e: Evidence) -> Mistakes:
    if e.fails("heads"):
        yield Mistake(
            "heads-differ",
            "Heads with the same vector get different results, or eight heads are refused: is the"
            " axis of heads used as that of tokens? Tensors are [B, H, T, D].",
        )


RULES = (detect_mixed_roles, detect_different_keys, detect_grouped_keys, detect_different_heads)
