"""Passkey retrieval: a number hidden in filler, asked for at the end of the text.

Mohtashami and Jaggi 2023, Landmark Attention, https://arxiv.org/abs/2305.16300, section 4.2; the
words here are our own. A text has exactly the asked number of tokens; depth 0 puts the number at
its start, depth 1 before the question. An answer is right if every token of it is the most probable
one, which is what greedy decoding would write.
"""

import hashlib
from itertools import takewhile

import torch
from torch import Tensor

from .loading import LoadedModel
from .losses import compute_scores_of_text

__all__ = ["build_passkey_text", "measure_passkeys"]

_FILLER = (
    "The river is wide and the boats are slow. A clerk counts the crates and writes a list. "
    "Rain falls on the roofs, and the market opens late. Nobody hurries home. "
)
_STATEMENT = "The pass key is {key}. Remember it. {key} is the pass key. "
_QUESTION = "What is the pass key? The pass key is"


def build_passkey_text(
    loaded: LoadedModel, length: int, depth: float, number: int
) -> tuple[Tensor, int]:
    """Tokens [length + 1] of one text with its answer, and how many tokens the answer has.

    number: which text; the same number gives the same key.
    """
    key = int.from_bytes(hashlib.sha256(f"passkey {number}".encode()).digest()[:4], "big")
    digits = f"{10_000 + key % 90_000}"
    start, statement = loaded.first_tokens, loaded.encode(_STATEMENT.format(key=digits))
    question, both = loaded.encode(_QUESTION), loaded.encode(f"{_QUESTION} {digits}")
    # A tokenizer may join the last letters of the question to the answer.
    pairs = zip(question, both, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    room = length + 1 - len(start) - len(statement) - len(both)
    if room < 0:
        raise ValueError(
            f"passkey texts must have at least {length - room} tokens with this tokenizer;"
            f" got {length}."
        )
    filler = loaded.encode(_FILLER)
    before = round(room * depth)
    repeated = filler * (room // len(filler) + 2)
    after = repeated[before % len(filler) :][: room - before]
    tokens = [*start, *repeated[:before], *statement, *after, *both]
    return torch.tensor(tokens), len(both) - shared


def measure_passkeys(
    loaded: LoadedModel, length: int, depths: tuple[float, ...], trials: int
) -> list[float]:
    """Share of right answers at each depth, in texts of ``length`` tokens."""
    shares = []
    for row, depth in enumerate(depths):
        right = 0
        for trial in range(trials):
            number = row * trials + trial
            tokens, answer = build_passkey_text(loaded, length, depth, number)
            scores = compute_scores_of_text(loaded.model, tokens, length - answer)
            right += bool(scores.right.all())
        shares.append(right / trials)
    return shares
