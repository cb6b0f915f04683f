"""What an encoding does, in numbers.

>>> import torch, whorl
>>> q, k = torch.randn(1, 4, 6, 16), torch.randn(1, 4, 6, 16)
>>> parts = whorl.analysis.terms(whorl.RoPE(16) + whorl.ALiBi(4), q, k)
>>> list(parts)
['content-content', 'rope: interaction', 'alibi: position-position']
"""

from .denominators import Denominator, Denominators, denominators
from .drift import Drift, cache_drift
from .permutation import permutation
from .terms import Terms, terms

__all__ = [
    "Denominator",
    "Denominators",
    "Drift",
    "Terms",
    "cache_drift",
    "denominators",
    "permutation",
    "terms",
]
