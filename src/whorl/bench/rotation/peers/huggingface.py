"""Hugging Face transformers: ``apply_rotary_pos_emb``, as written and under torch.compile.

Llama's for the half layout. The interleaved one exists in several models; the faster is taken:
Cohere's for float32, GLM's for half types, which Cohere's turns into float32 first.
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
    """Eager; gets cos and sin ready-made in the dtype of q, as its models pass them."""

    name = "hf"
    title = "Hugging Face"
    module = "transformers.models.llama.modeling_llama"
    package = "transformers"
    note = "llama (half), cohere (interleaved float32), glm (interleaved half types)"

    def entries(self, case: RotationCase) -> list[PeerCall]:
        cos, sin = _build_tables(case)
        apply = _find_function(case.cell)
        return [build_torch_call(case, lambda q, k: apply(q, k, cos, sin))]


class HuggingFaceCompiled(HuggingFace):
    """The same function compiled for the cell's one shape; compile time is not counted."""

    name = "hf-compiled"
    title = "HF compiled"
    note = "torch.compile(fullgraph=True, dynamic=False), compiled once per cell"

    def entries(self, case: RotationCase) -> list[PeerCall]:
        cos, sin = _build_tables(case)
        torch.compiler.reset()  # else the cells of a run add up to the recompile limit
        compiled: Any = torch.compile(
            _find_function(case.cell),
            fullgraph=True,
            dynamic=False,
            # Named, so that no code compiled for another number of threads is taken from a cache.
            options={"cpp.threads": case.cell.threads},
        )
        entry = build_torch_call(case, lambda q, k: compiled(q, k, cos, sin))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's own
            entry.call()
        return [entry]


def _find_function(cell: Cell) -> Any:
    interleaved = "cohere" if cell.dtype == "float32" else "glm"
    model = "llama" if cell.layout == "half" else interleaved
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    return module.apply_rotary_pos_emb


def _build_tables(case: RotationCase) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [1, T, D]; GLM repeats the first half itself."""
    glm = case.cell.layout == "interleaved" and case.cell.dtype != "float32"
    angles = torch.cat((case.angles,) * 2, dim=-1) if glm else case.angles_by_channel()
    return angles.cos().to(case.dtype)[None], angles.sin().to(case.dtype)[None]
