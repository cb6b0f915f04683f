"""whorl: position encodings for PyTorch Transformers, exact and fast, behind one interface.

>>> import torch, whorl
>>> rope = whorl.RoPE(64)
>>> q, k = rope(torch.randn(1, 8, 16, 64), torch.randn(1, 2, 16, 64))
>>> whorl.make("alibi", num_heads=8)
ALiBi(8)
"""

from importlib.metadata import PackageNotFoundError, version

from . import analysis, positions, testing
from .attention import (
    KVCache,
    LinearState,
    MultiheadAttention,
    attention,
    linear_attention,
    score_mod,
    shifted_attention,
)
from .checking import check, identify
from .configs import read_config
from .encodings import (
    ALiBi,
    AxialRoPE,
    Card,
    Composition,
    Config,
    DeBERTa,
    Encoding,
    Kerple,
    Learned,
    MRoPE,
    NoPE,
    RelativeBias,
    RoPE,
    Shaw,
    Sinusoidal,
    T5Bias,
    TransformerXL,
    XPos,
    from_dict,
    make,
    names,
    register,
)
from .kernels.ops import Impl, Layout
from .kernels.tables import Precision
from .scaling import (
    NTK,
    Description,
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    Frequencies,
    Ladder,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    PairDescription,
    Proportional,
    Scaling,
    YaRN,
)

__all__ = [
    "NTK",
    "ALiBi",
    "AxialRoPE",
    "Card",
    "Composition",
    "Config",
    "DeBERTa",
    "Description",
    "DynamicLinear",
    "DynamicNTK",
    "DynamicYaRN",
    "Encoding",
    "Frequencies",
    "Impl",
    "KVCache",
    "Kerple",
    "Ladder",
    "Layout",
    "Learned",
    "Linear",
    "LinearState",
    "Llama3",
    "LongRoPE",
    "MRoPE",
    "MultiheadAttention",
    "NTKByParts",
    "NoPE",
    "PairDescription",
    "Precision",
    "Proportional",
    "RelativeBias",
    "RoPE",
    "Scaling",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "TransformerXL",
    "XPos",
    "YaRN",
    "__version__",
    "analysis",
    "attention",
    "check",
    "from_dict",
    "identify",
    "linear_attention",
    "make",
    "names",
    "positions",
    "read_config",
    "register",
    "score_mod",
    "shifted_attention",
    "testing",
]

try:
    __version__ = version("whorl")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0+unknown"
