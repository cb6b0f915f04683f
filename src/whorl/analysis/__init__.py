"""What an encoding does, in numbers.

>>> import torch, whorl
>>> q, k = torch.randn(1, 4, 6, 16), torch.randn(1, 4, 6, 16)
>>> parts = whorl.analysis.terms(whorl.RoPE(16) + whorl.ALiBi(4), q, k)
>>> list(parts)
['content-content', 'rope: interaction', 'alibi: position-position']
"""

from .permutation import permutation
from .terms import Terms, terms

__all__ = ["Terms", "permutation", "terms"]
