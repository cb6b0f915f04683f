"""Functions from JSON to JSON: the addresses below /api/, without a web framework.

A wrong request raises RequestError, a wrong config ConfigError, both with a message for the user.
Any other error is a fault of whorl.
"""

from typing import Any

import torch
from torch import Tensor

import whorl
from whorl._support.lengths import parse_length
from whorl.configs import ConfigError, presets
from whorl.encodings import names
from whorl.extend import plan_extension
from whorl.extend.words import LEGEND

from . import compare, curves
from ._checks import BYTE_LIMIT, RequestError, check_object, read_int, read_number
from ._checks import read_length as as_length
from .choices import METHODS, NOT_OFFERED, TITLES, Choice, find_least_factors, list_methods
from .curves import CURVE_LIMIT, LENGTH_LIMIT
from .export import build_document
from .report import build_report as say
from .state import ExplorerState

__all__ = [
    "LIMITS",
    "answer_bias",
    "answer_card",
    "answer_extend",
    "answer_lab",
    "answer_length",
    "answer_models",
    "answer_report",
    "answer_start",
    "answer_view",
]

#: Least and most of the numbers in a request; ints must be ints. The page gets them from ``start``.
LIMITS: dict[str, tuple[Any, Any]] = {
    "group": (0, 1000),
    "length": (1, LENGTH_LIMIT),
    "trained": (1, 2**40),
    "distance": (0, LENGTH_LIMIT),
    "base": (1.0, 1e15),
    "factor": (1e-3, 1e6),
}
_SHARED = ("source", "group", "length", "trained")
_VECTOR_LIMIT = 64
#: Where the command line names no config, or only one.
_PRESETS = ("llama-3.1-8b", "qwen3-8b")
#: Largest size of a pasted config; the rest of a request needs some bytes too.
_TEXT_LIMIT = BYTE_LIMIT - 100_000


def answer_start(state: ExplorerState) -> dict[str, Any]:
    """What the page needs at the start: presets, methods, limits, and the command line's config."""
    with_bias, without = compare.split_by_bias()
    preset = state.preset or _PRESETS[0]
    another = state.other_preset or next(name for name in _PRESETS if name != preset)
    return {
        "version": whorl.__version__,
        "presets": presets.names(),
        "methods": {n: TITLES.get(n, n) for n in (*METHODS, *list_methods())},
        "not_offered": list(NOT_OFFERED.values()),
        "given": None if state.given is None else state.given.name,
        "other": None if state.other is None else state.other.name,
        "first": {"given": True} if state.given else {"preset": preset},
        "second": {"other": True} if state.other else {"preset": another},
        "preset": preset,
        "encodings": names(),
        "with_bias": list(with_bias),
        "without_bias": list(without),
        "runs": state.comparison is not None,
        "limits": {
            key: {"least": least, "most": most, "whole": isinstance(least, int)}
            for key, (least, most) in LIMITS.items()
        },
        "least_factors": dict(find_least_factors()),
        "most_text": _TEXT_LIMIT,
        "most_curves": CURVE_LIMIT,
    }


def answer_report(state: ExplorerState, request: Any) -> dict[str, Any]:
    """The results of inspect and doctor, and the config to copy."""
    given = check_object(request, (*_SHARED, "choice"))
    return say(
        state.find_config(given.get("source")),
        group=_read_int(given, "group"),
        length=_read_int(given, "length"),
        trained=_read_int(given, "trained"),
        choice=_read_choice(given.get("choice") or {}),
    )


def answer_view(state: ExplorerState, request: Any) -> dict[str, Any]:
    """The numbers of all charts of the first page."""
    given = check_object(request, (*_SHARED, "distance", "choices", "q", "k"))
    chosen = given.get("choices") or []
    if not isinstance(chosen, list) or len(chosen) >= CURVE_LIMIT:
        raise RequestError(f"explore: choices must be a list of fewer than {CURVE_LIMIT}.")
    return curves.build_view(
        state.find_config(given.get("source")),
        group=_read_int(given, "group"),
        length=_read_int(given, "length"),
        distance=_read_int(given, "distance") or 0,
        trained=_read_int(given, "trained"),
        choices=tuple(_read_choice(one) for one in chosen),
        q=_read_vectors(given.get("q"), "q"),
        k=_read_vectors(given.get("k"), "k"),
    )


