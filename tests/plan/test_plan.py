"""Plans on paper: counts against real models and sums by hand, choices, and what is refused."""

import json
from typing import Any

import pytest
import torch

import whorl
from whorl.cli import main
from whorl.plan import ModelSize, plan_model
from whorl.plan.encodings import build_attention
from whorl.plan.model import solve_size
from whorl.plan.page import render_lines
from whorl.plan.training import count_activations, count_operations

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
}


def test_parameters_are_those_of_llama() -> None:
    assert plan_model(LLAMA, length=8192).size.parameters == 8_030_261_248  # of Llama 3.1 8B
    tied = plan_model({**LLAMA, "tie_word_embeddings": True}, length=8)
    assert tied.size.parameters == 8_030_261_248 - 128256 * 4096


@pytest.mark.parametrize("parameters", [1e6, 1.24e8, 7e9, 7e10, 1e12])
def test_sizes_from_a_number_have_that_number(parameters: float) -> None:
    size = solve_size(parameters, {"vocabulary": 256 if parameters < 1e8 else None})
    assert abs(size.parameters / parameters - 1) < 0.01
    assert 64 <= size.width / size.layers <= 256 or parameters < 1e9
    assert solve_size(7e9, {"layers": 16, "kv_heads": 2}).layers == 16


def test_the_cache_counts_heads_and_windows() -> None:
    whole = plan_model(LLAMA, length=131072)
    assert whole.serving is not None
    assert whole.serving.cache == 32 * 2 * 8 * 128 * 2 * 131072
    assert whole.serving.cache_per_token == 32 * 2 * 8 * 128 * 2
    gemma = plan_model("gemma-3-4b", length=32768, vocabulary=262144)
    assert gemma.serving is not None
    full = sum(w is None for w in gemma.size.windows)
    assert (full, len(gemma.size.windows)) == (5, 34)
    assert gemma.serving.cache == 2 * 4 * 256 * 2 * (5 * 32768 + 29 * 1024)
    linear = plan_model(LLAMA, length=131072, attention="linear")
    assert linear.serving is not None
    assert linear.serving.cache == 4 * 32 * 32 * 128 * 129
    assert linear.serving.cache_per_token is None


def test_operations_count_every_visible_pair() -> None:
    size = ModelSize(2, 8, 2, 2, 4, 16, 10)
    matrices = 2 * (2 * 8 * 4 * 4 + 3 * 8 * 16) + 80
    attention = build_attention("nope", "softmax", size, 5)
    assert count_operations(attention) == 2 * matrices + 4 * 8 * 2 * (1 + 2 + 3 + 4 + 5) / 5
    windows = build_attention("nope", "softmax", size.limit_windows(2), 5)
    assert count_operations(windows) == 2 * matrices + 4 * 8 * 2 * (1 + 2 + 2 + 2 + 2) / 5
    assert windows.count_decoding() == 4 * 8 * 2 * 2


@pytest.mark.slow
def test_encodings_add_what_they_have() -> None:
    size = ModelSize(3, 64, 4, 4, 16, 128, 100)
    found = {n: build_attention(n, "softmax", size, 50) for n in ("rope", "t5", "shaw", "learned")}
    assert found["rope"].parameters == 0
    assert found["t5"].parameters == 3 * whorl.T5Bias(4).weight.numel()
    assert found["learned"].parameters == 50 * 64
    assert found["shaw"].score_rows == 33
    both = build_attention("t5 + rope", "softmax", size, 50)
    assert both.layer_parameters == found["t5"].layer_parameters
    deberta = build_attention("deberta", "softmax", size, 50)
    assert deberta.score_rows == 2 * 2 * 512
    assert deberta.count_scores(2) == 4 * 2 * 4 * 50 * 50
    assert build_attention("transformer_xl", "softmax", size, 50).score_rows == -1


