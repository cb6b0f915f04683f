"""Batches of tokens and targets for training and evaluation, from a corpus or a task.

A decoder predicts the next token. An encoder predicts masked tokens; the id of its mask token is
the size of the vocabulary. In text some tokens are masked by BERT's rule (``masking``), in a task
all answers are. A target of -1 is not predicted. Rows of tasks can be mixed into the text of a
decoder. The batch of a training step depends on the seed and the number of the step only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from . import corpus, tasks
from .config import DataConfig, RunConfig
from .masking import choose_tokens, mask_tokens
from .model import derive_seed
from .retrieval import make_retrieval_rows

__all__ = ["DataSource", "TokenBatch", "open_data_source"]

# Windows of the validation, the same for every encoding and step.
_VALIDATION_WINDOWS = 64


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Tokens [B, T] that the model reads, and targets [B, T] that it predicts, -1 for none.

    judged [B, T]: whether a target counts in the evaluation at this length.
    """

    tokens: Tensor
    targets: Tensor
    judged: Tensor


class DataSource(Protocol):
    """A source of batches for one config."""

    vocab: int
    about: dict[str, Any]
    #: Loss of a model that knows only how frequent each token is; NaN for a task.
    unigram_loss: float

    def get_batch(self, step: int) -> TokenBatch:
        """The batch of training step ``step``."""

    def get_validation(self, length: int | None = None) -> TokenBatch:
        """The batch of the learning curve, at the trained length or another; always the same."""

    def get_evaluation(self, length: int) -> TokenBatch:
        """The batch of the evaluation at ``length``, the same at every call."""


def open_data_source(config: RunConfig) -> DataSource:
    """The data source of a config; ValueError if it has too little text."""
    if config.data.task != "text":
        return _TaskSource(config)
    return _TextSource(config)


