"""Norms of queries and keys in the lab's model, its settings, and what charts see of them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from whorl.lab import Model, ModelConfig, RunConfig, train
from whorl.lab.attention import compute_attention
from whorl.lab.compare._view import ComparisonView
from whorl.lab.optimization import group_parameters


def build(encoding: Any = "rope", **options: Any) -> Model:
    config = ModelConfig(encoding=encoding, layers=1, width=32, heads=2, **options)
    model = Model(config, vocab=16, longest=32)
    model.reset_parameters(0)
    source = torch.Generator().manual_seed(1)
    for weight in group_parameters(model)["norms"].values():
        weight.data.uniform_(0.5, 2.0, generator=source)
    return model.double()


@pytest.mark.parametrize("qk_norm", ["before", "after"])
@pytest.mark.parametrize("encoding", ["rope", "learned+rope(base=100)", "mrope", "rope+alibi"])
def test_a_layer_attends_as_multihead_attention_does(encoding: str, qk_norm: Any) -> None:
    model = build(encoding, qk_norm=qk_norm, kv_heads=1)
    block: Any = model.blocks[0]
    inside = [part for part in model.encoding.parts if part.hooks != {"input"}]
    rotation = inside[0] if len(inside) == 1 else inside[0] + inside[1]
    layer = whorl.MultiheadAttention(
        32, 2, num_kv_heads=1, encoding=rotation, bias=False, causal=True, qk_norm=qk_norm
    ).double()
    layer.q_norm.eps = layer.k_norm.eps = 1e-5  # that of the lab's other norms
    q, k, v = block.qkv.weight.split((32, 16, 16))
    weights = {"q_proj": q, "k_proj": k, "v_proj": v, "out_proj": block.out.weight}
    weights |= {"q_norm": block.q_norm.weight, "k_norm": block.k_norm.weight}
    state = {f"{name}.weight": weight for name, weight in weights.items()}
    layer.load_state_dict(layer.state_dict() | state)
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2)).double()
    axes = model.encoding.position_axes
    positions = None if axes == 1 else torch.arange(9).expand(axes, -1)
    found = block.out(block._attend(x, model.encoding, positions, None, None))
    torch.testing.assert_close(found, layer(x, positions=positions), rtol=1e-10, atol=1e-10)


def test_without_a_norm_weights_have_their_names() -> None:
    names = {name for name, _ in build(qk_norm="none").named_parameters()}
    more = {name for name, _ in build(qk_norm="before").named_parameters()}
    assert more - names == {"blocks.0.q_norm.weight", "blocks.0.k_norm.weight"}
    model = build("alibi", qk_norm="before", attention="linear")
    assert model(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()
    assert model.name_part("blocks.0.q_norm.weight") == "norms"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qk_norm": "both"}, r"model.qk_norm 'both' is unknown\. Known: none, before, after\."),
        (
            {"qk_norm": "after", "attention": "linear"},
            r"model.qk_norm must be 'none' or 'before' with linear attention, .*; got 'after'\.",
        ),
        ({"qk_norm": "after", "encoding": "alibi"}, r"model: qk_norm='after' needs an encoding th"),
        ({"qk_norm": "after", "encoding": "xpos"}, r"model: qk_norm='after' needs a rotation that"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_attention_weights_of_a_run_are_those_of_its_model(
    small: RunConfig, tmp_path: Path
) -> None:
    model = dataclasses.replace(small.model, qk_norm="after")
    run = train(dataclasses.replace(small, model=model), tmp_path / "run")
    _, (layer,) = compute_attention(tmp_path / "run", length=16, windows=2)
    rms = layer.q.square().mean(-1).sqrt()
    torch.testing.assert_close(rms, torch.ones_like(rms), rtol=1e-2, atol=1e-2)
    trained: Any = run.load_model()
    block = trained.blocks[0]
    weight = (block.q_norm.weight * block.k_norm.weight).detach()
    assert float((weight - 1).abs().max()) > 0.01
    v = torch.randn(2, 2, 16, 16)
    want = whorl.attention(layer.q, layer.k, v, layer.encoding, causal=True, query_weight=weight)
    torch.testing.assert_close(layer.weights @ v, want, rtol=1e-4, atol=1e-5)


def test_the_report_names_the_norm() -> None:
    settings = {"layers": 1, "width": 32}
    assert ComparisonView({"settings": settings}).shape == "1 layer, width 32"
    words = ComparisonView({"settings": {**settings, "qk_norm": "after"}}).shape
    assert words == "1 layer, width 32, queries and keys normalized after rotation"
