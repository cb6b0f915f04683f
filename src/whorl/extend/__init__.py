"""Make the context of a model longer: which method, what it costs, and what to write.

    target       the length to extend to
    start        the trained length that an extension starts from
    methods      every method, with the factor that the target asks for
    angles       effective context by angles, and what changes for short texts
    support      which frameworks run the written config as it is meant
    rank         the order of the methods, and the reason for the first
    recipes      what to write: lines for config.json, commands to paste
    plan         ``plan_extension``, which puts these together
    report       the result as data; words, tables: as text and for a terminal
    writing      the config with a method written into it; the original is kept beside it
    evaluation/  the methods tried on the weights of a model, by the loss of long texts
    search/      factors of LongRoPE found on the weights of a small model

Everything but ``evaluation`` and ``search`` follows from a config alone: angles are computed, texts
are not read.

>>> from whorl import extend
>>> plan = extend.plan_extension("qwen3-8b", to="4x")
>>> plan.recommended, plan.trained.tokens, plan.target
('yarn', 32768, 131072)
"""

from .angles import AngleReport
from .plan import plan_extension
from .recipes import Recipe
from .report import ExtensionPlan, MethodReport
from .start import TrainedLength
from .support import FrameworkSupport
from .writing import WrittenExtension, write_extension

__all__ = [
    "AngleReport",
    "ExtensionPlan",
    "FrameworkSupport",
    "MethodReport",
    "Recipe",
    "TrainedLength",
    "WrittenExtension",
    "plan_extension",
    "write_extension",
]