def test_training_takes_the_fewest_devices() -> None:
    small = plan_model(parameters=1e8, length=1024)
    assert small.training is not None
    assert (small.training.devices, small.training.recompute) == (1, False)
    assert small.training.gathered == 0
    long = plan_model(LLAMA, length=1 << 20)
    assert long.training is not None
    assert long.training.recompute
    assert 1 < long.training.context <= long.training.devices
    assert long.training.memory <= 0.9 * 80e9
    assert f"each sequence over {long.training.context}" in long.training.sharding
    larger = plan_model(LLAMA, length=1 << 20, memory=141e9)
    assert larger.training is not None
    assert larger.training.devices < long.training.devices
    kept = count_activations(small.attention, 1, 1024, 2, recompute=False)
    assert small.training.activations == kept
    assert count_activations(small.attention, 1, 1024, 2, recompute=True) < kept


def test_what_does_not_fit_is_said() -> None:
    plan = plan_model(LLAMA, length=1 << 20, batch=5)
    assert plan.serving is None
    (why,) = plan.refused
    assert "fit on 32 devices, one for each head, with 80 GB each; got 1,048,576" in why
    assert f"not possible: {why}" in list(render_lines(plan))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"parameters must be given without a config, such as 7e9; got None"),
        ({"parameters": -1}, r"parameters must be a number from 1e4 to 1e15.*got -1"),
        ({"parameters": 1e6}, r"parameters must be more than 4,\d+,\d+ for 1 layers of width 64"),
        ({"parameters": 7e9, "length": 0}, r"length must be an int from 1 to 2\^32; got 0"),
        ({"parameters": 7e9, "batch": 0}, r"batch must be an int from 1"),
        ({"parameters": 7e9, "heads": 0}, r"heads must be an int from 1"),
        ({"parameters": 7e9, "kv_heads": 5}, r"kv_heads must divide heads, 32.*got 5"),
        ({"parameters": 7e9, "window": 0}, r"window must be a positive int"),
        ({"parameters": 7e9, "device": "h10"}, r"device must be one of .*did you mean 'h100'"),
        ({"parameters": 7e9, "memory": 0}, r"memory must be a number above 0; got 0"),
        ({"parameters": 7e9, "efficiency": 2}, r"efficiency must be .* at most 1; got 2"),
        ({"parameters": 7e9, "precision": "int8"}, r"precision must be 'bfloat16' or 'float32'"),
        ({"parameters": 7e9, "encoding": "rop"}, r"unknown encoding 'rop'; did you mean"),
        ({"parameters": 7e9, "encoding": "t5", "attention": "linear"}, r"attention must be 'softm"),
        ({"config": {**LLAMA, "num_experts": 8}}, r"dense model.*got one with num_experts"),
        ({"config": LLAMA, "parameters": 1e9}, r"parameters must be left out with a config"),
        ({"config": {"model_type": "bloom", "hidden_size": 64, "n_head": 4}}, r"layers must be g"),
        (
            {"config": {"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 2}},
            r"encoding must be given, because the config says of no rotary embedding",
        ),
    ],
    ids=str,
)
def test_bad_input_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_model(**{"length": 128, **options})


def test_the_command_prints_a_page_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "llama-3.1-8b", "--length", "128k", "--parameters", "8.03e9"]
    assert main([*line, "--vocabulary", "128256"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Computed from sizes, not measured.\n")
    assert "8.03 B parameters: 32 layers of width 4,096, 32 heads of 128," in page
    assert "MLP 14,336," in page
    assert "assumed, because nothing says it: intermediate_size" not in page
    assert max(map(len, page.splitlines())) <= 100
    assert main(["plan", "--parameters", "7e9", "--length", "4k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["computed"] is True
    assert found["serving"]["devices"] == 1
    assert main(["plan", "--length", "4k"]) == 2
    assert "--parameters must be given without a config" in capsys.readouterr().err


def test_counting_allocates_nothing() -> None:
    before = torch.get_rng_state()
    plan_model(parameters=1e12, length=1 << 20, encoding="learned")
    assert torch.equal(before, torch.get_rng_state())
