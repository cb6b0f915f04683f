"""The attention of a trained run: weights as the model itself computes them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from whorl import lab
from whorl.lab.attention import compute_attention, get_rope
from whorl.plots import catalogue


@pytest.mark.parametrize(
    ("encoding", "kind", "kv_heads"),
    [("rope", "decoder", 1), ("learned+t5", "encoder", None), ("mrope", "decoder", None)],
)
def test_weights_are_those_of_the_model(
    small: lab.RunConfig, tmp_path: Path, encoding: str, kind: Any, kv_heads: int | None
) -> None:
    model = replace(small.model, encoding=encoding, kind=kind, layers=2, kv_heads=kv_heads)
    config = replace(small, model=model)
    lab.train(config, tmp_path / "run")
    name, layers = compute_attention(tmp_path / "run", length=16, windows=2)
    assert name == f"{encoding} in run"
    assert [layer.weights.shape for layer in layers] == [(2, 2, 16, 16)] * 2
    for layer in layers:
        v = torch.randn(2, layer.k.shape[1], 16, 16)
        axes = layer.encoding.position_axes
        at = None if axes == 1 else torch.arange(16).expand(axes, -1)
        want = whorl.attention(
            layer.q, layer.k, v, layer.encoding, causal=kind == "decoder", positions=at
        )
        got = layer.weights @ v.repeat_interleave(2 // v.shape[1], 1)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_charts_of_a_run(small: lab.RunConfig, tmp_path: Path) -> None:
    lab.train(small, tmp_path / "run")
    seen = catalogue.numbers("attention", run=str(tmp_path / "run")).to_dict()
    assert seen["length"] == 32
    assert len(seen["heads"]) == 2
    found = catalogue.numbers("decay", run=str(tmp_path / "run"), length=20).to_dict()
    assert found["encoding"] == "RoPE(16)"
    assert found["scores"][2]["name"] == "q, k of rope in run"
    with pytest.raises(ValueError, match=r"length must be an int >= 2 and at most 128; got 500\."):
        compute_attention(tmp_path / "run", length=500)


def test_runs_that_have_none(small: lab.RunConfig, tmp_path: Path) -> None:
    linear = replace(small, model=replace(small.model, attention="linear"))
    lab.train(linear, tmp_path / "linear")
    with pytest.raises(
        ValueError, match=r"was trained with linear attention, which has no weights"
    ):
        compute_attention(tmp_path / "linear")
    alibi = replace(small, model=replace(small.model, encoding="alibi"))
    lab.train(alibi, tmp_path / "alibi")
    with pytest.raises(
        ValueError, match=r"trained with ALiBi\(2\), which contains no RoPE; choose a run"
    ):
        get_rope(compute_attention(tmp_path / "alibi")[1])


def test_a_hugging_face_model(small: lab.RunConfig, tmp_path: Path) -> None:
    """An exported run can be looked at as a model of transformers."""
    pytest.importorskip("transformers")
    from whorl.plots._hugging_face import compute_attention_weights

    run = lab.train(small, tmp_path / "run")
    lab.export_run(run, tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("some text to look at, and more of it")
    found = compute_attention_weights(str(tmp_path / "model"), 12, str(text))
    assert found["name"] == "model, text.txt"
    (weights,) = found["weights"]
    assert weights.shape == (1, 2, 12, 12)
    assert float(weights.triu(1).abs().max()) == 0.0
    seen = catalogue.numbers("attention", model=str(tmp_path / "model"), length=12).to_dict()
    assert seen["name"] == "model, source of argparse"
    for file in (tmp_path / "model").glob("tokenizer*"):
        file.unlink()
    assert compute_attention_weights(str(tmp_path / "model"), 5)["name"] == "model, random tokens"
    text.write_text("")
    with pytest.raises(ValueError, match=r"chart 'attention': length must be an int >= 2; got 1\."):
        compute_attention_weights(str(tmp_path / "model"), 1, str(text))
