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

__all__ = ["marker_applies", "this_environment"]

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


def this_environment() -> dict[str, str]:
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


def marker_applies(marker: str, environment: Mapping[str, str]) -> bool:
    """Whether a marker holds in an environment; an empty one always does.

    >>> marker_applies("python_version < '3.11' and extra == 'lab'",
    ...                {"python_version": "3.9", "extra": "lab"})
    True
    """
    if not marker.strip():
        return True
    tokens = _tokens(marker)
    holds = _any_of(tokens, environment, marker)
    if tokens:
        raise _unreadable(marker)
    return holds


def _tokens(marker: str) -> list[str]:
    found, at = [], 0
    while at < len(marker.rstrip()):
        match = _TOKEN.match(marker, at)
        if match is None:
            raise _unreadable(marker)
        found.append(re.sub(r"\s+", " ", match[1]) if match[1].startswith("not") else match[1])
        at = match.end()
    return found


def _any_of(tokens: list[str], environment: Mapping[str, str], marker: str) -> bool:
    holds = _all_of(tokens, environment, marker)
    while tokens[:1] == ["or"]:
        del tokens[0]
        holds = _all_of(tokens, environment, marker) or holds
    return holds


def _all_of(tokens: list[str], environment: Mapping[str, str], marker: str) -> bool:
    holds = _one(tokens, environment, marker)
    while tokens[:1] == ["and"]:
        del tokens[0]
        holds = _one(tokens, environment, marker) and holds
    return holds


def _one(tokens: list[str], environment: Mapping[str, str], marker: str) -> bool:
    if tokens[:1] == ["("]:
        del tokens[0]
        holds = _any_of(tokens, environment, marker)
        if tokens[:1] != [")"]:
            raise _unreadable(marker)
        del tokens[0]
        return holds
    if len(tokens) < 3 or tokens[1] not in _COMPARE:
        raise _unreadable(marker)
    left, compare, right = tokens[0], _COMPARE[tokens[1]], tokens[2]
    values: list[Any] = list(_values((left, right), environment, marker))
    if any(side.startswith("python_") for side in (left, right)) and "in" not in tokens[1]:
        values = [[int(part) for part in re.findall(r"\d+", value)] for value in values]
    del tokens[:3]
    return compare(*values)


def _values(sides: tuple[str, str], environment: Mapping[str, str], marker: str) -> Iterator[str]:
    for side in sides:
        if side[0] in "'\"":
            yield side[1:-1]
        elif side in environment:
            yield environment[side]
        else:
            raise _unreadable(marker)


def _unreadable(marker: str) -> ValueError:
    return ValueError(f"cannot read the environment marker {marker!r} of the package metadata.")
