"""Checkpoints: which layout their q and k have, and how to give them the other.

    detect     half or interleaved, from the weights alone, with a confidence
      evidence                    how weights show it, and how sure that is
      sources, weights            the heads of q and k, a few rows at a time
      gguf_weights                the same from GGUF
    convert    the same weights in the other layout, without loss, in a new folder
      plan, layout, reorder       which rows move where
      whole, layout_checks        what must hold before anything is written
      output, mark, config_file   a folder that appears complete, and says its layout
      verify                      the output, converted back and compared

    shards, safetensors_file    files and their headers, nothing trusted
    names, sizes                which tensors are q and k, and how wide heads are

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
