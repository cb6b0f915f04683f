"""``hybrids``: whether two encodings together do better than each of them.

RoPE rotates queries and keys, ALiBi (Press et al. 2021, https://arxiv.org/abs/2108.12409) and
biases (Raffel et al. 2019, T5, https://arxiv.org/abs/1910.10683) add to the scores, and learned
positions (Devlin et al. 2018, BERT, https://arxiv.org/abs/1810.04805) to the input; they compose.
"""

from .definition import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(name="hybrids")
