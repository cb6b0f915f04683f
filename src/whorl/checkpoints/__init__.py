"""Checkpoints: which layout their q and k have, and how to give them the other.

    detect     half or interleaved, from the weights alone, with a confidence
    convert    the same weights in the other layout, without loss, in a new folder

They read safetensors with a parser of their own and need torch only; GGUF files can be judged, and
quantised ones need the extra ``gguf``.
"""

from .convert import Conversion, convert
from .detect import Detection, LayerFinding, detect
from .names import Pattern, parse_pattern
from .sizes import Stated
from .verify import Verdict

__all__ = [
    "Conversion",
    "Detection",
    "LayerFinding",
    "Pattern",
    "Stated",
    "Verdict",
    "convert",
    "detect",
    "parse_pattern",
]
