"""Tables in Markdown."""

from collections.abc import Iterable, Sequence

__all__ = ["render_table"]


def render_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True
) -> str:
    """Heads and rows as a table; columns after the first stand right if they hold numbers.

    >>> print(render_table(["", "64"], [["a|b", "2.1"]]))
    |  | 64 |
    | --- | ---: |
    | a\\|b | 2.1 |
    """
    aligned = "---:" if numbers else "---"
    lines = [_format_row(heads), _format_row(["---"] + [aligned] * (len(heads) - 1))]
    return "\n".join(lines + [_format_row(row) for row in rows])


def _format_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
