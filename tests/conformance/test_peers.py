"""Equal to what others compute, where they are right: transformers, the ONNX reference operator."""

from typing import Any

import pytest
import torch

import whorl
from tests.peers import needs_transformers_5

LENGTH = 37


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def llama(head_dim: int, **parameters: Any) -> Any:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, **parameters},
    )
    return llama.LlamaRotaryEmbedding(config), llama.apply_rotary_pos_emb


@pytest.mark.parametrize("head_dim", [8, 64, 128])
def test_hugging_face_llama_bit_for_bit_in_float32_mode(head_dim: int) -> None:
    module, apply = llama(head_dim)
    q, k = random(2, 4, LENGTH, head_dim), random(2, 2, LENGTH, head_dim, seed=1)
    positions = torch.arange(LENGTH) + torch.tensor([[0], [100_000]])
    cos, sin = module(q, positions)
    rope = whorl.RoPE(head_dim, precision="float32")
    assert torch.equal(
        torch.cat(rope.tables(positions), -1),
        torch.cat((cos[..., : head_dim // 2], sin[..., : head_dim // 2]), -1),
    )
    want_q, want_k = apply(q, k, cos, sin)
    got_q, got_k = rope(q, k, positions)
    torch.testing.assert_close(got_q, want_q, rtol=0, atol=1e-6)
    torch.testing.assert_close(got_k, want_k, rtol=0, atol=1e-6)


@needs_transformers_5
def test_hugging_face_linear() -> None:
    module, _ = llama(64, rope_type="linear", factor=8.0)
    rope = whorl.RoPE(64, scaling=whorl.Linear(8.0), precision="float32")
    assert torch.equal(rope.frequencies().inv_freq.float(), module.inv_freq)


@needs_transformers_5
@pytest.mark.parametrize("length", [10, 64, 65, 200, 5000])
def test_hugging_face_dynamic_ntk(length: int) -> None:
    module, _ = llama(64, rope_type="dynamic", factor=4.0)
    module(random(1, 1, 1, 64), torch.arange(length).unsqueeze(0))  # it adapts as it sees positions
    scaling = whorl.DynamicNTK(factor=4.0, original_context=64)
    got = whorl.RoPE(64, scaling=scaling).frequencies(length).inv_freq
    torch.testing.assert_close(got.float(), module.inv_freq, rtol=2e-6, atol=0)


@needs_transformers_5
def test_short_rows_do_not_change_with_long_batch_mates_unlike_hugging_face() -> None:
    module, apply = llama(64, rope_type="dynamic", factor=4.0)
    rope = whorl.RoPE(64, scaling=whorl.DynamicNTK(factor=4.0, original_context=64))
    q = random(2, 4, 8, 64)
    together = torch.arange(8) + torch.tensor([[0], [500]])
    alone = rope.rotate(q[:1], together[:1])
    assert torch.equal(rope.rotate(q, together)[:1], alone)
    cos, sin = module(q, together)
    theirs, _ = apply(q, q, cos, sin)
    assert float((theirs[:1] - alone).abs().max()) > 0.1


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [8, 16])
def test_onnx_reference_operator(layout: whorl.Layout, rotary_dim: int) -> None:
    onnx = pytest.importorskip("onnx")
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    rope = whorl.RoPE(16, layout=layout, rotary_dim=rotary_dim)
    x, positions = random(2, 3, 5, 16), torch.tensor([[0, 1, 2, 3, 4], [7, 9, 11, 40, 2]])
    cos, sin = rope.tables(torch.arange(64))
    node = onnx.helper.make_node(
        "RotaryEmbedding",
        ["x", "cos", "sin", "positions"],
        ["y"],
        interleaved=int(layout == "interleaved"),
        rotary_embedding_dim=rotary_dim,
    )
    kinds = [("x", 1, [2, 3, 5, 16]), ("cos", 1, None), ("sin", 1, None), ("positions", 7, [2, 5])]
    inputs = [onnx.helper.make_tensor_value_info(*kind) for kind in kinds]
    outputs = [onnx.helper.make_tensor_value_info("y", 1, None)]
    graph = onnx.helper.make_graph([node], "rotary", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    feed = {"x": x, "cos": cos, "sin": sin, "positions": positions}
    (want,) = evaluator(model).run(None, {name: t.numpy() for name, t in feed.items()})
    torch.testing.assert_close(rope.rotate(x, positions), torch.from_numpy(want), rtol=0, atol=1e-6)


def test_rotary_embedding_torch_agrees_in_float32_and_is_wrong_in_bfloat16() -> None:
    theirs = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding(dim=64)
    rope = whorl.RoPE(64, layout="interleaved")
    x = random(1, 2, 600, 64)
    exact = rope.rotate(x.double())
    torch.testing.assert_close(theirs.rotate_queries_or_keys(x).double(), exact, rtol=0, atol=1e-3)
    half = x.bfloat16()
    exact = rope.rotate(half.double())
    fresh = type(theirs)(dim=64)
    assert float((fresh.rotate_queries_or_keys(half).double() - exact).abs().max()) > 0.5
    error = float((rope.rotate(half).double() - exact).abs().max())
    assert error <= whorl.testing.compute_rounding_tolerance(exact, torch.bfloat16)
