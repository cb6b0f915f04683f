"""What to paste: lines that read back as the method, and commands."""

import json
import shlex
from typing import Any

import pytest

from tests.extend.test_angles import PLAIN
from whorl.configs import presets, read_config
from whorl.extend import Recipe, plan_extension


def recipes(config: object, method: str | None = None, to: str = "4x") -> dict[str, Recipe]:
    return {each.framework: each for each in plan_extension(config, to=to, method=method).recipes}


def join(text: str | None) -> str:
    """A command without its line breaks, as a shell reads it."""
    return " ".join((text or "").replace("\\\n", " ").split())


def read_overrides(text: str | None) -> dict[str, Any]:
    words = shlex.split(join(text))
    assert words[:2] == ["vllm", "serve"]
    found: dict[str, Any] = json.loads(words[words.index("--hf-overrides") + 1])
    return found


def test_yarn_for_qwen3_everywhere() -> None:
    found = recipes("qwen3-8b")
    assert json.loads(found["transformers 4"].text or "") == {
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32_768,
        },
    }
    ropes = {
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32_768,
    }
    assert json.loads(found["transformers 5"].text or "")["rope_parameters"] == ropes
    both = {"max_position_embeddings": 131_072, "rope_parameters": ropes}
    assert read_overrides(found["vLLM"].text) == both
    assert join(found["vLLM"].text).endswith(" --max-model-len 131072")
    assert max(map(len, (found["vLLM"].text or "").splitlines())) <= 80
    assert join(found["llama.cpp"].text) == (
        "llama-server -m MODEL.gguf -c 131072 --rope-scaling yarn --rope-scale 4"
        " --yarn-orig-ctx 32768"
    )
    assert "leave --yarn-attn-factor unset" in (found["llama.cpp"].note or "")
    assert found["mlx-lm"].text == found["transformers 4"].text


def test_flags_of_llama_cpp() -> None:
    context = "--override-kv llama.context_length=int:16384"
    start = "llama-server -m MODEL.gguf -c 16384"
    assert join(recipes(PLAIN, "linear")["llama.cpp"].text) == (
        f"{start} --rope-scaling linear --rope-scale 4 {context}"
    )
    base = 10_000 * 4 ** (64 / 62)
    assert join(recipes(PLAIN, "ntk")["llama.cpp"].text) == (
        f"{start} --rope-freq-base {base:.10g} {context}"
    )
    assert join(recipes(PLAIN, "none")["llama.cpp"].text) == f"{start} {context}"


def test_flags_do_not_remove_divisors_of_the_file() -> None:
    found = recipes("llama-3.1-8b", "yarn", to="256k")["llama.cpp"]
    assert found.text is None
    assert "divisors of the published scaling, which no flag removes" in (found.note or "")
    assert "convert it again" in (found.note or "")


def test_flags_replace_a_scaling_of_the_file() -> None:
    scaled = {**PLAIN, "max_position_embeddings": 8192}
    scaled |= {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 4096,
        }
    }
    words = join(recipes(scaled, "ntk", to="16k")["llama.cpp"].text)
    assert "--rope-scaling none --rope-freq-base" in words


def test_vllm_multiplies_the_length_of_linear_itself() -> None:
    found = read_overrides(recipes(PLAIN, "linear")["vLLM"].text)
    assert found == {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    }
    raised = read_overrides(recipes(PLAIN, "raised_base")["vLLM"].text)
    assert raised["max_position_embeddings"] == 16_384
    assert raised["rope_parameters"]["rope_type"] == "default"


def test_an_attention_factor_needs_a_recent_vllm() -> None:
    found = recipes(PLAIN, "ntk_by_parts")
    assert "attention_factor needs vLLM 0.32.0" in (found["vLLM"].note or "")
    assert found["mlx-lm"].text is None
    assert found["mlx-lm"].note == "no: attention_factor is not read"


def test_lines_are_nested_under_their_part() -> None:
    parts = {"model_type": "gemma3", "text_config": presets.load("gemma-3-4b")}
    plan = plan_extension(parts, to="64x", method="yarn", trained=16_384)
    found = {each.framework: each for each in plan.recipes}
    overrides = read_overrides(found["vLLM"].text)
    assert set(overrides) == {"text_config"}
    assert set(json.loads(found["transformers 5"].text or "")) == {"text_config"}


@pytest.mark.parametrize("method", ["none", "linear", "ntk", "raised_base", "yarn", "llama3"])
def test_the_whole_config_reads_back_as_the_method(method: str) -> None:
    plan = plan_extension(PLAIN, to="4x", method=method)
    chosen = plan.find_method(method)
    assert chosen is not None
    for data in plan.configs.values():
        model = read_config(data)
        assert model.context == 16_384
        (group,) = model.groups
        assert group.rotation is not None
        read = group.rotation.frequencies(16_384)
        wanted = read_config(PLAIN).groups[0].rotation
        assert wanted is not None
        meant = wanted.build_without_tables(scaling=chosen.scaling).frequencies(16_384)
        assert ((read.inv_freq - meant.inv_freq).abs() <= 1e-9 * meant.inv_freq).all()
        assert read.attention_scale == pytest.approx(meant.attention_scale)


def test_who_cannot_run_it_says_so() -> None:
    found = recipes(PLAIN, "dynamic_yarn")
    assert {each.text for each in found.values()} == {None}
    assert found["vLLM"].note == "cannot: transformers has no type for 'dynamic_yarn'"
    olmo = recipes({**PLAIN, "model_type": "olmo"})
    assert (olmo["vLLM"].note or "").startswith("not known: the model file of 'olmo' was not read")
