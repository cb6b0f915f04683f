"""Frequency scalings, which make the context of a RoPE model longer: one family per file."""

from .base import Frequencies, Ladder, Scaling, from_dict, names, register
from .by_parts import NTKByParts, Ramp
from .describe import Description, PairDescription
from .linear import DynamicLinear, Linear
from .llama3 import Llama3
from .longrope import LongRoPE
from .ntk import NTK, DynamicNTK
from .proportional import Proportional
from .yarn import DynamicYaRN, MscaleRule, YaRN

__all__ = [
    "NTK",
    "Description",
    "DynamicLinear",
    "DynamicNTK",
    "DynamicYaRN",
    "Frequencies",
    "Ladder",
    "Linear",
    "Llama3",
    "LongRoPE",
    "MscaleRule",
    "NTKByParts",
    "PairDescription",
    "Proportional",
    "Ramp",
    "Scaling",
    "YaRN",
    "from_dict",
    "names",
    "register",
]
