"""``partial``: how many channels of a head must rotate.

Black et al. 2022, GPT-NeoX-20B, https://arxiv.org/abs/2204.06745, rotate a quarter of each head;
the other channels are compared without a position.
"""

from .definition import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(name="partial")
