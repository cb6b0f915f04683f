"""whorl: position encodings for PyTorch Transformers, exact and fast, behind one interface.

>>> import torch, whorl
>>> rope = whorl.RoPE(64)
>>> q, k = rope(torch.randn(1, 8, 16, 64), torch.randn(1, 2, 16, 64))
>>> whorl.make("alibi", num_heads=8)
ALiBi(8)

Encodings and attention are loaded at once, everything else when it is first asked for.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from . import positions
from .attention import (
    KVCache,
    LinearState,
    MultiheadAttention,
    attention,
    linear_attention,
    score_mod,
    shifted_attention,
)
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

if TYPE_CHECKING:
    from . import (
        analysis,
        bench,
        checking,
        checkpoints,
        configs,
        doctor,
        info,
        inspection,
        lab,
        plots,
        testing,
    )
    from .checking.check import check
    from .checking.identify import identify
    from .configs import read_config

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
    "bench",
    "check",
    "checking",
    "checkpoints",
    "configs",
    "doctor",
    "from_dict",
    "identify",
    "info",
    "inspection",
    "lab",
    "linear_attention",
    "make",
    "names",
    "plots",
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

#: Where names lie that are loaded when they are first asked for; None: a module of that name.
_LATER = {
    **dict.fromkeys(("analysis", "bench", "checking", "checkpoints", "configs", "doctor", "info")),
    **dict.fromkeys(("inspection", "lab", "plots", "testing")),
    "check": "checking",
    "identify": "checking",
    "read_config": "configs",
}

if not TYPE_CHECKING:  # a type checker that saw it would let any misspelt name pass

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        place = _LATER[name]
        found = import_module(f"{__name__}.{place or name}")
        globals()[name] = value = found if place is None else getattr(found, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
