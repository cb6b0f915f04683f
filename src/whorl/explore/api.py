"""JSON in, JSON out: the functions behind the addresses below /api/, without a web framework.

Whatever is wrong with a request is a RequestError, and with a config a ConfigError, both with a
message for the user. Any other error is a mistake of whorl.
"""

from typing import Any

import torch
from torch import Tensor

import whorl
from whorl._support.lengths import parse_length
from whorl.configs import ConfigError, presets
from whorl.encodings import names

from . import compare, curves
from ._checks import MOST_BYTES, RequestError, number, record, whole
from ._checks import length as as_length
from .choices import METHODS, NOT_OFFERED, TITLES, Choice, least_factors, methods
from .curves import LONGEST, MOST_CURVES
from .report import report as say
from .state import State

__all__ = ["LIMITS", "bias", "card", "lab", "length", "report", "start", "view"]

#: Least and most of the numbers in a request; ints are whole. The page gets them by ``start``.
LIMITS: dict[str, tuple[Any, Any]] = {
    "group": (0, 1000),
    "length": (1, LONGEST),
    "trained": (1, 2**40),
    "distance": (0, LONGEST),
    "base": (1.0, 1e15),
    "factor": (1e-3, 1e6),
}
_SHARED = ("source", "group", "length", "trained")
_MOST_VECTORS = 64
#: Of a pasted config; the rest of a request needs room too.
_MOST_TEXT = MOST_BYTES - 100_000


def start(state: State) -> dict[str, Any]:
    """What the page needs to begin: presets, methods, what the command line gave."""
    with_bias, without = compare.kinds()
    return {
        "version": whorl.__version__,
        "presets": presets.names(),
        "methods": {n: TITLES.get(n, n) for n in (*METHODS, *methods())},
        "not_offered": list(NOT_OFFERED.values()),
        "given": None if state.given is None else state.given.name,
        "preset": state.preset or "llama-3.1-8b",
        "encodings": names(),
        "with_bias": list(with_bias),
        "without_bias": list(without),
        "runs": state.comparison is not None,
        "limits": {
            key: {"least": least, "most": most, "whole": isinstance(least, int)}
            for key, (least, most) in LIMITS.items()
        },
        "least_factors": dict(least_factors()),
        "most_text": _MOST_TEXT,
        "most_curves": MOST_CURVES,
    }


def report(state: State, request: Any) -> dict[str, Any]:
    """What inspect and doctor say."""
    given = record(request, (*_SHARED, "choice"))
    return say(
        state.subject(given.get("source")),
        group=_whole(given, "group"),
        length=_whole(given, "length"),
        trained=_whole(given, "trained"),
        choice=_choice(given.get("choice") or {}),
    )


def view(state: State, request: Any) -> dict[str, Any]:
    """The numbers of all charts of the first page."""
    given = record(request, (*_SHARED, "distance", "choices", "q", "k"))
    chosen = given.get("choices") or []
    if not isinstance(chosen, list) or len(chosen) >= MOST_CURVES:
        raise RequestError(f"explore: choices must be a list of fewer than {MOST_CURVES}.")
    return curves.view(
        state.subject(given.get("source")),
        group=_whole(given, "group"),
        length=_whole(given, "length"),
        distance=_whole(given, "distance") or 0,
        trained=_whole(given, "trained"),
        choices=tuple(_choice(one) for one in chosen),
        q=_vectors(given.get("q"), "q"),
        k=_vectors(given.get("k"), "k"),
    )


def bias(state: State, request: Any) -> dict[str, Any]:
    """Bias curves of several encodings."""
    given = record(request, ("encodings", "length"))
    chosen = given.get("encodings")
    known = compare.kinds()[0]
    if not isinstance(chosen, list) or not chosen or any(name not in known for name in chosen):
        raise RequestError(f"explore: encodings must be a list out of {', '.join(known)}.")
    return compare.biases(
        list(dict.fromkeys(chosen)), as_length(given, "length", 2, compare.LONGEST) or 128
    )


def card(state: State, request: Any) -> dict[str, Any]:
    """The report card of one encoding."""
    name = record(request, ("encoding",)).get("encoding")
    if name not in names():
        raise RequestError(f"explore: encoding must be one of {', '.join(names())}.")
    return compare.card(name)


def lab(state: State, request: Any) -> dict[str, Any]:
    """What the lab measured, if a folder was given."""
    record(request, ())
    return compare.lab(state.comparison)


def length(state: State, request: Any) -> dict[str, Any]:
    """The number of tokens that a text such as "128k" names."""
    text = record(request, ("text",)).get("text")
    if not isinstance(text, str):
        raise RequestError("explore: text must be a string, such as '128k'.")
    try:
        return {"length": parse_length(text[:100])}
    except ValueError as error:
        raise ConfigError(f"explore: {error}") from None


def _whole(given: dict[str, Any], key: str) -> int | None:
    read = as_length if key in ("length", "trained", "distance") else whole
    return read(given, key, *LIMITS[key])


def _choice(value: Any) -> Choice:
    given = record(value, ("method", "factor", "base"), "each of choices")
    method = given.get("method", "config")
    known = (*METHODS, *methods())
    if method not in known:
        raise RequestError(f"explore: method must be one of {', '.join(known)}.")
    factor = None if method in METHODS else number(given, "factor", *LIMITS["factor"])
    return Choice(method, factor, number(given, "base", *LIMITS["base"]))


def _vectors(value: Any, name: str) -> Tensor | None:
    """One vector or a list of them; ``analysis.decay`` says what width they must have."""
    if value is None:
        return None
    rows = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    wrong = not isinstance(value, list) or len(rows) > _MOST_VECTORS
    for row in rows if not wrong else []:
        wrong = wrong or not isinstance(row, list) or len(row) != len(rows[0]) or not row
        wrong = wrong or any(type(x) not in (int, float) or not abs(x) < 1e30 for x in row)
    if wrong:
        raise RequestError(
            f"explore: {name} must be a list of numbers, or up to {_MOST_VECTORS} lists of as many."
        )
    return torch.tensor(rows, dtype=torch.float64)
