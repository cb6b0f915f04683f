"""Questions for a model: tokens in, targets out, from a corpus or a task.

A decoder is asked for the next token, an encoder for tokens hidden behind a mask token, which has
the id after the vocabulary. Where a target is -1 nothing is asked. What a step trains on follows
from the seed and the step's number alone.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from . import corpus, tasks
from .config import RunConfig
from .model import derive_seed

__all__ = ["DataSource", "TokenBatch", "open_data_source"]

# BERT hides 15 of 100 tokens: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
_MASKED_SHARE = 0.15


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """tokens [B, T] as the model reads them; targets [B, T], -1 where nothing is asked.

    judged [B, T]: those that count towards the result at this length.
    """

    tokens: Tensor
    targets: Tensor
    judged: Tensor


class DataSource(Protocol):
    """Where questions come from."""

    vocab: int
    about: dict[str, Any]
    #: Loss of one who knows nothing but how often each token comes; NaN for a task.
    frequencies_loss: float

    def batch(self, step: int) -> TokenBatch:
        """What step ``step`` trains on."""

    def evaluation(self, length: int) -> TokenBatch:
        """What a model is judged by at ``length``: the same at every call."""


def open_data_source(config: RunConfig) -> DataSource:
    """The source that a config asks for; raises if it has too little for it."""
    if config.data.task != "text":
        return _TaskSource(config)
    return _TextSource(config)


class _TextSource:
    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._corpus = corpus.load_corpus(config.data.files, config.data.tokenizer)
        self._ahead = config.model.kind == "decoder"  # one more token: what the last is asked for
        self._corpus.check_length(config.training.length + self._ahead)
        self._windows = self._corpus.windows(
            config.evaluation.windows, config.longest + self._ahead, config.lengths[0]
        )
        self.about = self._corpus.about
        self.vocab = self._corpus.vocab + (not self._ahead)
        judged = self._windows[:, self._windows.shape[1] - config.lengths[0] :]
        self.frequencies_loss = self._corpus.frequencies_loss(judged)

    def batch(self, step: int) -> TokenBatch:
        training = self.config.training
        source = torch.Generator().manual_seed(derive_seed(training.seed, "batch", step))
        text = self._corpus.batch(training.batch, training.length + self._ahead, source)
        if self._ahead:
            return _build_next_token_batch(text, torch.ones_like(text, dtype=torch.bool))
        hidden = torch.rand(text.shape, generator=source) < _MASKED_SHARE
        hidden[:, 0] |= ~hidden.any(1)  # at least one in each row
        return _build_masked_batch(text, hidden, self.vocab - 1)

    def evaluation(self, length: int) -> TokenBatch:
        shortest = self.config.lengths[0]
        text = self._windows[:, self._windows.shape[1] - length - self._ahead :]
        if self._ahead:
            questions = _build_next_token_batch(text, torch.ones_like(text, dtype=torch.bool))
            judged = torch.zeros_like(questions.judged)
            judged[:, length - shortest :] = True
            return TokenBatch(questions.tokens, questions.targets, judged)
        # The same tokens are hidden at every length.
        source = torch.Generator().manual_seed(derive_seed("evaluation", shortest))
        hidden = torch.zeros_like(text, dtype=torch.bool)
        hidden[:, length - shortest :] = (
            torch.rand(len(text), shortest, generator=source) < _MASKED_SHARE
        )
        hidden[:, length - 1] = True  # at least one in each window
        return _build_masked_batch(text, hidden, self.vocab - 1)


class _TaskSource:
    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._task = tasks.get_task(config.data.task)
        self._ahead = config.model.kind == "decoder"
        for length in (config.training.length, *config.lengths):
            if length < self._task.shortest:
                raise ValueError(
                    f"the task {self._task.name!r} needs at least {self._task.shortest} tokens;"
                    f" got {length}. Train longer, or leave out small multiples."
                )
        self.about: dict[str, Any] = {"title": self._task.title, "unit": "bytes"}
        self.vocab = 256 + (not self._ahead)
        self.frequencies_loss = math.nan

    def batch(self, step: int) -> TokenBatch:
        training = self.config.training
        seed = derive_seed(training.seed, "batch", step)
        return self._questions(*self._task.examples(training.batch, training.length, seed))

    def evaluation(self, length: int) -> TokenBatch:
        seed = derive_seed("evaluation", length)
        return self._questions(*self._task.examples(self.config.evaluation.windows, length, seed))

    def _questions(self, tokens: Tensor, asked: Tensor) -> TokenBatch:
        return (
            _build_next_token_batch(tokens, asked)
            if self._ahead
            else _build_masked_batch(tokens, asked, self.vocab - 1)
        )


def _build_next_token_batch(tokens: Tensor, asked: Tensor) -> TokenBatch:
    targets = torch.where(asked[:, 1:], tokens[:, 1:], -1)
    return TokenBatch(tokens[:, :-1].contiguous(), targets, asked[:, 1:])


def _build_masked_batch(tokens: Tensor, asked: Tensor, mask: int) -> TokenBatch:
    return TokenBatch(torch.where(asked, mask, tokens), torch.where(asked, tokens, -1), asked)
