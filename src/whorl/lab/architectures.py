"""The model that a config asks for: every part of the lab builds its models here."""

from collections.abc import Mapping

from torch import Tensor

from .config import ModelConfig
from .model import LanguageModel, Model
from .roformer import RoFormerConfig, RoFormerMaskedLM

__all__ = ["build_model", "count_vocab"]


def build_model(config: ModelConfig, *, vocab: int, longest: int) -> LanguageModel:
    """The model of ``config``, for ``vocab`` tokens and sequences of up to ``longest`` tokens.

    >>> build_model(ModelConfig(width=16, layers=1), vocab=7, longest=32).vocab
    7
    """
    if config.architecture == "roformer":
        return RoFormerMaskedLM(RoFormerConfig.from_model(config, vocab=vocab, longest=longest))
    return Model(config, vocab=vocab, longest=longest)


def count_vocab(config: ModelConfig, weights: Mapping[str, Tensor]) -> int:
    """Tokens in the vocabulary of a model with these weights."""
    prefix = "encoder." if config.architecture == "roformer" else ""
    return weights[f"{prefix}embedding.weight"].shape[0]
