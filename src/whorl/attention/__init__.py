"""What consumes an encoding: attention that never forms more of a matrix than it must."""

from .flex import score_mod
from .multihead import MultiheadAttention
from .softmax import attention
from .sparse import shifted_attention

__all__ = ["MultiheadAttention", "attention", "score_mod", "shifted_attention"]
