"""The model that a config asks for: every part of the lab builds its models here."""

from .config import ModelConfig
from .model import LanguageModel, Model

__all__ = ["build_model"]


def build_model(config: ModelConfig, *, vocab: int, longest: int) -> LanguageModel:
    """The model of ``config``, for ``vocab`` tokens and sequences of up to ``longest`` tokens.

    >>> build_model(ModelConfig(width=16, layers=1), vocab=7, longest=32).vocab
    7
    """
    return Model(config, vocab=vocab, longest=longest)
