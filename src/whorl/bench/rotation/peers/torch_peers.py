"""Rotations that are written in torch: Hugging Face, Meta, rotary-embedding-torch, torchtune.

Hugging Face transformers: ``apply_rotary_pos_emb``, as written and under torch.compile; that of
Llama for the half layout. Several models have an interleaved one; the fastest is used: that of
Cohere for float32, that of GLM for half types, which Cohere converts to float32.
"""

import importlib
import warnings
from typing import Any

import torch
from torch import Tensor

from whorl.bench.rotation.case import BASE, RotationCase
from whorl.bench.rotation.plan import Cell

from .base import Peer, PeerCall, build_torch_call

__all__ = ["HuggingFace", "HuggingFaceCompiled", "Meta", "RotaryEmbeddingTorch", "Torchtune"]


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


def _build_tables(case: RotationCase) -> tuple[Tensor, Tensor]:
    """cos and sin [1, T, D]; GLM uses their first half and repeats it itself."""
    glm = case.cell.layout == "interleaved" and case.cell.dtype != "float32"
    angles = torch.cat((case.angles,) * 2, dim=-1) if glm else case.expand_angles()
    return angles.cos().to(case.dtype)[None], angles.sin().to(case.dtype)[None]


class Meta(Peer):
    """``view_as_complex(x) * freqs_cis`` in float32, with precomputed complex64 factors.

    Written here again, because the package of Meta's Llama models needs a GPU stack.
    """

    name = "meta"
    title = "Meta complex"
    layouts = ("interleaved",)
    note = "on contiguous [B, T, H, D]"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        ones = torch.ones_like(case.angles)
        factors = torch.polar(ones, case.angles).to(torch.complex64)[None, :, None]  # [1, T, 1, P]

        def rotate(x: Tensor) -> Tensor:
            numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(numbers * factors).flatten(-2).type_as(x)

        return [build_torch_call(case, lambda q, k: (rotate(q), rotate(k)), heads_last=True)]


class RotaryEmbeddingTorch(Peer):
    """``apply_rotary_emb``, which caches angles and computes cos and sin at every call."""

    name = "ret"
    title = "rotary-embedding-torch"
    module = "rotary_embedding_torch"
    package = "rotary-embedding-torch"
    layouts = ("interleaved",)
    own_angles = True
    note = "given the angles of its cache; cos and sin are taken at every call"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        from rotary_embedding_torch import apply_rotary_emb

        freqs = case.expand_angles().to(torch.float32)  # [T, D]
        return [
            build_torch_call(
                case, lambda q, k: (apply_rotary_emb(freqs, q), apply_rotary_emb(freqs, k))
            )
        ]


class Torchtune(Peer):
    """Interleaved layout on [B, T, H, D], in float32, with a table of its own."""

    name = "torchtune"
    title = "torchtune"
    module = "torchtune.modules"
    package = "torchtune"
    layouts = ("interleaved",)
    own_angles = True
    note = "on contiguous [B, T, H, D]; decode passes input_pos"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        from torchtune.modules import RotaryPositionalEmbeddings

        shape = case.cell.shape
        rope = RotaryPositionalEmbeddings(shape.head_dim, shape.first + shape.length, int(BASE))
        at = case.positions.expand(shape.batch, -1) if shape.first else None  # [B, T]
        return [
            build_torch_call(
                case,
                lambda q, k: (rope(q, input_pos=at), rope(k, input_pos=at)),
                heads_last=True,
            )
        ]
