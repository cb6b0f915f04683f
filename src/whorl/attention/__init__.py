"""What consumes an encoding: attention that never forms more of a matrix than it must."""

from .cache import KVCache, Step
from .flex import score_mod
from .linear import LinearState, linear_attention
from .multihead import MultiheadAttention
from .softmax import attention
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
