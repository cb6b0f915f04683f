"""A terminal that text out of files cannot command: control characters become escapes."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from whorl._support.words import escape_controls

__all__ = ["Console"]


class Console(rich.console.Console):
    """Rich's console; what rich itself sends to the terminal, such as colours, stays as it is."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a renderable, their text without control characters but newlines."""
        for segment in super().render(renderable, options):
            safe = segment if segment.control else segment._replace(text=_escape(segment.text))
            yield safe


def _escape(text: str) -> str:
    return "\n".join(map(escape_controls, text.split("\n")))
