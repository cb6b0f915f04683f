"""The length to extend to: a number of tokens, or a multiple of the trained length."""

import re

from whorl._support.lengths import parse_length
from whorl._support.words import quote
from whorl.configs import ConfigError

__all__ = ["resolve_target"]

_TIMES = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s?[xX\u00d7]")
_LONGEST = 2**40


def resolve_target(to: int | str, trained: int) -> int:
    """The number of tokens that ``to`` names, for a model of this trained length.

    >>> resolve_target("128k", 4096), resolve_target("4x", 4096), resolve_target(8192, 4096)
    (131072, 16384, 8192)
    """
    times = _TIMES.fullmatch(to.strip()) if isinstance(to, str) else None
    try:
        if times is not None:
            tokens = round(trained * float(times[1]))
        elif isinstance(to, (str, int)) and not isinstance(to, bool):
            tokens = parse_length(to)
        else:
            tokens = 0
    except ValueError:
        tokens = 0
    if not 0 < tokens <= _LONGEST:
        raise ConfigError(
            "to must be a number of tokens up to 2**40, such as 131072 or 128k (k = 1024), or a"
            f" multiple of the trained length, such as 4x; got {quote(to)}."
        )
    return tokens
