"""What consumes an encoding: attention that never forms more of a matrix than it must."""

from .cache.kv_cache import KVCache, Step
from .flex import score_mod
from .linear.attention import LinearState, linear_attention
from .multihead import MultiheadAttention
from .softmax.attention import attention
from .sparse import shifted_attention

__all__ = [
    "KVCache",
    "LinearState",
    "MultiheadAttention",
    "Step",
    "attention",
    "linear_attention",
    "score_mod",
    "shifted_attention",
]
