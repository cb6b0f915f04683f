"""Specs of encodings in which options are searched: "rope(base=1e3..1e6,layout=half|interleaved)".

low..high    a number; on a logarithmic scale if high is ten times low or more, and whole if
             both are written as whole numbers
a|b|c        one of these words or numbers
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whorl._support.words import quote
from whorl.lab.specs import parse_spec, remove_spaces

__all__ = ["SearchedSpec"]

_OPTION = re.compile(r"(?P<name>\w+)=(?P<value>[^=,()\[\]\"]*?(?:\.\.|\|)[^=,()\[\]\"]*)")


@dataclass(frozen=True)
class _SearchedOption:
    """One option, where its value stands in the text, and what it may be."""

    name: str
    start: int
    end: int
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    @property
    def is_logarithmic(self) -> bool:
        return self.low > 0 and 10 * self.low <= self.high

    @property
    def example(self) -> Any:
        return self.choices[0] if self.choices else (int(self.low) if self.whole else self.low)

    def build_distribution(self, optuna: Any) -> Any:
        known = optuna.distributions
        if self.choices:
            return known.CategoricalDistribution(self.choices)
        if self.whole:
            return known.IntDistribution(int(self.low), int(self.high), log=self.is_logarithmic)
        return known.FloatDistribution(self.low, self.high, log=self.is_logarithmic)

    def format_value(self, value: Any) -> str:
        return str(value) if self.choices or self.whole else repr(float(f"{value:.3g}"))


class SearchedSpec:
    """The text of a spec, and the options in it that are searched.

    >>> spec = SearchedSpec("rope(base=1e3..1e6)")
    >>> spec.fill({"rope.base": 21543.2})
    'rope(base=21500.0)'
    >>> SearchedSpec("alibi").fill({})
    'alibi'
    """

    def __init__(self, text: str) -> None:
        self.text = remove_spaces(text)
        self._options = [_read_option(self.text, found) for found in _OPTION.finditer(self.text)]
        names = [option.name for option in self._options]
        self._keys = [  # a name may be an option of two parts
            f"{_find_part(self.text, option.start)}.{option.name}"
            if names.count(option.name) == 1
            else f"{_find_part(self.text, option.start)}.{option.name}@{option.start}"
            for option in self._options
        ]
        parse_spec(self.fill(self.example), "encodings")

    @property
    def is_searched(self) -> bool:
        """Whether any option has more than one value."""
        return bool(self._options)

    @property
    def example(self) -> dict[str, Any]:
        """The first value of each option."""
        return {key: x.example for key, x in zip(self._keys, self._options, strict=True)}

    def build_distributions(self, optuna: Any) -> dict[str, Any]:
        """Optuna's distribution of each option."""
        pairs = zip(self._keys, self._options, strict=True)
        return {key: option.build_distribution(optuna) for key, option in pairs}

    def fill(self, chosen: Mapping[str, Any]) -> str:
        """The spec with a value for each option that is searched."""
        text, done = "", 0
        for key, option in zip(self._keys, self._options, strict=True):
            text += self.text[done : option.start] + option.format_value(chosen[key])
            done = option.end
        return text + self.text[done:]


def _read_option(text: str, found: re.Match[str]) -> _SearchedOption:
    name, value = found["name"], found["value"]
    where = (name, *found.span("value"))
    if ".." not in value:
        choices = tuple(value.split("|"))
        if len({*choices}) < len(choices) or not all(choices):
            raise ValueError(
                f"encodings: {name} of {quote(text)} must have different words between bars, such"
                f" as half|interleaved; got {quote(value)}."
            )
        return _SearchedOption(*where, choices=choices)
    low, _, high = value.partition("..")
    try:
        ends = (float(low), float(high))
        if not float("-inf") < ends[0] < ends[1] < float("inf"):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"encodings: {name} of {quote(text)} must be a range of numbers, the lower one first,"
            f" such as 1e3..1e6; got {quote(value)}."
        ) from None
    whole = all(re.fullmatch(r"-?\d+", end) for end in (low, high))
    return _SearchedOption(*where, low=ends[0], high=ends[1], whole=whole)


def _find_part(text: str, index: int) -> str:
    """The word before the bracket around ``index``."""
    words = re.findall(r"(\w+)\(", text[:index])
    return str(words[-1]) if words else ""
