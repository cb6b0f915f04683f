"""Does a conversion fit what the weights show? Asked of the source, and by ``check`` of the output.

Moving the rows of all layers is right only if all have the other layout. So nothing is written if
layers, or q and k, have different ones, and nothing stays if the output shows another layout.
The error says which tensors have the wanted layout already, and the command that leaves these.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whorl.types import Layout

from .config_file import read_stated_layout
from .detect import Detection, detect_layers, list_layers
from .evidence import CROSSINGS
from .layers import group_layers
from .layout_mark import MARK, read_mark
from .plan import RowMove, plan_moves
from .shards import WeightFiles, open_weight_files
from .sizes import Stated, find_sizes
from .tensor_names import Pattern

__all__ = ["ConvertCommand", "check_source", "describe_conflict", "detect_output"]

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


def check_source(
    checkpoint: WeightFiles, moves: Sequence[RowMove], found: Detection, command: ConvertCommand
) -> None:
    """Refuse what is mixed, and what has the layout already, by mark, weights or else config."""
    to = command.to
    mark = read_mark(checkpoint.files)
    if mark == to:
        raise ValueError(
            f"convert: the file says that it was converted to the {to} layout before ({MARK} in its"
            " __metadata__), and moving rows again would break the model; force=True (--force)"
            " converts it all the same."
        )
    _check_one_layout(moves, found, to, command)
    if to in found.evident:
        have = f"{'the weights' if found.layout == to else list_layers(found.evident[to])} already"
        have += " has" if have.startswith("layer ") else " have"
        sure = max(one.confidence for one in (found, *found.evident[to]) if one.layout == to)
        raise ValueError(
            f"convert: {have} the {to} layout (confidence {sure:.1%}), and moving their rows would"
            " break the model; force=True (--force) converts them all the same."
        )
    if found.evident or mark is not None or checkpoint.config is None:
        return
    if read_stated_layout(checkpoint.config) == to:
        raise ValueError(
            f"convert: config.json stands for the {to} layout already, and the weights do not show"
            " another; force=True (--force) converts them all the same."
        )


def _check_one_layout(
    moves: Sequence[RowMove], found: Detection, to: Layout, command: ConvertCommand
) -> None:
    crossing = next((name for name in CROSSINGS if name in found.evident), None)
    if crossing is not None and not found.mixed:
        stays = "qk"[CROSSINGS[crossing].index(to)]
        raise ValueError(
            f"convert: q and k have different layouts: {crossing} (confidence"
            f" {found.confidence:.1%}). Moving the rows of both would keep them apart, so leave"
            f" those of {stays}, which has the {to} layout, as they are."
            f"{_describe_command(moves, found, to, command)}"
        )
    if found.mixed:
        raise ValueError(
            f"convert: layers have different layouts: {found.in_words()}. Moving the rows of all"
            f" would break those that have the {to} layout, so leave them as they are."
            f"{_describe_command(moves, found, to, command)}"
            "\nwhorl detect shows the evidence for each layer; force=True (--force) without a"
            " pattern moves the rows of all."
        )


def _describe_command(
    moves: Sequence[RowMove], found: Detection, to: Layout, command: ConvertCommand
) -> str:
    """What to do about several layouts: a command that works, where there is one."""
    left = find_leaving(moves, found, to)
    if left is None:
        return (
            " Which tensors these are cannot be told, or q and k lie side by side in one tensor, so"
            " that no command can be given; take the weights from the original again."
        )
    why = " (--force, because q and k move apart)" if left.apart else ""
    options = f"patterns={[f'leave={regex}' for regex in left.regexes]}"
    options += ", force=True" if left.apart else ""
    return f" This does so{why}; in Python, {options}:\n  {command.leave(left)}"


def detect_output(
    checkpoint: WeightFiles, out: Path, stated: Stated, patterns: Sequence[Pattern]
) -> Detection:
    """What the weights in ``out`` show, also those that patterns left as they were."""
    written = open_weight_files(out / (checkpoint.index or checkpoint.files[0].path).name)
    sizes = find_sizes(written.config, stated)
    try:
        moves = plan_moves(written, sizes, [p for p in patterns if p.role != "leave"])
    except ValueError:  # left because they are quantised, or no heads at all
        moves = plan_moves(written, sizes, patterns)
    return detect_layers(group_layers(moves))


def describe_conflict(before: Detection, after: Detection, to: Layout) -> str | None:
    """How converted weights contradict the layout ``to``, None if they do not.

    Rows that moved wrongly seldom show the other layout: mostly they show none any more. So every
    layer that showed something before must show ``to``.
    """
    if set(after.evident) - {to}:
        return f"the converted weights show {after.in_words()}, where all should be {to}"
    right = {one.name for one in after.layers if one.layout == to}
    named = [one for one in before.layers if one.layout or one.crossed]
    if lost := [one for one in named if one.name not in right]:
        had = " and ".join(dict.fromkeys(one.layout or one.crossed or "" for one in lost))
        return (
            f"{list_layers(lost)} showed {had} before and do{'es' * (len(lost) == 1)} not show {to}"
            " now: moving the rows broke what the weights had"
        )
    return None


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
