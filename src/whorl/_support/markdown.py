"""Tables in Markdown."""

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Heads and rows as a table; columns after the first stand right if they hold numbers.

    >>> print(table(["", "64"], [["a|b", "2.1"]]))
    |  | 64 |
    | --- | ---: |
    | a\\|b | 2.1 |
    """
    aligned = "---:" if numbers else "---"
    lines = [_line(heads), _line(["---"] + [aligned] * (len(heads) - 1))]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
