"""What an evaluation on weights measures: methods, lengths, windows of text, retrieval.

Every length is scored on the same tokens, the last ones of each window, with more or less text
before them. So a difference between two lengths comes from the positions, not from harder text.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from whorl._support.words import quote, suggest_name
from whorl.extend.methods import check_method
from whorl.lab.retrieval import RETRIEVAL_FORMS, check_form

__all__ = [
    "PUBLISHED",
    "SLIDING_WINDOW",
    "EvaluationBudget",
    "ExtensionTest",
    "choose_lengths",
    "cut_windows",
]

#: Row of the published rotation, and that of a sliding window of the trained length.
PUBLISHED, SLIDING_WINDOW = "none", "sliding_window"

EvaluationBudget = Literal["quick", "full"]
_BUDGETS: dict[str, dict[str, Any]] = {
    "quick": {},
    "full": {"windows": 16, "texts": 4, "depths": (0.0, 0.25, 0.5, 0.75, 1.0)},
}


@dataclass(frozen=True, kw_only=True)
class ExtensionTest:
    """Settings of ``evaluate_methods``.

    methods: names, None for all methods but dynamic_linear; the published rotation is always tried.
    windows: how many windows of text are read; fewer if the text is too short for that many.
    scored: tokens at the end of each window whose losses count.
    texts: texts with hidden statements for each form, depth and length; 0 for no retrieval.
    depths: where in a text the evidence is, from 0 (start) to 1 (end).
    forms: what is hidden, see ``whorl.lab.retrieval``.
    seed: of keys, words and filler of these texts.
    """

    methods: tuple[str, ...] | None = None
    windows: int = 4
    scored: int = 256
    texts: int = 2
    depths: tuple[float, ...] = (0.1, 0.5, 0.9)
    forms: tuple[str, ...] = RETRIEVAL_FORMS
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("windows", 1), ("scored", 1), ("texts", 0), ("seed", 0)):
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
        for name in self.forms:
            check_form(name)

    @classmethod
    def from_budget(cls, budget: str = "quick", **changes: Any) -> "ExtensionTest":
        """The settings of a budget, "quick" or "full", with some of them changed.

        >>> ExtensionTest.from_budget("full", windows=2).texts
        4
        """
        if budget not in _BUDGETS:
            known = get_args(EvaluationBudget)
            raise ValueError(
                f"budget {quote(budget)} is unknown{suggest_name(budget, known)} Known:"
                f" {', '.join(known)}."
            )
        return cls(**{**_BUDGETS[budget], **changes})

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}


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
