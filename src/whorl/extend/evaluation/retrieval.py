"""Retrieval: shares of right answers to questions about statements hidden in long texts.

The texts are those of ``whorl.lab.retrieval``. The right answer is given token by token, and an
answer is right if every token of it was the most probable one, which is what greedy decoding would
write. Texts of another seed, depth or number have other keys and filler.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from whorl.lab.retrieval import RetrievalText, build_retrieval_text
from whorl.lab.tasks import RandomBits

from .loading import LoadedModel
from .losses import compute_scores_of_text
from .settings import ExtensionTest

__all__ = ["build_texts", "score_text"]


def build_texts(
    loaded: LoadedModel, form: str, length: int, depth: float, test: ExtensionTest
) -> Iterator[RetrievalText]:
    """The texts of ``length`` + 1 tokens of a form at one depth."""
    for number in range(test.texts):
        bits = RandomBits("extend", form, test.seed, depth, number)
        yield build_retrieval_text(
            loaded.encode, form, length + 1, depth, bits, loaded.first_tokens
        )


def score_text(loaded: LoadedModel, text: RetrievalText, window: int | None = None) -> float:
    """Share of the answers that the model gives right.

    window: only so many tokens before each token are read; None for all.
    """
    tokens: Tensor = torch.tensor(text.tokens)
    first = text.first_answer - 1  # the logits there are those of the first token of the answers
    dropped = 0 if window is None else max(0, len(tokens) - 1 - window)
    scores = compute_scores_of_text(loaded.model, tokens[dropped:], first - dropped)
    right = [bool(scores.right[a - first - 1 : b - first - 1].all()) for a, b in text.spans]
    return sum(right) / len(right)
