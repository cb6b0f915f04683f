"""``base``: how the base of RoPE's frequencies changes the loss, within the length and beyond it.

A larger base makes all pairs but the first rotate more slowly: fewer pairs complete a rotation
within the trained length, and fewer angles are new beyond it. Su et al. 2021, RoFormer, chose
10,000; Roziere et al. 2023, Code Llama, https://arxiv.org/abs/2308.12950, train with 1e6.
"""

from .definition import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(name="base")
