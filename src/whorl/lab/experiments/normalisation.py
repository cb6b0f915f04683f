"""``normalisation``: whether normalized queries and keys lower the loss, before or after rotation.

The norm is RMSNorm of each head with a trained weight: Henry et al. 2020, Query-Key Normalization,
https://arxiv.org/abs/2010.04245; Dehghani et al. 2023, https://arxiv.org/abs/2302.05442. A rotation
keeps lengths, so that "before" and "after" differ in the trained weight only: after the rotation it
multiplies channels that depend on the position.
"""

from .definition import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(name="normalisation")
