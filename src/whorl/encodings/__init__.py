"""Every position encoding, one per file, behind the interface of ``base``."""

from .base import Card, Config, Encoding, from_dict, make, names, register
from .composition import Composition
from .nope import NoPE
from .rope import RoPE

__all__ = [
    "Card",
    "Composition",
    "Config",
    "Encoding",
    "NoPE",
    "RoPE",
    "from_dict",
    "make",
    "names",
    "register",
]
