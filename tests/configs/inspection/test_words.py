"""The verdict, the plain page and the terminal page."""

import io
from typing import Any

import pytest

from tests.presets import VARIED_PRESETS
from whorl.configs.inspection import inspect


def terminal(found: Any, width: int) -> str:
    console = pytest.importorskip("rich.console")
    from whorl.configs.inspection.tables import render_terminal as lines

    out = io.StringIO()
    console.Console(file=out, width=width, highlight=False).print(console.Group(*lines(found)))
    return out.getvalue()


def test_the_verdict_on_llama_3_1() -> None:
    assert inspect("llama-3.1-8b").verdict == (
        "llama: 32 layers rotate all 128 channels of a head (half layout, base 500,000, Llama3 by"
        " 8). It claims 131,072 tokens, extended from a trained length of 8,192. 29 of 64 pairs"
        " have wavelengths longer than 8,192 tokens; their angles stay in distribution up to 65,536"
        " tokens, and the claim beyond that relies on further training. transformers, mlx-lm, vLLM"
        " and llama.cpp read it the same way."
    )


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt-oss-20b", {}, "12 sliding_attention layers and 12 full_attention layers rotate"),
        ("gpt-oss-20b", {}, "mlx-lm and llama.cpp read it differently."),
        ("modernbert-base", {}, "so longer texts contain out-of-distribution angles."),
        (
            "mistral-7b-v0.3",
            {"length": 65_536},
            "the angles of 24 pairs grow to 2 times those of training",
        ),
        (
            "mistral-7b-v0.3",
            {"length": 32_768},
            "At 32,768 tokens no angle is out of distribution; float32",
        ),
        ("qwen3-8b", {"extend": "yarn", "factor": 4}, "the effective context is 131,072 tokens"),
        (
            "qwen3-8b",
            {"extend": "yarn", "factor": 4},
            "YaRN from 32,768, where its published recipe starts, to 131,072 tokens gives",
        ),
        ("mistral-7b-v0.3", {"extend": "yarn", "factor": 4}, "YaRN to 131,072 tokens gives"),
        ("deepseek-v3", {}, "61 layers rotate 64 of 192 channels of a head"),
        ("phi-3.5-mini", {"length": 9000}, "read it the same way at 9,000 tokens."),
    ],
)
def test_what_a_verdict_says(name: str, options: dict[str, Any], words: str) -> None:
    assert words in inspect(name, **options).verdict


def test_a_config_that_says_little() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    found = inspect({**config, "max_position_embeddings": None, "rope_theta": 10.0}, length=100)
    if found.model.context is None:
        assert "The config does not say for how many tokens." in found.verdict
    else:  # transformers fills it in
        assert found.model.context == 2048


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", VARIED_PRESETS)
def test_the_terminal_page_fits(name: str, width: int) -> None:
    page = terminal(inspect(name, length=200_000), width)
    lines = page.splitlines()
    assert max(map(len, lines)) <= width
    assert "\u2026" not in page  # nothing is cut off
    assert lines[0].strip() == name


def test_the_terminal_page_of_an_extension() -> None:
    page = terminal(inspect("llama-3.1-8b", extend="yarn", factor=16), 80)
    for words in (
        "layers 0-31, as published",
        "as published, at 131,072 tokens",
        "as extended: YaRN(factor=16.0",
        "How others read it, as published",
        "How others read it, as extended",
        "For config.json, as extended, transformers 4 (as this config):",
        "For config.json, as extended, transformers 5:",
        '"rope_scaling": {',
    ):
        assert words in page
    page = terminal(inspect("llama-3.1-8b", extend="dynamic_yarn", factor=16), 80)
    assert "no lines for config.json: transformers has no type for 'dynamic_yarn'." in page
    assert "no config.json can ask for it: transformers has no type for 'dynamic_yarn'." in page


def test_the_parts_and_notes_of_a_model() -> None:
    page = terminal(inspect("qwen2.5-vl-7b"), 80)
    assert "Parts: text_config, vision_config" in page
    assert "(time, row, column)" in page


def test_layers_that_others_read_alike_share_a_table() -> None:
    assert terminal(inspect("gpt-oss-20b"), 80).count("How others read it") == 1
    assert terminal(inspect("gemma-3-4b"), 80).count("How others read it") == 2


def test_the_plain_page() -> None:
    found = inspect("qwen3-8b-yarn", length=200_000, extend="yarn", factor=8)
    page = str(found)
    assert page.startswith("qwen3: 36 full_attention layers rotate")
    for words in (
        "attention scale    1.13863",
        "at 200,000",
        "config.json for transformers 5",
        "mlx-lm",
    ):
        assert words in page
    assert max(map(len, page.splitlines())) <= 110


LLAMA4 = {
    "model_type": "llama4_text",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
    "attn_temperature_tuning": True,
    "attn_scale": 0.1,
    "floor_scale": 8192,
}


def test_layers_that_only_scale_their_queries_see_positions() -> None:
    found = inspect(LLAMA4)
    page = str(found)
    assert "query scale  log, beta 0.1, length 8192" in page
    assert "queries are scaled by their position" in page
    assert "have no positions" not in page
    assert "layer scale queries by position instead" in found.verdict
    plain = inspect({**LLAMA4, "attn_temperature_tuning": False})
    assert "none: these layers have no positions" in str(plain)
    assert "query scale" not in str(plain)
    assert "have no positions" in plain.verdict
