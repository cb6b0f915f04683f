"""What an evaluation on weights measures: methods, lengths, and windows of text.

Every length is scored on the same tokens, the last ones of each window, with more or less text
before them. So a difference between two lengths comes from the positions, not from harder text.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.extend.methods import check_method

__all__ = ["PUBLISHED", "SLIDING_WINDOW", "ExtensionTest", "choose_lengths", "cut_windows"]

#: Row of the published rotation, and that of a sliding window of the trained length.
PUBLISHED, SLIDING_WINDOW = "none", "sliding_window"


@dataclass(frozen=True, kw_only=True)
class ExtensionTest:
    """Settings of ``evaluate_methods``.

    methods: names, None for all methods that a framework can run and the published rotation.
    windows: how many windows of text are read; fewer if the text is too short for that many.
    scored: tokens at the end of each window whose losses count.
    passkeys: texts for each depth and length in which a number is hidden; 0 for none.
    depths: where in the text the number is, from 0 (start) to 1 (end).
    """

    methods: tuple[str, ...] | None = None
    windows: int = 4
    scored: int = 256
    passkeys: int = 0
    depths: tuple[float, ...] = (0.1, 0.5, 0.9)

    def __post_init__(self) -> None:
        for name, least in (("windows", 1), ("scored", 1), ("passkeys", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}; got {quote(value)}."
                )
        for name in self.methods or ():
            check_method(name)
        if self.methods is not None and not self.methods:
            raise ValueError("methods must have at least one name, such as yarn.")
        if not self.depths or not all(0 <= depth <= 1 for depth in self.depths):
            raise ValueError(f"depths must be numbers from 0 to 1; got {quote(list(self.depths))}.")

    def to_dict(self) -> dict[str, Any]:
        return {
            "methods": None if self.methods is None else list(self.methods),
            "windows": self.windows,
            "scored": self.scored,
            "passkeys": self.passkeys,
            "depths": list(self.depths),
        }


def choose_lengths(trained: int, target: int) -> list[int]:
    """Half the trained length, that length, its doublings below the target, and the target.

    >>> choose_lengths(1024, 3000)
    [512, 1024, 2048, 3000]
    """
    lengths = [trained // 2, trained]
    while 2 * lengths[-1] < target:
        lengths.append(2 * lengths[-1])
    return [*lengths, target]


def cut_windows(tokens: list[int], start: list[int], length: int, most: int) -> Tensor:
    """Up to ``most`` windows [W, length + 1] of a text, apart from each other and evenly spaced.

    start: tokens that every window begins with.
    """
    size = length + 1 - len(start)
    count = min(most, len(tokens) // size)
    if count < 1:
        raise ValueError(
            f"the text must have at least {size:,} tokens, one window of the target length; it has"
            f" {len(tokens):,}. Give more text, or a shorter target."
        )
    share = len(tokens) / count  # a window in the middle of each share: the text may have a preface
    firsts = [int((n + 0.5) * share - size / 2) for n in range(count)]
    return torch.tensor([[*start, *tokens[first:][:size]] for first in firsts])
