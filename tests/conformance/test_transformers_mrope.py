"""MRoPE and the positions of mixed sequences equal those of the models in transformers."""

import importlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.peers import needs_transformers_5
from whorl.encodings import MRoPE
from whorl.positions import Multimodal, from_token_types
from whorl.scaling import DynamicNTK

pytestmark = needs_transformers_5

LENGTH = 19


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model(name: str) -> Any:
    pytest.importorskip("transformers")
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


# The model, its rotary class and its config, the head, and what MRoPE needs to be the same.
INTERLEAVED = {"order": "interleaved", "sections": (24, 20, 20), "base": 5e5}
PARTLY = {"order": "interleaved", "sections": (11, 11, 10), "base": 1e6, "rotary_dim": 64}
FAMILIES: list[tuple[str, str, str, int, dict[str, Any]]] = [
    ("qwen2_vl", "Qwen2VLRotaryEmbedding", "Qwen2VLTextConfig", 128, {"base": 1e6}),
    ("qwen2_5_vl", "Qwen2_5_VLRotaryEmbedding", "Qwen2_5_VLTextConfig", 128, {"base": 1e6}),
    ("qwen2_5_omni", "Qwen2_5OmniRotaryEmbedding", "Qwen2_5OmniTextConfig", 128, {"base": 1e6}),
    ("paddleocr_vl", "PaddleOCRRotaryEmbedding", "PaddleOCRTextConfig", 128, {"base": 5e5}),
    ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", "Qwen3VLTextConfig", 128, INTERLEAVED),
    ("qwen3_vl_moe", "Qwen3VLMoeTextRotaryEmbedding", "Qwen3VLMoeTextConfig", 128, INTERLEAVED),
    (
        *("qwen3_omni_moe", "Qwen3OmniMoeThinkerTextRotaryEmbedding", "Qwen3OmniMoeTextConfig"),
        *(128, {**INTERLEAVED, "base": 1e6}),
    ),
    ("cosmos3_edge", "Cosmos3EdgeTextRotaryEmbedding", "Cosmos3EdgeTextConfig", 128, INTERLEAVED),
    ("qwen4_exp", "Qwen4ExpTextRotaryEmbedding", "Qwen4ExpTextConfig", 256, PARTLY),
    ("qwen3_5", "Qwen3_5TextRotaryEmbedding", "Qwen3_5TextConfig", 256, PARTLY),
    ("qwen3_5_moe", "Qwen3_5MoeTextRotaryEmbedding", "Qwen3_5MoeTextConfig", 256, PARTLY),
    (
        *("glm4v", "Glm4vTextRotaryEmbedding", "Glm4vTextConfig", 128),
        {"sections": (8, 12, 12), "layout": "interleaved", "rotary_dim": 64},
    ),
    (
        *("glm4v_moe", "Glm4vMoeTextRotaryEmbedding", "Glm4vMoeTextConfig", 128),
        {"sections": (8, 12, 12), "rotary_dim": 64},
    ),
    (
        *("glm_image", "GlmImageTextRotaryEmbedding", "GlmImageTextConfig", 128),
        {"sections": (8, 12, 12), "rotary_dim": 64},
    ),
    (
        *("glm_ocr", "GlmOcrTextRotaryEmbedding", "GlmOcrTextConfig", 64),
        {"sections": (8, 12, 12), "layout": "interleaved"},
    ),
    (
        *("ernie4_5_vl_moe", "Ernie4_5_VLMoeTextRotaryEmbedding", "Ernie4_5_VLMoeTextConfig", 128),
        {
            "sections": (22, 22, 20),
            "axes": (1, 2, 0),
            "order": "alternating",
            "layout": "interleaved",
            "base": 5e5,
        },
    ),
]


def parameters(config_class: Any, options: dict[str, Any], head_dim: int, **more: Any) -> Any:
    width = options.get("rotary_dim", head_dim)
    rope = {
        "rope_type": "default",
        "rope_theta": options.get("base", 10_000.0),
        "mrope_section": list(options.get("sections", (16, 24, 24))),
        **({} if width == head_dim else {"partial_rotary_factor": width / head_dim}),
        **more,
    }
    sizes = {"hidden_size": 4 * head_dim, "num_attention_heads": 4, "head_dim": head_dim}
    return config_class(rope_parameters=rope, max_position_embeddings=64, **sizes)


