"""Environment markers of package metadata: ``python_version < "3.11" and extra == "lab"``.

The grammar is that of the packaging specification's dependency specifiers, without ``~=`` and
``===``, which whorl's own metadata does not use; anything else raises ValueError.
"""

import operator
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["check_marker", "read_environment"]

_TOKEN = re.compile(r"""\s*(\(|\)|[<>=!]=|[<>]|not\s+in\b|[\w.]+|'[^']*'|"[^"]*")""")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def read_environment() -> dict[str, str]:
    """Values of the marker variables for the running Python."""
    return {
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_system": platform.system(),
        "platform_release": platform.release(),
        "platform_version": platform.version(),
        "platform_python_implementation": platform.python_implementation(),
        "implementation_name": sys.implementation.name,
    }


def check_marker(marker: str, environment: Mapping[str, str]) -> bool:
    """Whether a marker holds in an environment; an empty one always does.

    >>> check_marker("python_version < '3.11' and extra == 'lab'",
    ...                {"python_version": "3.9", "extra": "lab"})
    True
    """
    if not marker.strip():
        return True
    tokens = _split_tokens(marker)
    holds = _evaluate_or(tokens, environment, marker)
    if tokens:
        raise _build_error(marker)
    return holds


def _split_tokens(marker: str) -> list[str]:
    found, at = [], 0
    while at < len(marker.rstrip()):
        match = _TOKEN.match(marker, at)
        if match is None:
            raise _build_error(marker)
        found.append(re.sub(r"\s+", " ", match[1]) if match[1].startswith("not") else match[1])
        at = match.end()
    return found


def _evaluate_or(tokens: list[str], environment: Mapping[str, str], marker: str) -> bool:
    holds = _evaluate_and(tokens, environment, marker)
    while tokens[:1] == ["or"]:
        del tokens[0]
        holds = _evaluate_and(tokens, environment, marker) or holds
    return holds


def _evaluate_and(tokens: list[str], environment: Mapping[str, str], marker: str) -> bool:
    holds = _evaluate_term(tokens, environment, marker)
    while tokens[:1] == ["and"]:
        del tokens[0]
        holds = _evaluate_term(tokens, environment, marker) and holds
    return holds


def _evaluate_term(tokens: list[str], environment: Mapping[str, str], marker: str) -> bool:
    if tokens[:1] == ["("]:
        del tokens[0]
        holds = _evaluate_or(tokens, environment, marker)
        if tokens[:1] != [")"]:
            raise _build_error(marker)
        del tokens[0]
        return holds
    if len(tokens) < 3 or tokens[1] not in _COMPARE:
        raise _build_error(marker)
    left, compare, right = tokens[0], _COMPARE[tokens[1]], tokens[2]
    values: list[Any] = list(_find_values((left, right), environment, marker))
    if any(side.startswith("python_") for side in (left, right)) and "in" not in tokens[1]:
        values = [[int(part) for part in re.findall(r"\d+", value)] for value in values]
    del tokens[:3]
    return compare(*values)


def _find_values(
    sides: tuple[str, str], environment: Mapping[str, str], marker: str
) -> Iterator[str]:
    for side in sides:
        if side[0] in "'\"":
            yield side[1:-1]
        elif side in environment:
            yield environment[side]
        else:
            raise _build_error(marker)


def _build_error(marker: str) -> ValueError:
    return ValueError(f"cannot read the environment marker {marker!r} of the package metadata.")
