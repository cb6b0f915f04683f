"""A Llama of the lab, converted to Meta's layout and run in complex numbers: equal logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.kernels import reference
from whorl.lab.config import ModelConfig
from whorl.lab.export import export
from whorl.lab.model import Model
from whorl.weights import convert

from .made import load

pytest.importorskip("safetensors")


def built(**shape: Any) -> Model:
    """A model whose every weight and position shows in its logits."""
    config = ModelConfig(**{"layers": 2, "width": 64, "heads": 4, "encoding": "rope", **shape})
    model = Model(config, vocab=256, longest=128)
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=source)
            weight.copy_(noise / config.width**0.5 if weight.dim() == 2 else 1 + 0.3 * noise)
    return model.eval()


def meta_llama(folder: Path, tokens: Tensor) -> Tensor:
    """Logits by Llama's published formulas, with pairs of neighbours as complex numbers."""
    config = json.loads((folder / "config.json").read_text())
    weights = load(folder / "model.safetensors")
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    base, eps = config["rope_parameters"]["rope_theta"], config["rms_norm_eps"]
    angles = torch.arange(tokens.shape[1])[:, None] * reference.compute_inv_freq(
        config["head_dim"], base
    )

    def norm(x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weights[f"{name}.weight"]

    def turned(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    x = weights["model.embed_tokens.weight"][tokens]
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        y = norm(x, f"{layer}.input_layernorm")
        q, k, v = (
            F.linear(y, weights[f"{layer}.self_attn.{p}_proj.weight"])
            .unflatten(-1, (-1, config["head_dim"]))
            .transpose(1, 2)
            for p in "qkv"
        )
        k, v = (one.repeat_interleave(heads // groups, dim=1) for one in (turned(k), v))
        scores = turned(q) @ k.transpose(-1, -2) / config["head_dim"] ** 0.5
        scores = scores + torch.full_like(scores, float("-inf")).triu(1)
        mixed = scores.softmax(-1).float() @ v
        x = x + F.linear(
            mixed.transpose(1, 2).flatten(2), weights[f"{layer}.self_attn.o_proj.weight"]
        )
        y = norm(x, f"{layer}.post_attention_layernorm")
        gate, up = (F.linear(y, weights[f"{layer}.mlp.{p}_proj.weight"]) for p in ("gate", "up"))
        x = x + F.linear(F.silu(gate) * up, weights[f"{layer}.mlp.down_proj.weight"])
    return F.linear(norm(x, "model.norm"), weights["lm_head.weight"])


@pytest.mark.parametrize("shape", [{}, {"kv_heads": 2}, {"kv_heads": 1, "layers": 3}], ids=str)
@torch.no_grad()
def test_logits_are_equal(tmp_path: Path, shape: dict[str, Any]) -> None:
    model = built(**shape)
    tokens = torch.randint(0, 256, (2, 96), generator=torch.Generator().manual_seed(2))
    export(model, tmp_path / "half", length=128)
    convert(tmp_path / "half", tmp_path / "meta", to="interleaved", check=True)
    want = model(tokens)
    assert float((meta_llama(tmp_path / "meta", tokens) - want).abs().max()) <= 1e-5
    # And it takes the conversion to get there.
    assert float((meta_llama(tmp_path / "half", tokens) - want).abs().max()) > 1e-2
