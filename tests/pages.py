"""Pages of the documentation as tests read them: links, files that a reader writes, commands.

<!-- file: my_rope.py -->  above a block of code makes it a file for the examples of the page
```console                 is what a terminal shows: commands after "$ ", and their output
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^<!-- file: ([\w.]+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """A command of a ```console block and its output; "..." is any text, or any lines."""

    text: str
    output: str


def list_pages() -> list[Path]:
    """Every page that people read, on GitHub or on the site."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def find_files(text: str) -> dict[str, str]:
    """The files that a page tells its reader to write."""
    return dict(FILE.findall(text))


def find_commands(text: str) -> list[Command]:
    """The commands of all ```console blocks, in their order."""
    found = []
    for _, language, body in FENCE.findall(text):
        if language == "console":
            first, *parts = re.split(r"^\$ ", body, flags=re.MULTILINE)
            assert not first, f"a console block begins with its command; got {first!r}"
            found += [Command(*part.partition("\n")[::2]) for part in parts]
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether output is what a page shows; spaces at line ends do not count."""
    lines = [re.escape(line.rstrip()) for line in shown.rstrip().splitlines()]
    lines = [
        "(?:.*\n?)*?" if line == r"\.\.\." else line.replace(r"\.\.\.", ".*") for line in lines
    ]
    pattern = "\n".join(lines)
    got = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
    return bool(re.fullmatch(pattern.replace("?\n", "?"), got))
