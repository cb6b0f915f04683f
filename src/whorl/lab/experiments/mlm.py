"""``mlm``: learned positions against RoPE in masked language modelling, as loss by step.

After figure 3, left, of Su et al. 2021, RoFormer, https://arxiv.org/abs/2104.09864, in which BERT
with RoPE converges faster than BERT. The model is the lab's RoFormer; only its encoding differs.
How fast a row learns and how well it does when it has learned are separate measures.
"""

from functools import partial

from .definition import Experiment
from .speed import STEPS_SAVED, add_steps_saved, list_steps

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(
    name="mlm",
    measures=(STEPS_SAVED,),
    derive=partial(add_steps_saved, reference="learned"),
    list_tables=partial(list_steps, reference="learned"),
)
