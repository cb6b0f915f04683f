"""Text as the tokens of a run, and tokens as text: bytes, or those of its tokenizer.json."""

from collections.abc import Sequence
from typing import Any

from .config import DataConfig
from .corpus import open_tokenizer

__all__ = ["TextCodec"]


class TextCodec:
    """Converts text to the tokens of a run, and back.

    Bytes that are not UTF-8, as a model may well produce them, become U+FFFD in the text.

    >>> codec = TextCodec(DataConfig())
    >>> codec.encode("né"), codec.decode([110, 195, 169, 255])
    ([110, 195, 169], 'né�')
    """

    def __init__(self, data: DataConfig) -> None:
        self._reader: Any = None if data.tokenizer is None else open_tokenizer(data.tokenizer)
        self.unit = "bytes" if data.tokenizer is None else "tokens"

    def encode(self, text: str) -> list[int]:
        if self._reader is None:
            return list(text.encode("utf-8", "surrogateescape"))
        return list(self._reader.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        if self._reader is None:
            return bytes(tokens).decode("utf-8", "replace")
        return str(self._reader.decode(list(tokens), skip_special_tokens=False))