class _TextSource:
    """Windows of a corpus."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        by_words = config.data.masking == "words"
        self._corpus = corpus.load_corpus(config.data.files, config.data.tokenizer, words=by_words)
        self._ahead = config.model.kind == "decoder"  # one more token: the target of the last one
        longest = max(stage.length for stage in config.training.all_stages)
        self._corpus.check_length(longest + self._ahead)
        self._windows, self._window_words = self._cut_both(
            lambda text: text.cut_windows(
                config.evaluation.windows, config.longest + self._ahead, config.lengths[0]
            )
        )
        self.about = self._corpus.about
        self.vocab = self._corpus.vocab + (not self._ahead)
        judged = self._windows[:, self._windows.shape[1] - config.lengths[0] :]
        self.unigram_loss = self._corpus.compute_unigram_loss(judged)

    def get_batch(self, step: int) -> TokenBatch:
        _, stage = self.config.training.find_stage(step)
        seed = _derive_batch_seed(self.config, step)
        source = torch.Generator()
        text, words = self._cut_both(
            lambda text: text.sample_windows(
                stage.batch, stage.length + self._ahead, source.manual_seed(seed)
            )
        )
        batch = self._build_batch(text, words, source)
        return batch if not self.config.data.mixed else _mix_rows(batch, self.config.data, seed)

    def get_validation(self, length: int | None = None) -> TokenBatch:
        source = torch.Generator().manual_seed(derive_seed("validation"))
        window = (length or self.config.training.length) + self._ahead
        text, words = self._cut_both(
            lambda text: text.cut_validation_windows(_VALIDATION_WINDOWS, window)
        )
        return self._build_batch(text, words, source)

    def get_evaluation(self, length: int) -> TokenBatch:
        shortest = self.config.lengths[0]
        text = self._windows[:, self._windows.shape[1] - length - self._ahead :]
        if self._ahead:
            batch = _build_next_token_batch(text, torch.ones_like(text, dtype=torch.bool))
            judged = torch.zeros_like(batch.judged)
            judged[:, length - shortest :] = True
            return TokenBatch(batch.tokens, batch.targets, judged)
        # The same tokens are masked at every length, and replaced by the same ones.
        source = torch.Generator().manual_seed(derive_seed("evaluation", shortest))
        judged_part = text[:, length - shortest :]
        chosen, numbers = choose_tokens(self._window_words[:, -shortest:], source)
        chosen |= numbers == numbers[:, -1:]  # at least the last word of each window
        read = mask_tokens(judged_part, chosen, self.vocab - 1, source)
        before = torch.zeros(len(text), length - shortest, dtype=torch.bool)
        asked = torch.cat((before, chosen), 1)
        tokens = torch.cat((text[:, : length - shortest], read), 1)
        return TokenBatch(tokens, torch.where(asked, text, -1), asked)

    def _cut_both(self, cut: Callable[[corpus.Corpus], Tensor]) -> tuple[Tensor, Tensor]:
        """Windows of the text, and the numbers of their words; without words, of their tokens."""
        text = cut(self._corpus)
        if self._corpus.words is None:
            return text, torch.arange(text.shape[1]).expand_as(text)
        return text, cut(self._corpus.words)

    def _build_batch(self, text: Tensor, words: Tensor, source: torch.Generator) -> TokenBatch:
        if self._ahead:
            return _build_next_token_batch(text, torch.ones_like(text, dtype=torch.bool))
        chosen, numbers = choose_tokens(words, source)
        chosen |= (numbers == 0) & ~chosen.any(1, keepdim=True)  # at least one word in each row
        tokens = mask_tokens(text, chosen, self.vocab - 1, source)
        return TokenBatch(tokens, torch.where(chosen, text, -1), chosen)


class _TaskSource:
    """Examples of a synthetic task."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._task = tasks.get_task(config.data.task)
        self._ahead = config.model.kind == "decoder"
        stages = (stage.length for stage in config.training.all_stages)
        for length in (*stages, *config.lengths):
            if length < self._task.shortest:
                raise ValueError(
                    f"the task {self._task.name!r} needs at least {self._task.shortest} tokens;"
                    f" got {length}. Train longer, or leave out small multiples."
                )
        self.about: dict[str, Any] = {"title": self._task.title, "unit": "bytes"}
        self.vocab = 256 + (not self._ahead)
        self.unigram_loss = math.nan

    def get_batch(self, step: int) -> TokenBatch:
        _, stage = self.config.training.find_stage(step)
        seed = _derive_batch_seed(self.config, step)
        return self._build_batch(*self._task.make_examples(stage.batch, stage.length, seed))

    def get_validation(self, length: int | None = None) -> TokenBatch:
        seed = derive_seed("validation")
        length = length or self.config.training.length
        return self._build_batch(*self._task.make_examples(_VALIDATION_WINDOWS, length, seed))

    def get_evaluation(self, length: int) -> TokenBatch:
        seed = derive_seed("evaluation", length)
        return self._build_batch(
            *self._task.make_examples(self.config.evaluation.windows, length, seed)
        )

    def _build_batch(self, tokens: Tensor, asked: Tensor) -> TokenBatch:
        return (
            _build_next_token_batch(tokens, asked)
            if self._ahead
            else _build_masked_batch(tokens, asked, self.vocab - 1)
        )


def _derive_batch_seed(config: RunConfig, step: int) -> int:
    """Seed of a step's batch; a run that starts from trained weights reads other text than they."""
    start = () if config.start.weights is None else (config.start.weights,)
    return derive_seed(config.training.seed, "batch", step, *start)


def _mix_rows(batch: TokenBatch, data: DataConfig, seed: int) -> TokenBatch:
    """A batch of text whose last rows are replaced by those of the tasks in ``data.mixed``."""
    rows, length = batch.tokens.shape
    replaced = round(data.mixed_share * rows)
    names = ("tokens", "targets", "judged")
    parts = [TokenBatch(*(getattr(batch, name)[: rows - replaced] for name in names))]
    for n, name in enumerate(data.mixed):
        count = replaced * (n + 1) // len(data.mixed) - replaced * n // len(data.mixed)
        if count:
            hidden = name == "retrieval"
            make = make_retrieval_rows if hidden else tasks.get_task(name).make_examples
            parts.append(_build_next_token_batch(*make(count, length + 1, seed)))
    return TokenBatch(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


def _build_next_token_batch(tokens: Tensor, asked: Tensor) -> TokenBatch:
    targets = torch.where(asked[:, 1:], tokens[:, 1:], -1)
    return TokenBatch(tokens[:, :-1].contiguous(), targets, asked[:, 1:])


def _build_masked_batch(tokens: Tensor, asked: Tensor, mask: int) -> TokenBatch:
    return TokenBatch(torch.where(asked, mask, tokens), torch.where(asked, tokens, -1), asked)
