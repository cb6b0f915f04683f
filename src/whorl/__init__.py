"""whorl: position encodings for PyTorch Transformers, exact and fast, behind one interface.

>>> import torch, whorl
>>> rope = whorl.RoPE(64)
>>> q, k = rope(torch.randn(1, 8, 16, 64), torch.randn(1, 2, 16, 64))
>>> whorl.make("alibi", num_heads=8)
ALiBi(8)

All names are loaded when they are first asked for: ``import whorl`` itself does not load torch.
"""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        analysis,
        bench,
        configs,
        extend,
        finetune,
        functions,
        hf,
        info,
        lab,
        parallel,
        plan,
        plots,
        positions,
        testing,
        weights,
    )
    from .attention import (
        KVCache,
        LinearState,
        MultiheadAttention,
        PartialAttention,
        RandomFeatures,
        attention,
        linear_attention,
        merge_attention,
        partial_attention,
        score_mod,
        shifted_attention,
    )
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
    from .functions.check import check
    from .functions.identify import identify
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
    from .types import Impl, Layout, Precision

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
    "PartialAttention",
    "Precision",
    "Proportional",
    "RandomFeatures",
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
    "configs",
    "extend",
    "finetune",
    "from_dict",
    "functions",
    "hf",
    "identify",
    "info",
    "lab",
    "linear_attention",
    "make",
    "merge_attention",
    "names",
    "parallel",
    "partial_attention",
    "plan",
    "plots",
    "positions",
    "read_config",
    "register",
    "score_mod",
    "shifted_attention",
    "testing",
    "weights",
]

try:
    __version__ = version("whorl")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0+unknown"

#: Where the names of ``__all__`` that are no modules are looked for, in this order: scalings have a
#: registry of their own, whose ``names`` and ``make`` are not the ones meant here.
_PACKAGES = ("encodings", "scaling", "attention", "types", "configs", "functions")


class _Root(ModuleType):
    """This module, whose name ``attention`` stays the function.

    Python would bind it to the package of that name as soon as anything in there is imported.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name == "attention" and isinstance(value, ModuleType):
            value = value.attention
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Root

if not TYPE_CHECKING:  # a type checker that saw it would let any misspelt name pass

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        if name != "attention" and find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        for package in _PACKAGES:
            found = import_module(f"{__name__}.{package}")
            if name in found.__all__:
                globals()[name] = getattr(found, name)
                return globals()[name]
        raise AssertionError(f"{name} is in __all__, and no package has it")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
