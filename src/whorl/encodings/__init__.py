"""Every position encoding, one per file, behind the interface of ``base``."""

from .base import Composition, Config, Encoding, from_dict, make, names, register
from .nope import NoPE
from .rope import RoPE

__all__ = [
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
