"""Every position encoding, one per file, behind the interface of ``base``."""

from .alibi import ALiBi
from .axial_rope import AxialRoPE
from .base import Card, Config, Encoding, from_dict, make, names, register
from .composition import Composition
from .deberta import DeBERTa
from .kerple import Kerple
from .learned import Learned
from .mrope import MRoPE
from .nope import NoPE
from .relative_bias import RelativeBias
from .rope import RoPE
from .shaw import Shaw
from .sinusoidal import Sinusoidal
from .t5 import T5Bias
from .transformer_xl import TransformerXL
from .xpos import XPos

__all__ = [
    "ALiBi",
    "AxialRoPE",
    "Card",
    "Composition",
    "Config",
    "DeBERTa",
    "Encoding",
    "Kerple",
    "Learned",
    "MRoPE",
    "NoPE",
    "RelativeBias",
    "RoPE",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "TransformerXL",
    "XPos",
    "from_dict",
    "make",
    "names",
    "register",
]
