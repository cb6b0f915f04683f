"""Losses of the tokens of long texts, in nats.

A text is read in chunks with a cache of keys and values, so that memory beyond the weights is that
cache and the logits of one chunk. The sliding window has no cache: for a few tokens at a time, the
last tokens before them are read afresh, from position 0.
"""

import inspect
import itertools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .reserved import make_cache

__all__ = ["TokenScores", "compute_scores_of_text", "compute_window_losses"]

_CHUNK = 512
# Most entries of the mask of a chunk, which transformers builds from several tensors of its shape.
_MOST_PAIRS = 2**20
# Most logits of a chunk that is scored, 64 MB; the loss needs as much again.
_MOST_LOGITS = 2**24
#: Parts of the scored tokens that the sliding window is moved by.
_WINDOW_STEPS = 4


class TokenScores(NamedTuple):
    """Loss of each token, and whether it was the most probable one, both [n]."""

    losses: Tensor
    right: Tensor


@torch.no_grad()
def compute_scores_of_text(model: Any, tokens: Tensor, first: int) -> TokenScores:
    """Scores of ``tokens[first + 1:]``, each predicted from all tokens before it.

    tokens: [n + 1]. The result has n - first entries.
    """
    length = len(tokens) - 1
    whole = min(_CHUNK, max(32, _MOST_PAIRS // length))
    step = min(whole, _limit_by_vocabulary(model))
    bounds = sorted({*range(0, first, whole), *range(first, length, step), length})
    cache, losses, right = make_cache(model, length), [], []
    for start, end in itertools.pairwise(bounds):
        count = end - start if start >= first else 1
        out = model(
            input_ids=tokens[None, start:end],
            past_key_values=cache,
            use_cache=True,
            **_limit_logits(model, count),
        )
        cache = out.past_key_values
        if start >= first:
            logits, following = out.logits[0, -count:].float(), tokens[start + 1 : end + 1]
            losses.append(F.cross_entropy(logits, following, reduction="none"))
            right.append(logits.argmax(-1) == following)
    return TokenScores(torch.cat(losses), torch.cat(right))


@torch.no_grad()
def compute_window_losses(model: Any, tokens: Tensor, first: int, window: int) -> Tensor:
    """Losses of ``tokens[first + 1:]``, each predicted from at most ``window`` tokens before it.

    The window moves by a quarter of the scored tokens, so that a token has at least ``window`` less
    that many tokens before it, if there are so many.
    """
    length = len(tokens) - 1
    step = max(1, min(-(-(length - first) // _WINDOW_STEPS), window // 2))
    losses = []
    for start in range(first, length, step):
        end = min(start + step, length)
        begin = max(0, end - window)
        found = compute_scores_of_text(model, tokens[begin : end + 1], start - begin)
        losses.append(found.losses)
    return torch.cat(losses)


def _limit_by_vocabulary(model: Any) -> int:
    """Most tokens of a chunk that is scored."""
    config = getattr(model, "config", None)
    vocab = config.get_text_config(decoder=True).vocab_size if config is not None else 1
    return int(max(16, _MOST_LOGITS // vocab))


def _limit_logits(model: Any, count: int) -> dict[str, int]:
    """The argument that lets a model compute the logits of its last tokens only, if it has one."""
    has = "logits_to_keep" in inspect.signature(model.forward).parameters
    return {"logits_to_keep": count} if has else {}
