"""The texts whose loss a search minimizes.

"text": windows of the target length; all tokens past the trained length count. "needles": the same
windows with a statement of a number at some depth and a question about it at the end; only the
tokens of the answer count, because most tokens of a text can be predicted from the few before them
(Shang et al. 2025, LongRoPE2, section 3.2, https://arxiv.org/abs/2502.20082; the words here are our
own).
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.extend.evaluation import LoadedModel
from whorl.extend.evaluation.losses import compute_scores_of_text
from whorl.extend.evaluation.settings import cut_windows

from .settings import FactorSearch

__all__ = ["SearchText", "build_search_texts", "compute_mean_loss"]

_STATEMENT = " The number of the {subject} is {number}. "
_QUESTION = " The number of the {subject} is"
_SUBJECTS = ("harbour", "library", "station", "market", "bridge", "museum", "garden", "tower")


@dataclass(frozen=True, eq=False)
class SearchText:
    """Tokens [n + 1], of which those after the first ``first`` + 1 count."""

    tokens: Tensor
    first: int


def build_search_texts(
    loaded: LoadedModel, tokens: list[int], trained: int, target: int, settings: FactorSearch
) -> list[SearchText]:
    """The texts of a search; ValueError if the text is too short for one of them."""
    start = loaded.first_tokens
    windows = cut_windows(tokens, start, target, settings.windows)
    if settings.objective == "text":
        return [SearchText(row, trained) for row in windows]
    count = len(windows)
    return [
        _insert_needle(loaded, row, len(start), n, (n + 0.5) / count)
        for n, row in enumerate(windows)
    ]


@torch.no_grad()
def compute_mean_loss(loaded: LoadedModel, texts: list[SearchText]) -> float:
    """Mean loss of all tokens that count."""
    found = [compute_scores_of_text(loaded.model, text.tokens, text.first) for text in texts]
    return float(torch.cat([scores.losses for scores in found]).double().mean())


def _insert_needle(
    loaded: LoadedModel, row: Tensor, start: int, number: int, depth: float
) -> SearchText:
    """A window with a statement at ``depth``, and a question with its answer at the end."""
    subject = _SUBJECTS[number % len(_SUBJECTS)]
    drawn = int.from_bytes(hashlib.sha256(f"needle {number}".encode()).digest()[:4], "big")
    digits = str(10_000 + drawn % 90_000)
    statement = loaded.encode(_STATEMENT.format(subject=subject, number=digits))
    question = loaded.encode(_QUESTION.format(subject=subject))
    both = loaded.encode(f"{_QUESTION.format(subject=subject)} {digits}")
    shared = 0  # a tokenizer may join the end of the question to the answer
    while shared < len(question) and question[shared] == both[shared]:
        shared += 1
    room = len(row) - start - len(statement) - len(both)
    if room < 0:
        raise ValueError(
            f"texts with needles must have at least {len(row) - 1 - room:,} tokens with this"
            f" tokenizer; the target has {len(row) - 1:,}. Search with objective 'text'."
        )
    text = row[start:].tolist()
    before = round(room * depth)
    tokens = [*row[:start].tolist(), *text[:before], *statement, *text[before:room], *both]
    return SearchText(torch.tensor(tokens), len(tokens) - 1 - (len(both) - shared))
