"""What ``whorl`` alone prints: the three commands that most people need, then one for each task."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from ._output import print_page

__all__ = ["COMMANDS", "print_start"]

_Lines = tuple[tuple[str, str], ...]

_FIRST: _Lines = (
    ("whorl inspect qwen3-8b", "what a model does with positions"),
    ("whorl doctor path/to/model", "what is wrong in its config"),
    ("whorl extend qwen3-8b --to 128k", "how to make its context longer"),
)
_TASKS: _Lines = (
    ("Choose an encoding", "whorl compare --budget quick"),
    ("Understand one", "whorl explain rope"),
    ("Look at a model in the browser", "whorl explore qwen3-8b"),
    ("Train for the longer context", "whorl finetune path/to/model --text book.txt"),
    ("Debug a port", "whorl check rope.py:rotate --head-dim 128"),
    ("Convert a checkpoint's layout", "whorl convert path/to/model out --to half"),
    ("Draw a chart", "whorl plot --list"),
    ("See how fast it is here", "whorl bench --quick"),
)
#: Every command that the page shows.
COMMANDS = tuple(command for command, _ in _FIRST) + tuple(command for _, command in _TASKS)


def print_start() -> None:
    """Print the page; nothing is loaded for it but what the list of commands needs."""
    print_page(
        Text("whorl: position encodings for PyTorch Transformers\n"),
        Text("Start here", "bold"),
        _render(_FIRST),
        Text("\nBy task", "bold"),
        _render(_TASKS),
        Text(
            "\nA model is a path, a preset (whorl inspect --list), or a name in the local Hugging"
            " Face cache, such as Qwen/Qwen3-8B.\nwhorl --help lists all commands, and each of them"
            " has --help.",
            "dim",
        ),
    )


def _render(lines: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for left, right in lines:
        table.add_row(f"  {left}", right)
    return table
