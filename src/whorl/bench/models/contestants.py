"""Contestants of the benchmark of models: the same model as it is, and with whorl installed.

Where positions are a bias, a third one has whorl and no positions: what a bias that costs nothing
would gain.

Each has a process of its own.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl.bench.contestants import Contestant, ContestantMakers

from .plan import BOUND, STOCK, Cell
from .process import ModelProcess

__all__ = ["build_call", "build_contestants", "build_model"]

_LAYERS, _WIDTH, _HEADS, _VOCAB = 2, 768, 12, 1000
_SIZES: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": _WIDTH, "n_head": _HEADS, "n_layer": _LAYERS},
    "mpt": {"d_model": _WIDTH, "n_heads": _HEADS, "n_layers": _LAYERS, "max_seq_len": 16384},
    "t5": {"d_model": _WIDTH, "num_heads": _HEADS, "num_layers": _LAYERS, "d_ff": 2048},
    "deberta-v2": {
        "hidden_size": _WIDTH,
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "intermediate_size": 4 * _WIDTH,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "llama": {
        "hidden_size": _WIDTH,
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "intermediate_size": 2048,
        "max_position_embeddings": 16384,
    },
}
_NEAR = 1e-4  # of the largest number in the output
_STEPS = 8  # tokens of one decode call


def build_model(kind: str) -> Any:
    """A model of two layers with random weights, ready to be run."""
    transformers = import_extra("transformers", by="whorl bench models", extra="hf")
    config = transformers.AutoConfig.for_model(kind, vocab_size=_VOCAB, **_SIZES[kind])
    build = transformers.T5EncoderModel if kind == "t5" else transformers.AutoModel.from_config
    torch.manual_seed(0)
    return build(config).eval()


def build_contestants(cell: Cell, processes: ExitStack) -> ContestantMakers:
    """The model as transformers runs it, then with whorl; ``processes`` ends those of all."""
    expected: list[Tensor] = []
    return [
        (name, partial(_build_contestant, name, cell, processes, expected))
        for name in cell.contestants
    ]


def build_call(name: str, cell: Cell) -> tuple[Callable[[], Tensor], int]:
    """The work of a cell, and how many tokens after another it is: 1 unless it decodes."""
    model = build_model(cell.model)
    if name != STOCK:
        from whorl import NoPE, hf

        hf.install(model, NoPE() if name == BOUND else None)
    source = torch.Generator().manual_seed(0)
    tokens = torch.randint(_VOCAB, (cell.batch, cell.length + _STEPS), generator=source)
    if cell.work == "decode":
        return _build_decode(model, tokens, cell.length), _STEPS
    tokens = tokens[:, : cell.length]
    if cell.work == "training":
        return partial(_train, model, tokens), 1
    return partial(_run, model, tokens), 1


@torch.no_grad()
def _run(model: Any, tokens: Tensor) -> Tensor:
    found: Tensor = model(input_ids=tokens).last_hidden_state
    return found


def _train(model: Any, tokens: Tensor) -> Tensor:
    """Forward and backward; returns the gradients of the embedding.

    The gradient of the output is random: that of its norm would be 0 after the last normalization.
    """
    model.zero_grad(set_to_none=True)
    out = model(input_ids=tokens).last_hidden_state
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(0)))
    found: Tensor = model.get_input_embeddings().weight.grad
    return found


def _build_decode(model: Any, tokens: Tensor, length: int) -> Callable[[], Tensor]:
    """Some tokens, one by one, after ``length`` others in a cache, which is cut back to them."""
    with torch.no_grad():
        cache = model(input_ids=tokens[:, :length], use_cache=True).past_key_values

    @torch.no_grad()
    def decode() -> Tensor:
        steps = []
        for n in range(length, length + _STEPS):
            out = model(input_ids=tokens[:, n : n + 1], past_key_values=cache, use_cache=True)
            steps.append(out.last_hidden_state)
        cache.crop(-_STEPS)
        return torch.cat(steps, 1)

    return decode


def _build_contestant(
    name: str, cell: Cell, processes: ExitStack, expected: list[Tensor]
) -> Contestant:
    model = processes.enter_context(ModelProcess(partial(build_call, name, cell), cell.threads))

    def find_problem() -> str | None:
        found = model.compute()
        if name == STOCK:
            expected.append(found)
            return None
        if name == BOUND:
            return None  # another model, which is not compared
        difference = float((found - expected[0]).abs().max() / expected[0].abs().max())
        return None if difference <= _NEAR else f"differs from transformers by {difference:.1e}"

    return Contestant(name, model.run, find_problem, model.units)
