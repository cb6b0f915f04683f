"""Weights of models: which layout their q and k have, and how to convert them to the other one.

    detect     half or interleaved, from the weights alone, with a confidence
      evidence                           how weights show a layout, and how sure that is
      layers, gguf                       the heads of q and k, a few rows at a time
    convert    the same weights in the other layout, without loss, in a new folder
      plan, layout                       which rows move where
      completeness, layout_checks        what must hold before anything is written
      output, layout_mark, config_file   a folder that appears complete, and says its layout
      verify                             the output, converted back and compared

    shards, safetensors_file    files and their headers; nothing in them is trusted
    tensor_names, sizes         which tensors are q and k, and how wide heads are

Safetensors files are read by a parser of our own, which needs torch only. GGUF files can be
detected but not converted; quantised ones need the extra ``gguf``.
"""

from .convert import Conversion, convert
from .detect import Detection, LayerFinding, detect
from .sizes import Stated
from .tensor_names import Pattern, parse_pattern
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
