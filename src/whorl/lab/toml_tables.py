"""Tables of TOML files as frozen dataclasses, with errors that name the table and the option."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from whorl._support.extras import import_extra
from whorl._support.words import quote, suggest_name

__all__ = ["convert_to_plain", "read_table", "read_toml"]


def convert_to_plain(value: Any) -> Any:
    """Tuples as lists, and the tables in them without options that are None."""
    if not isinstance(value, tuple):
        return value
    return [
        {k: v for k, v in one.items() if v is not None} if isinstance(one, dict) else one
        for one in value
    ]


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; an error names the file and the line."""
    module = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    reader = import_extra(module, by="whorl.lab", extra="lab")
    path = Path(path)
    try:
        tables: dict[str, Any] = reader.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; check its name."
        ) from None
    except (UnicodeDecodeError, reader.TOMLDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not TOML: {error}.") from None
    return tables


def read_table(table: str, cls: type, values: Any) -> Any:
    """The dataclass ``cls`` from the options in ``values``; an unknown option is an error."""
    if not isinstance(values, Mapping):
        raise TypeError(f"[{table}] must be a table of options; got {quote(values)}.")
    hints = get_type_hints(cls)
    known = [part.name for part in dataclasses.fields(cls)]
    options: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ValueError(
                f"[{table}] has no option {quote(name)}{suggest_name(name, known)}"
                f" It has: {', '.join(known)}."
            )
        options[name] = _convert_value(f"{table}.{name}", hints[name], value)
    required = [p.name for p in dataclasses.fields(cls) if p.default is p.default_factory]
    if missing := [name for name in required if name not in options]:
        raise ValueError(f"[[{table}]] needs {', '.join(missing)} in every table.")
    return cls(**options)


def _convert_value(name: str, hint: Any, value: Any) -> Any:
    """``value`` in the type of its option: lists as tuples, whole numbers as floats."""
    if get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{name} must be a list; got {quote(value)}.")
        kind = get_args(hint)[0]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return tuple(read_table(name, kind, one) for one in value)
        floats = kind is float
        return tuple(float(v) if floats and type(v) is int else v for v in value)
    choices = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    tables = any(get_origin(choice) is dict for choice in choices)  # an encoding may be a table
    if str in choices and not tables and not isinstance(value, str):
        raise TypeError(f"{name} must be a string; got {quote(value)}.")
    return float(value) if hint is float and type(value) is int else value
