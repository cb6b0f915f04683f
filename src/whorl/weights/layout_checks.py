"""Does a conversion fit what the weights show? Asked of the source, and by ``check`` of the output.

Moving the rows of all layers is right only if all have the other layout. So nothing is written if
layers, or q and k, have different ones, and nothing stays if the output shows another layout.
"""

from collections.abc import Sequence
from pathlib import Path

from whorl.types import Layout

from .config_file import read_stated_layout
from .detect import Detection, detect_layers, list_layers
from .evidence import CROSSINGS
from .layers import group_layers
from .layout_mark import MARK, read_mark
from .leaving import ConvertCommand, find_leaving
from .plan import RowMove, plan_moves
from .shards import WeightFiles, open_weight_files
from .sizes import Stated, find_sizes
from .tensor_names import Pattern

__all__ = ["check_source", "describe_conflict", "detect_output"]


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
