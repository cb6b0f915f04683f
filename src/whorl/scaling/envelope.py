"""The decay envelope: a curve by which the upper bound of a RoPE score falls with distance.

    S_j(m) = sum_(i<j) exp(i m theta_i)             f(m) = mean_j |S_j(m)|,  j = 1 .. R/2

Su et al. 2021, RoFormer, section 3.4.3, https://arxiv.org/abs/2104.09864; the bound itself is in
analysis/decay.py.
"""

import torch
from torch import Tensor

__all__ = ["envelope"]


def envelope(inv_freq: Tensor, distances: Tensor) -> Tensor:
    """The envelope f(m), float64, for frequencies [P] and distances of any shape.

    >>> envelope(torch.tensor([1.0, 0.1]), torch.tensor([0])).tolist()
    [1.5]
    """
    angles = distances.double().unsqueeze(-1) * inv_freq.double()
    sums = torch.polar(torch.ones_like(angles), angles).cumsum(-1)
    return sums.abs().mean(-1)
