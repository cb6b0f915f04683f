"""The layout as a word in the header of a safetensors file, so that no file is converted twice.

    "__metadata__": {"format": "pt", "rope_layout": "interleaved"}

Weights often do not show their layout, a LoRA adapter never, and an adapter has no config.json that
could say it. Readers pass over words of the metadata that they do not know. A program that saves
the tensors again may drop it.
"""

import json
import struct
from collections.abc import Iterable

from whorl._support.words import quote
from whorl.types import Layout

from .safetensors_file import FileHeader

__all__ = ["MARK", "add_mark", "read_mark"]

MARK = "rope_layout"
_ALIGNED = 8


def read_mark(headers: Iterable[FileHeader]) -> Layout | None:
    """The layout that files were marked with, None for files without a mark."""
    found: dict[str, str] = {}
    for header in headers:
        word = header.metadata.get(MARK)
        if word is not None:
            found.setdefault(word, header.path.name)
    if not found:
        return None
    if len(found) > 1:
        both = ", ".join(f"{name} says {quote(word)}" for word, name in [*found.items()][:4])
        raise ValueError(
            f"convert: the files were converted to different layouts: {both} ({MARK} in"
            " __metadata__); the shards of one model must have one."
        )
    for layout in ("half", "interleaved"):
        if layout in found:
            return layout
    word, name = next(iter(found.items()))
    raise ValueError(
        f"convert: {name} has {MARK} {quote(word)} in __metadata__; it must be 'half' or"
        " 'interleaved'."
    )


def add_mark(header: FileHeader, layout: Layout) -> bytes:
    """The header of the same tensors with the mark, and its length before it."""
    # transformers 4 refuses a file that has metadata without a format.
    about = {"format": "pt", **header.metadata, MARK: layout}
    names = {
        entry.name: {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [entry.begin - header.data_begin, entry.end - header.data_begin],
        }
        for entry in header.entries.values()
    }
    text = json.dumps({"__metadata__": about, **names}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return struct.pack("<Q", len(text)) + text