@pytest.mark.parametrize(
    ("name", "rotary", "config", "head_dim", "options"), FAMILIES, ids=lambda v: str(v)[:24]
)
def test_rotation(
    name: str, rotary: str, config: str, head_dim: int, options: dict[str, Any]
) -> None:
    peer = model(name)
    given_config = parameters(getattr(peer, config), options, head_dim)
    q, k = (random(2, n, LENGTH, head_dim, seed=n) for n in (4, 2))
    positions = torch.randint(0, 3000, (3, 2, LENGTH), generator=torch.Generator().manual_seed(1))
    cos, sin = getattr(peer, rotary)(given_config)(q, positions)
    want = peer.apply_rotary_pos_emb(q, k, cos, sin)
    mrope = MRoPE(head_dim, precision="float32", **options)
    pairs = mrope.config.width // 2
    one_each = slice(0, pairs) if mrope.config.layout == "half" else slice(0, 2 * pairs, 2)
    for ours, theirs in zip(mrope.tables(positions), (cos, sin), strict=True):
        assert torch.equal(ours, theirs[..., one_each])
    for ours, theirs in zip(mrope(q, k, positions), want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    elsewhere = mrope.rotate(q, positions.flip(0))
    assert float((elsewhere - want[0]).abs().max()) > 0.1  # the axes matter


@pytest.mark.parametrize("layer", ["sliding_attention", "full_attention"])
def test_two_axes(layer: str) -> None:
    peer = model("neomme")
    config = peer.NeoMMEConfig()
    positions = torch.randint(0, 500, (2, 1, 7), generator=torch.Generator().manual_seed(1))
    cos, _ = peer.NeoMMERotaryEmbedding(config)(torch.zeros(1), positions, layer)
    pairs, base = cos.shape[-1] // 2, config.rope_parameters[layer]["rope_theta"]
    mrope = MRoPE(
        64,
        sections=(pairs // 2, pairs // 2),
        order="interleaved",
        rotary_dim=2 * pairs,
        base=base,
        precision="float32",
    )
    assert torch.equal(mrope.tables(positions)[0], cos[..., :pairs])


@pytest.mark.parametrize("longest", [40, 200])
def test_scaling_follows_the_largest_position_on_any_axis(longest: int) -> None:
    peer, options = model("qwen2_vl"), {"sections": (4, 6, 6)}
    config = parameters(
        peer.Qwen2VLTextConfig, options, 32, rope_type="dynamic", factor=4.0, rope_theta=1e4
    )
    positions = torch.arange(9).expand(3, 1, 9).clone()
    positions[2, 0, 4] = longest - 1
    q = random(1, 2, 9, 32)
    want, _ = peer.apply_rotary_pos_emb(q, q, *peer.Qwen2VLRotaryEmbedding(config)(q, positions))
    mrope = MRoPE(32, scaling=DynamicNTK(4.0, original_context=64), sections=(4, 6, 6))
    torch.testing.assert_close(mrope.rotate(q, positions), want, rtol=0, atol=1e-4)
    assert mrope.frequencies(longest).inv_freq.equal(mrope.frequencies().inv_freq) == (longest < 64)


def builder(name: str, model_class: str, merge: int, **vision: Any) -> Any:
    """A model's get_rope_index without the model."""
    cls = getattr(model(name), model_class)
    config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=merge, **vision))
    build = partial(cls.get_vision_position_ids, None)
    return partial(
        cls.get_rope_index, SimpleNamespace(config=config, get_vision_position_ids=build)
    )


