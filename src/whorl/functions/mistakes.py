"""Mistakes by name: every rule is asked, and what another mistake explains is left out."""

from . import (
    mistakes_in_calls as _mistakes_calls,
)
from . import (
    mistakes_in_roles as _mistakes_roles,
)
from . import (
    mistakes_in_rotations as _mistakes_turning,
)
from .evidence import Evidence
from .properties import MEANINGS
from .report import Mistake

__all__ = ["find_mistakes", "find_named_mistakes"]

_FAR = ("half-angles", "dtype-differs", "far-positions", "call-length")
_MAPS = ("not-pairs", "not-linear", "layout-mixup", "unusual-pairs", "norm", "backward")
#: A mistake, and those that only seem to be there because of it.
_EXPLAINS = {
    "half-tables": (*_FAR, "position-dependent-norm", "norm"),
    "position-dependent-norm": _FAR,
    "not-linear": ("norm", "backward"),
    "input-modified": ("backward",),
    "cos-sin-swapped": ("sign-reversed",),
    "outputs-swapped": ("backward", "grouped-keys"),
    "roles-mixed": ("backward", "keys-differ", "grouped-keys"),
    "call-length": (*_FAR[:-1], "pieces-differ", "single-token"),
    "heads-differ": ("no-rotation",),
    "not-repeatable": (*(*_MAPS, *_FAR, "no-mixing", "uneven-angles", "position-dependent-norm"),),
    "uneven-angles": (*_FAR, "unordered-frequencies", "norm"),
    "history": (*_FAR, "pieces-differ"),
}


#: Mistakes that are about queries and keys together.
_OF_BOTH = ("outputs-swapped", "roles-mixed", "keys-differ", "grouped-keys", "input-modified")
#: Mistakes of one of them that ``keys-differ`` puts in words of its own.
_SAID_BY_KEYS_DIFFER = (
    "no-rotation",
    "off-by-one",
    "position-offset",
    "sign-reversed",
    "other-base",
)


def find_mistakes(evidence: list[Evidence]) -> list[Mistake]:
    """Every mistake that shows, the most telling first, without what another one explains.

    evidence: of x, or of queries and of keys; a mistake of one of them is said to be its own.
    """
    if named := find_named_mistakes(evidence):
        return named
    for each in evidence:
        if unnamed := _list_unexplained_failures(each):
            return unnamed
    return []


def find_named_mistakes(evidence: list[Evidence]) -> list[Mistake]:
    """``diagnose`` without properties that fail for no reason that has a name."""
    found = [[said for rule in _RULES for said in rule(each)] for each in evidence]
    said = found[0] if len(found) == 1 else _merge_mistakes(*found)
    explained = {name for one in said for name in _EXPLAINS.get(one.id, ())}
    if any(each.fails("length") for each in evidence):  # compared call with call, not inferred
        explained.discard("call-length")
    return [one for one in said if one.id not in explained]


def _merge_mistakes(queries: list[Mistake], keys: list[Mistake]) -> list[Mistake]:
    """Mistakes of both once; those of one with its name, unless ``keys-differ`` says it."""
    ours, theirs = {one.id for one in queries}, {one.id for one in keys}
    told = _SAID_BY_KEYS_DIFFER if "keys-differ" in ours else ()
    said = []
    for one in queries:
        if one.id in theirs or one.id in _OF_BOTH:
            said.append(one)
        elif one.id not in told:
            said.append(Mistake(one.id, f"Queries only. {one.words}"))
    said += [
        Mistake(one.id, f"Keys only. {one.words}")
        for one in keys
        if one.id not in ours and one.id not in told
    ]
    return said


def _list_unexplained_failures(evidence: Evidence) -> list[Mistake]:
    """Properties that fail for no reason that has a name."""
    return [
        Mistake(
            f"no-{name}",
            f"It does not hold that {MEANINGS[name]}: the error is {measured.error:.2g} where"
            f" {limit:.2g} is allowed.",
        )
        for name, (measured, limit) in evidence.results.measured.items()
        if not measured.ok
    ]


_RULES = (*_mistakes_turning.RULES, *_mistakes_roles.RULES, *_mistakes_calls.RULES)
