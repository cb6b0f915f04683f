"""Masks tokens for an encoder, as BERT does: of the chosen tokens, 80 % become the mask token.

15 % of the tokens are chosen, and the model predicts each of them. 80 % of the chosen ones become
the mask token, 10 % a random token and 10 % stay as they are, because a model that is used later
sees no mask tokens. Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805.

Tokens are chosen one by one or by whole words, which BERT's authors added later
(https://github.com/google-research/bert): then all tokens of a chosen word are predicted, and each
of them is replaced on its own.

BERT's program for training also evaluates, on text that the same program has masked. So does the
lab: validation and evaluation have the same shares as training, by random numbers that do not
change.
"""

import torch
from torch import Tensor

__all__ = ["choose_tokens", "mask_tokens"]

_CHOSEN_SHARE = 0.15
# Of the chosen tokens: masked below the first bound, random below the second, else as they are.
_MASKED_BELOW, _RANDOM_BELOW = 0.8, 0.9


def choose_tokens(words: Tensor, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which tokens a model has to predict, bool [B, T], and the words as numbers from 0, [B, T].

    words: numbers [B, T] that differ between one word and the next. A word is chosen as a whole,
    with a probability of 15 %.
    """
    begins = words[:, 1:] != words[:, :-1]
    numbers = torch.nn.functional.pad(begins.cumsum(1), (1, 0))  # [B, T]: 0 0 1 2 2 2 3
    drawn = torch.rand(words.shape, generator=source).gather(1, numbers)
    return drawn < _CHOSEN_SHARE, numbers


def mask_tokens(tokens: Tensor, chosen: Tensor, mask: int, source: torch.Generator) -> Tensor:
    """``tokens`` [B, T] as the model reads them; those in ``chosen`` are replaced by BERT's rule.

    mask: the id of the mask token; random tokens are below it.
    """
    drawn = torch.rand(tokens.shape, generator=source)
    random = torch.randint(mask, tokens.shape, generator=source)
    replaced = torch.where(drawn < _RANDOM_BELOW, random, tokens)
    replaced = torch.where(drawn < _MASKED_BELOW, mask, replaced)
    return torch.where(chosen, replaced, tokens)
