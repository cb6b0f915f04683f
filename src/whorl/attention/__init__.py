"""Attention with any encoding: softmax, linear and shifted sparse, a cache, and a module."""

from .cache.kv_cache import CacheStep, KVCache
from .flex import score_mod
from .linear.attention import LinearState, linear_attention
from .linear.random_features import RandomFeatures
from .multihead import MultiheadAttention
from .softmax.attention import attention
from .sparse import shifted_attention

__all__ = [
    "CacheStep",
    "KVCache",
    "LinearState",
    "MultiheadAttention",
    "RandomFeatures",
    "attention",
    "linear_attention",
    "score_mod",
    "shifted_attention",
]
