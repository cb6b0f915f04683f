"""All mistakes that the rules find, without those that another mistake explains."""

from . import mistakes_in_calls, mistakes_in_rotations
from .evidence import Evidence
from .properties import MEANINGS
from .report import Mistake

__all__ = ["find_mistakes", "find_named_mistakes"]

_FAR = ("half-angles", "dtype-differs", "far-positions", "call-length")
_MATRICES = ("not-pairs", "not-linear", "layout-mixup", "unusual-pairs", "norm", "backward")
#: A mistake, and others whose symptoms it causes.
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
    "not-repeatable": (*_MATRICES, *_FAR, "no-mixing", "uneven-angles", "position-dependent-norm"),
    "uneven-angles": (*_FAR, "unordered-frequencies", "norm"),
    "history": (*_FAR, "pieces-differ"),
}


#: Mistakes that concern queries and keys together.
_OF_BOTH = ("outputs-swapped", "roles-mixed", "keys-differ", "grouped-keys", "input-modified")
#: Mistakes of queries or keys alone that the words of ``keys-differ`` mention already.
_SAID_BY_KEYS_DIFFER = (
    "no-rotation",
    "off-by-one",
    "position-offset",
    "sign-reversed",
    "other-base",
)


def find_mistakes(evidence: list[Evidence]) -> list[Mistake]:
    """All mistakes, in the order of the rules, or else all properties that do not hold.

    evidence: that of x, or those of queries and keys; the words say if only one of them is wrong.
    """
    if named := find_named_mistakes(evidence):
        return named
    for each in evidence:
        if unnamed := _list_unexplained_failures(each):
            return unnamed
    return []


def find_named_mistakes(evidence: list[Evidence]) -> list[Mistake]:
    """Mistakes that a rule finds and that no other mistake explains."""
    found = [[said for rule in _RULES for said in rule(each)] for each in evidence]
    said = found[0] if len(found) == 1 else _merge_mistakes(*found)
    explained = {name for one in said for name in _EXPLAINS.get(one.id, ())}
    if any(each.fails("length") for each in evidence):  # no symptom: calls were compared
        explained.discard("call-length")
    return [one for one in said if one.id not in explained]


def _merge_mistakes(queries: list[Mistake], keys: list[Mistake]) -> list[Mistake]:
    """Mistakes of queries and keys, each once; the words say if only one of them has it."""
    ours, theirs = {one.id for one in queries}, {one.id for one in keys}
    mentioned = _SAID_BY_KEYS_DIFFER if "keys-differ" in ours else ()
    said = []
    for one in queries:
        if one.id in theirs or one.id in _OF_BOTH:
            said.append(one)
        elif one.id not in mentioned:
            said.append(Mistake(one.id, f"Queries only. {one.words}"))
    said += [
        Mistake(one.id, f"Keys only. {one.words}")
        for one in keys
        if one.id not in ours and one.id not in mentioned
    ]
    return said


def _list_unexplained_failures(evidence: Evidence) -> list[Mistake]:
    """Properties that do not hold, for which no rule has a reason."""
    return [
        Mistake(
            f"no-{name}",
            f"It does not hold that {MEANINGS[name]}: the error is {measured.error:.2g} where"
            f" {limit:.2g} is allowed.",
        )
        for name, (measured, limit) in evidence.measured.items()
        if not measured.ok
    ]


_RULES = (*mistakes_in_rotations.RULES, *mistakes_in_calls.RULES)
