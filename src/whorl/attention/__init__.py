"""Attention with any encoding: softmax, linear and shifted sparse, a cache, and a module."""

from .cache.kv_cache import CacheStep, KVCache
from .flex import score_mod
from .linear.attention import LinearState, linear_attention
from .linear.random_features import RandomFeatures
from .multihead import MultiheadAttention
from .softmax.attention import attention
from .softmax.partial import PartialAttention, merge_attention, partial_attention
from .sparse import shifted_attention

__all__ = [
    "CacheStep",
    "KVCache",
    "LinearState",
    "MultiheadAttention",
    "PartialAttention",
    "RandomFeatures",
    "attention",
    "linear_attention",
    "merge_attention",
    "partial_attention",
    "score_mod",
    "shifted_attention",
]
