"""Mistakes in what becomes of queries and of keys, and of their heads."""

from .evidence import Evidence, Found
from .report import Diagnosis
from .roles import dependence_words

__all__ = ["RULES"]


def exchanged(e: Evidence) -> Found:
    if e.roles is None or not e.fails("roles"):
        return
    if e.roles.depends == ((False, True), (True, False)):
        yield Diagnosis(
            "outputs-swapped",
            "The results are exchanged: the first is made of k alone and the second of q alone. It"
            " must give back (q, k) in the order in which it takes them.",
        )
        return
    (_, first_by_k), (second_by_q, _) = e.roles.depends
    crossed = first_by_k or second_by_q
    head = "Queries and keys get into each other" if crossed else "An argument is ignored"
    yield Diagnosis(
        "roles-mixed",
        f"{head}: {dependence_words(e.roles.depends)}. The first must be made of q alone and the"
        " second of k alone.",
    )


def unlike(e: Evidence) -> Found:
    if e.roles is None or not e.fails("keys"):
        return
    if e.fails("relative"):
        then = f"Scores do not depend on distances alone (they move by {e.error('relative'):.2g})."
    else:
        then = "Scores still depend on distances alone, but not as those of two equal rotations."
    lines = "; ".join(e.roles.differs)
    yield Diagnosis("keys-differ", f"Keys are treated differently from queries: {lines}. {then}")


def grouped(e: Evidence) -> Found:
    if e.roles is not None and e.fails("grouped"):
        yield Diagnosis(
            "grouped-keys",
            f"With 4 heads of queries and 2 of keys, {e.roles.misgrouped}. Grouped-query attention"
            " has fewer heads of keys: take sizes from each tensor itself.",
        )


def heads(e: Evidence) -> Found:
    if e.fails("heads"):
        yield Diagnosis(
            "heads-differ",
            "Heads given the same vector come out different, or eight heads are refused: is the"
            " axis of heads taken for that of tokens? Tensors are [B, H, T, D].",
        )


RULES = (exchanged, unlike, grouped, heads)
