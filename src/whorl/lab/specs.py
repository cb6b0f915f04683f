"""Encodings with options as text: "rope(base=100)", "learned+rope(scaling=linear(factor=2))".

    spec     part + part + ...                     learned+rope
    part     name, or name(option=value,...)       rope(base=1e6,layout=interleaved)
    value    a number        100, 0.5, 1e6, 128k (k = 1024); 1e5 is whole if the option is a length
             a word          trained, true, false, null, or anything between double quotes
             a list          [2,2,2]
             a table         yarn(factor=4,original_context=128)

``parse_spec`` reads such a text, and ``format_spec`` writes the one that is read as the same value.
Both name a row of a comparison; ``name_folder`` turns that name into one for a folder.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from whorl._support.lengths import parse_length
from whorl._support.words import quote

__all__ = [
    "format_spec",
    "is_length",
    "name_folder",
    "parse_spec",
    "remove_spaces",
    "split_specs",
]

_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?[km]?|inf|nan)(?![\w.])",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SPACES = re.compile(r"\s*")
_CONSTANTS = {"true": True, "false": False, "null": None}
_EXAMPLE = "rope(base=500,layout=interleaved)"
#: Lists and tables inside each other; no encoding has more than three.
_DEEPEST = 8
#: Longest start of a folder's name; file systems allow 255 bytes, and a run's name goes on.
_FOLDER_LETTERS = 60


def parse_spec(text: str, where: str = "model.encoding") -> list[dict[str, Any]]:
    """The parts of a spec, each a dictionary with its name and options.

    where: what the text is, for errors.

    >>> parse_spec("learned+rope(base=100,scaling=linear(factor=2))")[1]
    {'name': 'rope', 'base': 100, 'scaling': {'name': 'linear', 'factor': 2}}
    """
    return _SpecReader(text, where).read_parts()


def split_specs(text: str) -> list[str]:
    """The specs between commas; commas inside brackets and strings belong to a spec.

    >>> split_specs("alibi, rope(base=100,layout=half)")
    ['alibi', 'rope(base=100,layout=half)']
    """
    found, depth = [""], 0
    for piece in re.findall(rf"{_STRING.pattern}|.", text, re.DOTALL):
        depth += (piece in "([") - (piece in ")]")
        if piece == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += piece
    return [one.strip() for one in found if one.strip()]


def remove_spaces(text: str) -> str:
    """A spec without the spaces that mean nothing; those inside strings stay."""
    pieces = re.findall(rf"{_STRING.pattern}|.", text, re.DOTALL)
    return "".join(piece for piece in pieces if not piece.isspace())


def format_spec(parts: Sequence[Mapping[str, Any]]) -> str:
    """The text of a spec, which ``parse_spec`` reads as the same parts.

    >>> format_spec([{"name": "rope", "base": 500.0, "scaling": {"name": "ntk", "factor": 2}}])
    'rope(base=500.0,scaling=ntk(factor=2))'
    """
    return "+".join(_format_table(part).removesuffix("()") for part in parts)


def name_folder(title: str) -> str:
    """A name for the folder of what ``title`` names, allowed in every file system.

    Names without options stay as they are. Other titles lose the characters that a file system or
    a shell may refuse, and get a part of their checksum, so that no two are the same.

    >>> name_folder("learned+rope"), name_folder("rope(base=1e6)")
    ('learned+rope', 'rope-base-1e6-d1b5ebd4')
    """
    if re.fullmatch(r"[a-z0-9_]+(\+[a-z0-9_]+)*", title) and len(title) <= _FOLDER_LETTERS:
        return title
    plain = re.sub(r"[^a-z0-9_+.]+", "-", title.lower())[:_FOLDER_LETTERS].strip("-.")
    return f"{plain}-{hashlib.sha256(title.encode()).hexdigest()[:8]}"


def is_length(option: str) -> bool:
    """Whether an option of this name is a number of tokens."""
    return option.endswith(("length", "context", "distance"))


class _SpecReader:
    """A text, and the index up to which it has been read."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where, self.index = text, where, 0

    def read_parts(self) -> list[dict[str, Any]]:
        parts = [self._read_part()]
        while self._accept("+"):
            parts.append(self._read_part())
        if self.index < len(self.text):
            options = "" if self.text[: self.index].rstrip().endswith(")") else "'(', "
            self._fail(f"{options}'+' or the end")
        return parts

    def _read_part(self) -> dict[str, Any]:
        name = self._read_key("the name of an encoding")
        return {"name": name, **(self._read_options(1) if self._accept("(") else {})}

    def _read_options(self, depth: int) -> dict[str, Any]:
        """Options up to the closing bracket; the opening one has been read."""
        found: dict[str, Any] = {}
        if self._accept(")"):
            return found
        while True:
            self._skip_spaces()
            start, key = self.index, self._read_key("an option")
            if key in found or key == "name":
                self.index = start
                self._fail("another option" if key in found else "an option, not a name,")
            if not self._accept("="):
                self._fail(f"'=' and the value of {quote(key)}")
            found[key] = self._read_value(key, depth)
            if self._accept(")"):
                return found
            if not self._accept(","):
                self._fail("',' or ')'")

    def _read_value(self, key: str, depth: int) -> Any:
        if depth > _DEEPEST:
            self._fail(f"a value that is nested at most {_DEEPEST} deep")
        if self._accept("["):
            return self._read_list(key, depth)
        if self._accept("("):
            return self._read_options(depth + 1)
        if (number := self._match(_NUMBER)) is not None:
            return self._convert_number(number, key)
        word = self._read_key(f"the value of {quote(key)}")
        quoted = self.text[self.index - 1] == '"'
        if self._accept("("):
            return {"name": word, **self._read_options(depth + 1)}
        return word if quoted else _CONSTANTS.get(word, word)

    def _read_list(self, key: str, depth: int) -> list[Any]:
        found: list[Any] = []
        if self._accept("]"):
            return found
        while True:
            found.append(self._read_value(key, depth + 1))
            if self._accept("]"):
                return found
            if not self._accept(","):
                self._fail("',' or ']'")

    def _read_key(self, what: str) -> str:
        """A word, or a text between double quotes."""
        if (word := self._match(_WORD)) is not None:
            return word
        start = self.index
        if (string := self._match(_STRING)) is not None:
            try:
                return str(json.loads(string))
            except ValueError:  # such as an unknown escape
                self.index = start
        self._fail(what)

    def _convert_number(self, text: str, key: str) -> int | float:
        """A number as an int if it is written as one, or as a length where a length belongs."""
        if is_length(key) or text[-1] in "kmKM":
            with suppress(ValueError):  # no length, such as 0.5: perhaps a number
                return parse_length(text)
        for convert in (int, float):
            with suppress(ValueError):
                return convert(text)
        self.index -= len(text)
        self._fail("a number such as 1e6, or a whole length such as 128k,")

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip_spaces()
        found = pattern.match(self.text, self.index)
        if found is None:
            return None
        self.index = found.end()
        return found.group()

    def _accept(self, sign: str) -> bool:
        self._skip_spaces()
        if not self.text.startswith(sign, self.index):
            return False
        self.index += 1
        self._skip_spaces()
        return True

    def _skip_spaces(self) -> None:
        found = _SPACES.match(self.text, self.index)
        assert found is not None
        self.index = found.end()

    def _fail(self, wanted: str) -> NoReturn:
        rest = self.text[self.index :]
        came = quote(rest[:24]) if rest else "the end"
        raise ValueError(
            f"{self.where}: {wanted} must come at character {self.index + 1} of"
            f" {quote(self.text)}; got {came}. Write options as in {_EXAMPLE}."
        )


def _format_table(table: Mapping[str, Any]) -> str:
    """ "linear(factor=2)", "linear()", or "(factor=2)" if the table has no name."""
    name = _format_word(str(table["name"])) if "name" in table else ""
    options = [
        f"{_format_word(str(key))}={_format_value(value)}"
        for key, value in table.items()
        if key != "name"
    ]
    return f"{name}({','.join(options)})"


def _format_value(value: Any) -> str:
    if hasattr(value, "to_dict"):  # a scaling
        value = value.to_dict()
    if isinstance(value, Mapping):
        return _format_table(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_format_value, value))}]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value) if isinstance(value, (int, float)) else _format_word(str(value))


def _format_word(word: str) -> str:
    """A word as it is, if it would be read as that word; else between double quotes."""
    plain = _WORD.fullmatch(word) and word not in _CONSTANTS and not _NUMBER.fullmatch(word)
    return word if plain else json.dumps(word)
