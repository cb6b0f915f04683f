"""Other libraries as black boxes: their adapters, what they are, what is wrong with them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whorl

D = 64


def test_rotary_embedding_torch() -> None:
    """Right in float32; in bfloat16 wrong from position 257 on, and later float32 calls too."""
    peer = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding(dim=D)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        out: Tensor = peer.rotate_queries_or_keys(x, offset=int(positions[0]))
        return out

    report = whorl.check(rotate, D)
    found = report.identified
    assert found is not None
    assert (found.layout, found.base, found.rotary_dim) == ("interleaved", 10_000.0, D)
    assert found.exact
    assert [d.id for d in report.diagnoses] == ["bf16-positions", "fp16-positions", "history"]
    assert "Wrong from position 257 on" in str(report).replace("\n    ", " ")


def test_rotary_embedding_torch_interpolated() -> None:
    package = pytest.importorskip("rotary_embedding_torch")
    peer = package.RotaryEmbedding(dim=32, interpolate_factor=4.0, theta=500_000)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        out: Tensor = peer.rotate_queries_or_keys(x, offset=int(positions[0]))
        return out

    found = whorl.identify(rotate, D)
    assert (found.rotary_dim, found.base) == (32, 500_000.0)
    assert found.scaling == whorl.Linear(4.0)


@pytest.mark.slow
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("width", [32, 64])
def test_onnx_reference_operator(interleaved: bool, width: int) -> None:
    onnx = pytest.importorskip("onnx")
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    angles = np.arange(5000)[:, None] * 10_000.0 ** -(np.arange(0, width, 2) / width)
    node = onnx.helper.make_node(
        "RotaryEmbedding",
        ["x", "cos", "sin", "positions"],
        ["y"],
        interleaved=int(interleaved),
        rotary_embedding_dim=width,
    )
    value = onnx.helper.make_tensor_value_info
    kinds = [("x", 1), ("cos", 1), ("sin", 1), ("positions", 7)]
    graph = onnx.helper.make_graph(
        [node], "rotary", [value(*kind, None) for kind in kinds], [value("y", 1, None)]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    run = evaluator(model).run

    def rotate(x: Any, positions: Any) -> Any:
        assert x.dtype == np.float32
        assert positions.ndim == 2
        cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
        return run(None, {"x": x, "cos": cos, "sin": sin, "positions": positions})[0]

    found = whorl.identify(rotate, D)
    assert found.layout == ("interleaved" if interleaved else "half")
    assert (found.rotary_dim, found.base) == (width, 10_000.0)
    assert found.exact


@pytest.mark.parametrize("traditional", [False, True])
def test_mlx(traditional: bool) -> None:
    mx = pytest.importorskip("mlx.core")

    def rotate(x: Any, positions: Any) -> Any:
        given, first = mx.array(x.astype(np.float32)), int(positions[0])
        out = mx.fast.rope(
            given, 32, traditional=traditional, base=1e6, scale=0.5, offset=first, stream=mx.cpu
        )
        return np.array(out).astype(x.dtype)

    found = whorl.identify(rotate, D)
    assert found.layout == ("interleaved" if traditional else "half")
    assert (found.rotary_dim, found.base) == (32, 1e6)
    assert found.scaling == whorl.Linear(2.0)
    assert found.error < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_timm(timm: Any, half: bool) -> None:
    """The function, with tables of ours; and the module of one row, where the column turns."""

    def apply(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        embedding = torch.cat((sin, cos), dim=-1)
        turned = (timm.apply_rot_embed_cat(x, embedding, half=half) for x in (q, k))
        q, k = turned
        return q, k

    found = whorl.identify(apply, D, kind="cos_sin")
    assert found.layout == ("half" if half else "interleaved")
    assert found.exact
    assert whorl.check(apply, D, kind="cos_sin").ok
    peer = timm.RotaryEmbeddingCat(
        D, temperature=100.0, in_pixels=False, feat_shape=None, rotate_half=half
    )

    def column(x: Tensor, positions: Tensor) -> Tensor:
        table = peer.get_embed([1, int(positions.max()) + 1])[positions]
        out: Tensor = timm.apply_rot_embed_cat(x, table, half=half)
        return out

    found = whorl.identify(column, D)
    assert found.error < 1e-5, str(found)
    assert [abs(f) for f in found.inv_freq if f] == pytest.approx(
        [100.0 ** (-i / 16) for i in range(16)], rel=1e-6
    )


def test_torchscale() -> None:
    """XPos as its authors wrote it: centred on half the length, so its sizes follow the length."""
    xpos = pytest.importorskip("torchscale.component.xpos_relative_position").XPOS(D)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        flat = x.flatten(0, 1).float()
        out: Tensor = xpos(flat, offset=int(positions[0])).to(x.dtype)
        return out.view(x.shape)

    report = whorl.check(rotate, D)
    assert "position-dependent-norm" in [d.id for d in report.diagnoses]


def test_x_transformers() -> None:
    package = pytest.importorskip("x_transformers.x_transformers")
    peer = package.RotaryEmbedding(32)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        freqs, _ = peer(positions)
        out: Tensor = package.apply_rotary_pos_emb(x, freqs)
        return out

    found = whorl.identify(rotate, D)
    assert (found.layout, found.rotary_dim, found.base) == ("interleaved", 32, 10_000.0)
    assert found.exact
    report = whorl.check(rotate, D)
    assert report.identified is not None
