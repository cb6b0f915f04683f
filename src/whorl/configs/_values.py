"""Read values of a config with checks, and check the rotations made from them.

A wrong value raises a ConfigError that names its key. None means that a key is missing, because
most configs use null for that.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from whorl._support.numerals import is_json_number, parse_number
from whorl._support.words import quote

from .limits import MOST_CHANNELS, MOST_LAYERS, MOST_TOKENS
from .model import ConfigError, Rotation

__all__ = ["MOST_CHANNELS", "MOST_LAYERS", "MOST_TOKENS", "Keys", "check_rotation"]

T = TypeVar("T")


class Keys:
    """The keys of a config, or of an object inside it.

    where: the path of that object in the config, such as "text_config.rope_scaling".
    """

    def __init__(self, data: Mapping[str, Any], where: str = "") -> None:
        self.data = data
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self.data.get(name) is not None

    def path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def wrong_value(self, name: str, wanted: str) -> ConfigError:
        value = self.data.get(name)
        got = {True: "true", False: "false"}[value] if isinstance(value, bool) else quote(value)
        if isinstance(value, str):
            found = parse_number(value)
            more = "it" if is_json_number(value) else f"{found.value}," if found else ""
            sure = found is not None and found.certain
            got = f"the string {got}{f'; write {more} without quotes' if sure else ''}"
        return ConfigError(f"{self.path(name)} must be {wanted}; got {got}.")

    def missing_key(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"{self.path(name)} is missing; {why}.")

    def require(self, name: str, value: T | None, why: str) -> T:
        """``value``, which was read under ``name``; the error that says why, if it is missing."""
        if value is None:
            raise self.missing_key(name, why)
        return value

    def read_number(self, name: str, *, above: float = -math.inf) -> float | None:
        """The value of a key that must be a finite number; None if it is missing."""
        value = self.data.get(name)
        if value is None:
            return None
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not plain or not abs(value) <= sys.float_info.max or not value > above:
            more = "" if above == -math.inf else f" above {above:g}"
            raise self.wrong_value(name, f"a finite number{more}")
        return float(value)

    def read_int(self, name: str, *, least: int = 1, most: int = MOST_TOKENS) -> int | None:
        """The value of a key that must be a whole number, such as 4096 or 4096.0."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong_value(name, f"a whole number from {least} to {most}")
        return value

    def read_text(self, name: str) -> str | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong_value(name, "a string")
        return value

    def read_flag(self, name: str, default: bool = False) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong_value(name, "true or false")
        return value

    def read_object(self, name: str) -> "Keys | None":
        """The keys of the object under ``name``; None if it is missing or empty."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong_value(name, "an object")
        return Keys(value, self.path(name)) if value else None

    def read_list(
        self, name: str, kind: type | tuple[type, ...], what: str
    ) -> tuple[Any, ...] | None:
        """A list of values of one type; None if the key is missing."""
        value = self.data.get(name)
        if value is None:
            return None
        good = isinstance(value, (list, tuple)) and len(value) <= MOST_CHANNELS
        if not good or not all(isinstance(v, kind) for v in value):
            raise self.wrong_value(name, f"a list of {what}")
        return tuple(value)

    def read_numbers(self, name: str) -> tuple[float, ...] | None:
        """A list of finite numbers; None if the key is missing."""
        found = self.read_list(name, (int, float), "finite numbers")
        if found is None:
            return None
        if any(isinstance(v, bool) or not abs(v) <= sys.float_info.max for v in found):
            raise self.wrong_value(name, "a list of finite numbers")
        return tuple(float(v) for v in found)


def check_rotation(rotation: Rotation) -> Rotation:
    """The same rotation, after a check that its encoding can be built with finite frequencies."""
    try:
        encoding = rotation.build_without_tables()
        short, long = encoding.frequencies(), encoding.frequencies(2**40)
        finite = all(
            bool(found.inv_freq.isfinite().all()) and math.isfinite(found.attention_scale)
            for found in (short, long)
        )
    except ConfigError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(f"{error}") from None
    if not finite:
        raise ConfigError(
            f"the frequencies of this rotation are not finite: {quote(rotation.to_dict())}."
        )
    return rotation
