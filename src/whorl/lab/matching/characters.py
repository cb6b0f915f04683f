"""Characters as tokens: a vocabulary of those in the training texts.

A character of Chinese is a word or a part of one, and three bytes: with bytes a text is three times
as long, and the first layer has to put the three together again. In other languages a character is
about a byte, so that nothing is lost. Characters that are not in the training texts, or only once,
are one unknown token.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["CharacterVocabulary"]

#: Tokens that are no characters.
PADDING, UNKNOWN, FIRST, SEPARATOR = range(4)
_MOST = 20_000


class CharacterVocabulary:
    """Numbers of characters; those that are not known are ``UNKNOWN``.

    >>> vocabulary = CharacterVocabulary("ab")
    >>> vocabulary.size, vocabulary.encode("abc")
    (6, [4, 5, 1])
    """

    def __init__(self, characters: Sequence[str]) -> None:
        self.numbers = {one: SEPARATOR + 1 + n for n, one in enumerate(characters)}

    @classmethod
    def from_texts(cls, texts: Iterable[str], *, least: int = 2) -> "CharacterVocabulary":
        """The characters that are ``least`` times or more in ``texts``, the most frequent first."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        known = sorted((-count, one) for one, count in counts.items() if count >= least)
        return cls([one for _, one in known[:_MOST]])

    @property
    def size(self) -> int:
        return SEPARATOR + 1 + len(self.numbers)

    def encode(self, text: str, length: int | None = None) -> list[int]:
        """Tokens of the first ``length`` characters; of all without it."""
        return [self.numbers.get(one, UNKNOWN) for one in text[:length]]
