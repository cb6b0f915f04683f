"""``performer``: a causal Performer on bytes with and without RoPE, as loss by step.

After figure 3, right, of Su et al. 2021, RoFormer, https://arxiv.org/abs/2104.09864, scaled down:
the paper trains 12 layers of width 768 on enwik8. A Performer is a Transformer whose linear
attention has random features, which estimate softmax attention (Choromanski et al. 2020,
https://arxiv.org/abs/2009.14794). The paper does not say which positions its model has without
RoPE: here there are a row with learned positions and one with none.
"""

from functools import partial

from .definition import Experiment
from .speed import STEPS_SAVED, add_steps_saved, list_steps

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(
    name="performer",
    measures=(STEPS_SAVED,),
    derive=partial(add_steps_saved, reference="learned"),
    list_tables=partial(list_steps, reference="learned"),
)