def answer_extend(state: ExplorerState, request: Any) -> dict[str, Any]:
    """Every method that takes the config to a length, ranked, and what to write for the first."""
    given = check_object(request, ("source", "to", "trained"))
    to = given.get("to")
    if not isinstance(to, (str, int)) or isinstance(to, bool):
        raise RequestError("explore: to must be a length such as '128k' or '4x'.")
    explored = state.find_config(given.get("source"))
    if explored.problem is not None:
        raise ConfigError(explored.problem)
    try:
        plan = plan_extension(
            explored.source,
            to=to[:100] if isinstance(to, str) else to,
            trained=_read_int(given, "trained"),
        )
    except ConfigError as error:
        raise ConfigError(str(error).replace("to must", "Extend to must", 1)) from None
    return {**plan.to_dict(), "source": explored.name, "legend": LEGEND}


def answer_models(state: ExplorerState, request: Any) -> dict[str, Any]:
    """Two models as published: what both say about positions, and their curves."""
    given = check_object(request, ("first", "second"))
    return build_document([state.find_config(given.get(name)) for name in ("first", "second")])


def answer_bias(state: ExplorerState, request: Any) -> dict[str, Any]:
    """Bias curves of several encodings."""
    given = check_object(request, ("encodings", "length"))
    chosen = given.get("encodings")
    known = compare.split_by_bias()[0]
    if not isinstance(chosen, list) or not chosen or any(name not in known for name in chosen):
        raise RequestError(f"explore: encodings must be a list out of {', '.join(known)}.")
    return compare.compute_biases(
        list(dict.fromkeys(chosen)), as_length(given, "length", 2, compare.LENGTH_LIMIT) or 128
    )


def answer_card(state: ExplorerState, request: Any) -> dict[str, Any]:
    """The report card of one encoding."""
    name = check_object(request, ("encoding",)).get("encoding")
    if name not in names():
        raise RequestError(f"explore: encoding must be one of {', '.join(names())}.")
    return compare.build_card(name)


def answer_lab(state: ExplorerState, request: Any) -> dict[str, Any]:
    """The results of the lab, if the command line named a folder."""
    check_object(request, ())
    return compare.build_lab_results(state.comparison)


def answer_length(state: ExplorerState, request: Any) -> dict[str, Any]:
    """The number of tokens of a text such as "128k"."""
    text = check_object(request, ("text",)).get("text")
    if not isinstance(text, str):
        raise RequestError("explore: text must be a string, such as '128k'.")
    try:
        return {"length": parse_length(text[:100])}
    except ValueError as error:
        raise ConfigError(f"explore: {error}") from None


def _read_int(given: dict[str, Any], key: str) -> int | None:
    read = as_length if key in ("length", "trained", "distance") else read_int
    return read(given, key, *LIMITS[key])


def _read_choice(value: Any) -> Choice:
    given = check_object(value, ("method", "factor", "base"), "each of choices")
    method = given.get("method", "config")
    known = (*METHODS, *list_methods())
    if method not in known:
        raise RequestError(f"explore: method must be one of {', '.join(known)}.")
    factor = None if method in METHODS else read_number(given, "factor", *LIMITS["factor"])
    return Choice(method, factor, read_number(given, "base", *LIMITS["base"]))


def _read_vectors(value: Any, name: str) -> Tensor | None:
    """A tensor from one vector or a list of them, or None; their width is checked later."""
    if value is None:
        return None
    rows = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    wrong = not isinstance(value, list) or len(rows) > _VECTOR_LIMIT
    for row in rows if not wrong else []:
        wrong = wrong or not isinstance(row, list) or len(row) != len(rows[0]) or not row
        wrong = wrong or any(type(x) not in (int, float) or not abs(x) < 1e30 for x in row)
    if wrong:
        raise RequestError(
            f"explore: {name} must be a list of numbers, or up to {_VECTOR_LIMIT} lists of equal"
            " length."
        )
    return torch.tensor(rows, dtype=torch.float64)
