"""Which tensors a conversion must leave as they are, and the command that does so.

Layers, or q and k, that have the wanted layout already stay where they are, and the others move.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whorl.types import Layout

from .detect import Detection
from .evidence import CROSSINGS
from .plan import RowMove
from .sizes import Stated
from .tensor_names import Pattern

__all__ = ["ConvertCommand", "Leaving", "find_leaving"]

#: Of all regular expressions together: a command that one can read.
_MOST_CHARACTERS = 2000
_FLAGS = {
    "head_dim": "--head-dim",
    "num_heads": "--heads",
    "num_kv_heads": "--kv-heads",
    "rotary_dim": "--rotary-dim",
    "rotary_start": "--rotary-start",
}


@dataclass(frozen=True)
class Leaving:
    """Tensors that have the wanted layout, as regular expressions for their names.

    apart: whether q moves without k somewhere, or k without q, which only force allows.
    """

    regexes: tuple[str, ...]
    apart: bool


@dataclass(frozen=True)
class ConvertCommand:
    """What ``convert`` was called with, to be said again with more."""

    source: Path
    out: Path
    to: Layout
    patterns: tuple[Pattern, ...]
    stated: Stated

    def leave(self, left: Leaving) -> str:
        """The command line that moves the other tensors only."""
        roles = [f"leave={regex}" for regex in left.regexes]
        roles += [f"{one.role}={one.regex.pattern}" for one in self.patterns]
        sizes = [(_FLAGS[name], value) for name, value in vars(self.stated).items()]
        words = ["whorl", "convert", str(self.source), str(self.out), "--to", self.to]
        words += [word for role in roles for word in ("--pattern", role)]
        words += [word for flag, n in sizes if n is not None for word in (flag, str(n))]
        return shlex.join([*words, *(["--force"] if left.apart else []), "--check"])


def find_leaving(moves: Sequence[RowMove], found: Detection, to: Layout) -> Leaving | None:
    """The tensors that have the layout ``to``; None where the weights do not say which have.

    Tensors that hold q and k side by side cannot be left in part: None if they would have to be.
    """
    right = {one.name for one in found.layers if one.layout == to}
    crossed = {one.name: one.crossed for one in found.layers if one.crossed is not None}
    if found.crossed is not None:  # all layers together show it
        crossed = {move.named.attention: found.crossed for move in moves}
    whole: list[str] = []
    part: list[str] = []
    for move in moves:
        name = move.named.attention
        if name in right:
            whole.append(name)
        elif name in crossed:
            stays = "qk"[CROSSINGS[crossed[name]].index(to)]
            parts = {head.part for head in move.heads} - {"v"}
            if len(parts) > 1:
                return None
            part += [move.entry.name] if parts == {stays} else []
    if not whole and not part:
        return None
    every = [move.named.attention for move in moves], [move.entry.name for move in moves]
    regexes = (*_regexes(whole, every[0], "[.]"), *_regexes(part, every[1], "$"))
    sayable = sum(map(len, regexes)) <= _MOST_CHARACTERS and all(map(str.isprintable, regexes))
    return Leaving(regexes, bool(part)) if sayable else None


def _regexes(names: Sequence[str], every: Sequence[str], end: str) -> list[str]:
    """Regular expressions that find ``names`` and none else of ``every``: one for each pattern.

    Names that differ in their first number only share one: "layers[.](1|3)[.]self_attn[.]".
    """
    wanted, known = _by_number(names), _by_number(every)
    found = []
    for around, numbers in wanted.items():
        inside = f"({'|'.join(numbers)})" if len(numbers) < len(known[around]) else "[0-9]+"
        before, after = (re.escape(text).replace(r"\.", "[.]") for text in around)
        found.append(f"^{before}{inside if numbers != [''] else ''}{after}{end}")
    return found


def _by_number(names: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """What stands before and after the first number of each name, and the numbers between."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(names):
        match = re.search(r"(?<![^.])[0-9]+(?![^.])", name)
        around = (name[: match.start()], name[match.end() :]) if match else (name, "")
        found.setdefault(around, []).append(match[0] if match else "")
    return found
