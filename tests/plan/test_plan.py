"""Plans on paper: counts against real models and sums by hand, choices, and what is refused."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from whorl.cli import main
from whorl.plan import DEVICES, ModelSize, plan_model
from whorl.plan.calibration import CALIBRATION, Calibration
from whorl.plan.encodings import build_attention
from whorl.plan.model import solve_size
from whorl.plan.page import render_lines
from whorl.plan.serving import plan_serving
from whorl.plan.training import count_activations, count_operations

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (8, 2), (6, 2), (12, 4), (40, 8)])
@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_a_device_holds_every_key_head_that_it_needs(heads: int, kv_heads: int, kind: Any) -> None:
    """For every number of devices, counted head by head; linear attention has a state for each."""
    size = ModelSize(2, 8 * heads, heads, kv_heads, 8, 64, 100)
    attention = build_attention("nope", kind, size, 1000)
    counts = [n for n in range(1, heads + 1) if heads % n == 0]
    memory = []
    for count in counts:
        each = heads // count
        devices = [range(n, n + each) for n in range(0, heads, each)]
        needed = max(len({head * kv_heads // heads for head in mine}) for mine in devices)
        held = needed / kv_heads if kind == "softmax" else 1 / count
        memory.append(2 * size.parameters / count + attention.count_cache(2) * held)
    for count, most in zip(counts, memory, strict=True):
        found = plan_serving(attention, 1, replace(DEVICES["h100"], memory=1.001 * most / 0.9), 2)
        fewest = next(n for n, bytes_ in zip(counts, memory, strict=True) if bytes_ <= 1.001 * most)
        assert found.devices == fewest <= count
        assert found.memory == pytest.approx(memory[counts.index(fewest)])
        assert found.token_seconds >= found.memory / (0.8 * 3.35e12)


def test_errors_and_devices_are_those_of_the_files() -> None:
    """Errors are those of the file of the measurement, and the page lists all devices."""
    measured = json.loads((ROOT / CALIBRATION.source).read_text())
    for name, error in measured["sizes"]["large"]["error"].items():
        if name != "parameters":
            assert getattr(CALIBRATION, name) == pytest.approx(error, abs=5e-4)
    assert round(measured["flops"], -9) == DEVICES["cpu"].flops
    less = Calibration("", "x", -0.2, 0.5).list_sentences()[1]
    assert less.endswith(": computed time 20 % below, memory 50 % above the measured.")
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    rows = [
        line.strip("| ").split(" | ") for line in re.findall(r"^\| [\w-]+ \| \d+ GB.*", page, re.M)
    ]
    listed = {}
    for name, memory, *numbers, source in rows:
        values = [float(memory.removesuffix(" GB")) * 1e9, *map(float, numbers)]
        listed[name] = [name, *values, source]
    assert listed == {name: list(asdict(device).values()) for name, device in DEVICES.items()}


def test_float32_and_slow_links_take_longer() -> None:
    usual = plan_model(LLAMA, length=4096).training
    rounded = plan_model(LLAMA, length=4096, precision="float32")
    assert rounded.device.flops == 67e12
    assert plan_model(LLAMA, length=8, precision="float32", flops=5e12).device.flops == 5e12
    slow = plan_model(LLAMA, length=4096, link=1e9).training
    assert usual is not None
    assert slow is not None
    assert (usual.limited_by, slow.limited_by) == ("operations", "link")
    assert slow.seconds == 3 * 2 * 8_030_261_248 * (slow.devices - 1) / slow.devices / 1e9


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
    size, tokens, speed = long.size, (1 << 20) / long.training.context, 0.4 * 989e12
    seconds = 4 * tokens * count_operations(long.attention) / speed  # computed again
    assert long.training.seconds == pytest.approx(seconds)
    every = tokens * long.training.devices / seconds
    assert long.training.tokens_per_second == pytest.approx(every)
    gathered = 2 * (2 * size.layer_parameters + 128256 * 4096) + 4 * (1 << 20) * 8 * 128 * 2
    assert long.training.gathered == gathered
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
        ({"parameters": 7e9, "link": -1}, r"link must be a number above 0; got -1"),
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
    assert all(words in " ".join(page.split()) for words in CALIBRATION.list_sentences())
    assert max(map(len, page.splitlines())) <= 100
    assert main(["plan", "--parameters", "7e9", "--length", "4k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["computed"] is True
    assert found["calibration"] == CALIBRATION.to_dict()
    assert found["serving"]["devices"] == 1
    assert main(["plan", "--length", "4k"]) == 2
    assert "--parameters must be given without a config" in capsys.readouterr().err
    for more in (["--device", "h10"], ["--width", "8192", "--layers", "900"]):
        assert main(["plan", "--length", "4k", "--parameters", "7e9", *more]) == 2
        assert "=" not in capsys.readouterr().err  # options, not arguments of Python


def test_counting_allocates_nothing() -> None:
    before = torch.get_rng_state()
    plan_model(parameters=1e12, length=1 << 20, encoding="learned")
    assert torch.equal(before, torch.get_rng_state())