@st.composite
def batches(draw: st.DrawFn, timestamps: bool = False) -> dict[Any, Any]:
    """Rows of text, images and videos with padding anywhere, as a processor would give them."""
    merge = draw(st.integers(1, 3))
    side, steps = st.integers(1, 4), st.integers(1, 7)
    rows: list[list[int]] = []
    grids: dict[int, list[list[int]]] = {1: [], 2: []}
    for _ in range(draw(st.integers(1, 3))):
        row = [0] * draw(st.integers(1, 4))
        for kind in draw(st.lists(st.sampled_from((1, 2)), max_size=3)):
            t, h, w = (draw(steps) if kind == 2 else 1), draw(side), draw(side)
            grids[kind].append([t, h * merge, w * merge])
            for _ in range(t if timestamps else 1):
                row += [kind] * (h * w if timestamps else t * h * w)
                row += [0] * draw(
                    st.integers(1, 3)
                )  # else two images would be one run for the peer
        rows.append(row)
    length = max(map(len, rows)) + draw(st.integers(0, 2))
    types, mask = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(2))
    for b, row in enumerate(rows):
        first = draw(st.integers(0, length - len(row)))
        types[b, first : first + len(row)] = torch.tensor(row)
        mask[b, first : first + len(row)] = 1
    tensors = {kind: torch.tensor(sizes) if sizes else None for kind, sizes in grids.items()}
    return {"merge": merge, "types": types, "mask": mask, 1: tensors[1], 2: tensors[2]}


def compare(batch: dict[Any, Any], want: tuple[Tensor, Tensor], got: Multimodal) -> None:
    assert got.positions.dtype == torch.int64
    assert torch.equal(got.positions, want[0])
    assert torch.equal(got.next_position - batch["mask"].sum(1), want[1][:, 0])


@given(batches())
@settings(max_examples=40)
def test_positions_of_qwen2_vl(batch: dict[Any, Any]) -> None:
    build = builder("qwen2_vl", "Qwen2VLModel", batch["merge"])
    types, mask = batch["types"], batch["mask"]
    want = build(types, types, batch[1], batch[2], mask)
    options = {"mask": mask, "merge": batch["merge"]}
    compare(batch, want, from_token_types(types, batch[1], batch[2], resume="side", **options))


@given(batches(), st.sampled_from((2, 4, 25)), st.floats(0.01, 4.0))
@settings(max_examples=40)
def test_positions_of_qwen2_5_vl(batch: dict[Any, Any], rate: int, seconds: float) -> None:
    build = builder("qwen2_5_vl", "Qwen2_5_VLModel", batch["merge"], tokens_per_second=rate)
    types, mask = batch["types"], batch["mask"]
    apart = torch.full((0 if batch[2] is None else len(batch[2]),), seconds)
    want = build(types, types, batch[1], batch[2], apart, mask)
    options = {"mask": mask, "merge": batch["merge"], "intervals": rate * apart}
    compare(batch, want, from_token_types(types, batch[1], batch[2], resume="side", **options))


@given(batches(timestamps=True), st.sampled_from(("qwen3_vl", "glm4v")))
@settings(max_examples=40)
def test_positions_of_qwen3_vl_and_glm4v(batch: dict[Any, Any], name: str) -> None:
    build = builder(name, {"qwen3_vl": "Qwen3VLModel", "glm4v": "Glm4vModel"}[name], batch["merge"])
    types, mask = batch["types"], batch["mask"]
    want = build(types, types, batch[1], batch[2], mask)
    options = {"mask": mask, "merge": batch["merge"], "frames": "apart"}
    for resume in ("largest", "side"):  # a frame is never longer in time than its sides
        got = from_token_types(types, batch[1], batch[2], resume=resume, **options)
        compare(batch, want, got)


def test_positions_of_ernie() -> None:
    build = builder("ernie4_5_vl_moe", "Ernie4_5_VLMoeModel", 2, temporal_merge_size=2)
    types = torch.tensor([[0, 1, 1, 0, *[2] * 6, 0, 0]])
    images, videos = torch.tensor([[1, 2, 4]]), torch.tensor([[6, 4, 2]])
    want = build(types, types, images, videos)
    got = from_token_types(types, images, videos, temporal_merge=2, resume="side")
    compare({"mask": torch.ones_like(types)}, want, got)


def test_times_are_cut_in_float32() -> None:
    """25 steps of 1.16 positions are 29 in float32; in float64 they fall short of it."""
    build = builder("qwen2_5_vl", "Qwen2_5_VLModel", 2, tokens_per_second=4)
    types, videos = torch.full((1, 26), 2), torch.tensor([[26, 2, 2]])
    for seconds in (torch.tensor([0.29]), [0.29]):
        want = build(types, types, None, videos, seconds)
        got = from_token_types(types, None, videos, intervals=[4 * float(seconds[0])])
        assert int(got.positions[0, 0, 25]) == 29
        compare({"mask": torch.ones_like(types)}, want, got)
