"""Hugging Face transformers: ``apply_rotary_pos_emb``, as written and under torch.compile.

The function of Llama for the half layout. Several models have an interleaved one; the fastest is
used: that of Cohere for float32, that of GLM for half types, which Cohere converts to float32.
"""

import importlib
import warnings
from typing import Any

import torch

from whorl.bench.rotation.case import RotationCase
from whorl.bench.rotation.plan import Cell

from .base import Peer, PeerCall, build_torch_call

__all__ = ["HuggingFace", "HuggingFaceCompiled"]


class HuggingFace(Peer):
    """The eager function; gets cos and sin in the dtype of q, as its models pass them."""

    name = "hf"
    title = "Hugging Face"
    module = "transformers.models.llama.modeling_llama"
    package = "transformers"
    note = "llama (half), cohere (interleaved float32), glm (interleaved half types)"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        cos, sin = _build_tables(case)
        apply = _find_function(case.cell)
        return [build_torch_call(case, lambda q, k: apply(q, k, cos, sin))]


class HuggingFaceCompiled(HuggingFace):
    """The same function, compiled for the shape of the cell; compile time does not count."""

    name = "hf-compiled"
    title = "HF compiled"
    note = "torch.compile(fullgraph=True, dynamic=False), compiled once per cell"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        cos, sin = _build_tables(case)
        torch.compiler.reset()  # else the cells together exceed the recompile limit
        compiled: Any = torch.compile(
            _find_function(case.cell),
            fullgraph=True,
            dynamic=False,
            # Given, so that code compiled for another thread count is not taken from a cache.
            options={"cpp.threads": case.cell.threads},
        )
        call = build_torch_call(case, lambda q, k: compiled(q, k, cos, sin))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's own
            call.call()
        return [call]


def _find_function(cell: Cell) -> Any:
    interleaved = "cohere" if cell.dtype == "float32" else "glm"
    model = "llama" if cell.layout == "half" else interleaved
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    return module.apply_rotary_pos_emb


def _build_tables(case: RotationCase) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [1, T, D]; GLM uses their first half and repeats it itself."""
    glm = case.cell.layout == "interleaved" and case.cell.dtype != "float32"
    angles = torch.cat((case.angles,) * 2, dim=-1) if glm else case.expand_angles()
    return angles.cos().to(case.dtype)[None], angles.sin().to(case.dtype)[None]
