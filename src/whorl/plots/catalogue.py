"""All charts of the analysis by name, as ``@chart`` declares them.

``numbers`` gives the data of a chart, ``chart`` the Altair chart of it, ``save`` a file. Options of
a chart are the arguments of its function in ``_numbers``.
"""

from typing import Any, get_args

from whorl._support.lengths import parse_length
from whorl._support.words import quote, suggest_name
from whorl.analysis.record import Record
from whorl.analysis.sizes import refuse_unused

from . import decay, encodings, frequencies, maps, noise, precision, scalings, streams, training
from ._entry import ChartEntry, ChartGroup

__all__ = ["CHARTS", "ChartEntry", "chart", "entry", "format_default", "numbers"]

#: Options that are numbers of tokens, which may be written as 128k or 1e5.
_LENGTHS = ("context", "length", "positions")


def entry(name: str) -> ChartEntry:
    """A chart by its name."""
    key = str(name).replace("_", "-")
    if key not in CHARTS:
        raise ValueError(
            f"unknown chart {quote(name)}{suggest_name(key, CHARTS)} Known: {', '.join(CHARTS)}."
        )
    return CHARTS[key]


def numbers(name: str, **options: Any) -> Record:
    """The data of a chart; options may be text, as on a command line.

    >>> numbers("frequencies", dim="8").inv_freq
    (1.0, 0.1, 0.01, 0.001)
    """
    found = entry(name)
    known = found.options
    for option in options:
        if option not in known:
            has = ", ".join(known) or "none"
            raise ValueError(
                f"chart {found.name!r} has no option {quote(option)}{suggest_name(option, known)}"
                f" It has: {has}."
            )
    given = {key: _convert_option(key, value, known[key]) for key, value in options.items()}
    chosen = given.get("encodings") or given.get("encoding") or known.get("encoding")
    if chosen:
        sizes = [word for word in ("dim", "heads") if word in given]
        listed = [chosen] if isinstance(chosen, str) else list(chosen)
        refuse_unused(listed, sizes, f"chart {found.name!r}")
    return found.numbers(**given)


def chart(name: str, **options: Any) -> Any:
    """The Altair chart of this name, drawn from its numbers."""
    return entry(name).draw(numbers(name, **options).to_dict())


def _convert_option(option: str, value: Any, default: Any) -> Any:
    """A value of the type of the default, from text; lists are split at commas."""
    if not isinstance(value, str) or isinstance(default, str):
        return value
    try:
        if isinstance(default, bool):
            return {"yes": True, "true": True, "no": False, "false": False}[value.lower()]
        kind = _read_length if option in _LENGTHS else type(default)
        if isinstance(default, tuple):
            if kind is tuple:
                kind = type(default[0]) if default else str
            return tuple(kind(word) for word in value.split(",") if word)
        return kind(value)
    except (ValueError, KeyError):
        words = {bool: "yes or no", int: "a whole number", float: "a number"}
        kinds = words.get(type(default), "values with commas between them")
        wanted = f"{kinds}, such as {format_default(default)}"
        if option in _LENGTHS and type(default) is int:
            wanted = "a length such as 4096, 128k or 1e5"
        raise ValueError(f"option {quote(option)} must be {wanted}; got {quote(value)}.") from None


def _read_length(text: str) -> int:
    """A length such as 128k, or a number that may be 0."""
    try:
        return int(text)
    except ValueError:
        return parse_length(text)


def format_default(default: Any) -> str:
    """A default of an option as it is typed."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


_MODULES = (frequencies, maps, decay, precision, noise, scalings, encodings, streams, training)

CHARTS: dict[str, ChartEntry] = {
    each.name: each
    for group in get_args(ChartGroup)
    for module in _MODULES
    for each in vars(module).values()
    if isinstance(each, ChartEntry) and each.group == group
}
