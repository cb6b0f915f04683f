"""whorl: position encodings for PyTorch Transformers, exact and fast, behind one interface.

>>> import torch, whorl
>>> rope = whorl.RoPE(64)
>>> q, k = rope(torch.randn(1, 8, 16, 64), torch.randn(1, 2, 16, 64))
>>> 'rope' in whorl.names()
True
"""

from importlib.metadata import PackageNotFoundError, version

from . import positions, testing
from .encodings import (
    Card,
    Composition,
    Config,
    Encoding,
    NoPE,
    RoPE,
    from_dict,
    make,
    names,
    register,
)
from .kernels.ops import Impl, Layout
from .kernels.tables import Precision
from .scaling import NTK, DynamicNTK, Frequencies, Ladder, Linear, Scaling

__all__ = [
    "NTK",
    "Card",
    "Composition",
    "Config",
    "DynamicNTK",
    "Encoding",
    "Frequencies",
    "Impl",
    "Ladder",
    "Layout",
    "Linear",
    "NoPE",
    "Precision",
    "RoPE",
    "Scaling",
    "__version__",
    "from_dict",
    "make",
    "names",
    "positions",
    "register",
    "testing",
]

try:
    __version__ = version("whorl")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0+unknown"
