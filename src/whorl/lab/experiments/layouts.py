"""``layouts``: "half" and "interleaved" must not matter for a model trained from scratch.

The layouts pair different channels, and a permutation of the rows of the query and key projections
takes one to the other. Random weights have no preferred order, so the two differ as two seeds do.
"""

from .definition import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(name="layouts")
