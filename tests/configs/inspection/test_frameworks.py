"""What the rules of other frameworks say of configs that are known to divide them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.presets import VARIED_PRESETS
from whorl.configs import presets, read_config
from whorl.configs.inspection import FrameworkComparison, inspect
from whorl.configs.inspection.frameworks import (
    FRAMEWORKS,
    ConfiguredLayers,
    llama_cpp,
    mlx_lm,
    vllm,
)
from whorl.scaling.base import compute_frequencies

QWEN3 = presets.load("qwen3-8b-yarn")


def compared(
    config: Any, name: str | None = None, **options: Any
) -> dict[str, FrameworkComparison]:
    reports = [r for r in inspect(config, **options).groups if r.encoding is not None]
    (report,) = [r for r in reports if name is None or r.group.name == name]
    return {each.framework: each for each in report.frameworks}


def with_scaling(preset: str, **keys: Any) -> dict[str, Any]:
    config = presets.load(preset)
    return {**config, "rope_scaling": {**config["rope_scaling"], **keys}}


def test_each_framework_says_who_it_is() -> None:
    for framework in FRAMEWORKS:
        assert framework.BASIS in ("executed in tests", "by reading")
        assert framework.VERSION
    found = compared("llama-3.1-8b")
    assert list(found) == ["transformers", "mlx-lm", "vLLM", "llama.cpp"]
    assert {c.outcome for c in found.values()} == {"agrees"}


def test_attention_factor() -> None:
    """transformers and vLLM read it; mlx-lm and llama.cpp compute their own."""
    found = compared(with_scaling("qwen3-8b-yarn", attention_factor=1.0))
    usual = 0.1 * math.log(4) + 1
    for name in ("transformers", "vLLM"):
        assert (found[name].outcome, found[name].attention_scale) == ("agrees", 1.0)
    for name in ("mlx-lm", "llama.cpp"):
        assert found[name].differs == ("attention scale",)
        assert found[name].attention_scale == pytest.approx(usual)
        assert any("attention_factor" in remark.text for remark in found[name].remarks)
    oss = compared(with_scaling("gpt-oss-20b", attention_factor=1.0), "full_attention")
    assert oss["vLLM"].differs == ("attention scale",)


def test_truncate() -> None:
    found = compared("gpt-oss-20b", "full_attention")
    assert {name for name, c in found.items() if c.outcome == "agrees"} == {"transformers", "vLLM"}
    for name in ("mlx-lm", "llama.cpp"):
        assert found[name].differs == ("inverse frequencies",)
        assert (found[name].inv_freq or 0) > 0.1


def test_mscale_of_models_without_latent_attention() -> None:
    found = compared(with_scaling("qwen3-8b-yarn", mscale=0.5, mscale_all_dim=0.25))
    ratio = (0.05 * math.log(4) + 1) / (0.025 * math.log(4) + 1)
    for name in ("transformers", "mlx-lm", "vLLM"):
        assert found[name].attention_scale == pytest.approx(ratio)
    assert found["llama.cpp"].attention_scale == pytest.approx(0.1 * math.log(4) + 1)
    lone = compared(with_scaling("qwen3-8b-yarn", mscale=0.5))
    assert lone["mlx-lm"].differs == ("attention scale",)
    assert lone["mlx-lm"].attention_scale == pytest.approx(0.05 * math.log(4) + 1)
    assert lone["vLLM"].outcome == "agrees"


def test_latent_attention() -> None:
    deep = compared("deepseek-v3")
    assert {c.outcome for c in deep.values()} == {"agrees"}
    factor = compared(with_scaling("deepseek-v3", attention_factor=1.0))
    assert "softmax scale" in factor["vLLM"].differs
    config = presets.load("deepseek-v3")
    del config["rope_scaling"]["mscale_all_dim"], config["rope_scaling"]["mscale"]
    bare = compared(config)
    mscale = 0.1 * math.log(40) + 1
    assert bare["llama.cpp"].differs == ("softmax scale",)
    assert bare["llama.cpp"].softmax_scale == pytest.approx(mscale**2)
    assert bare["transformers"].attention_scale == pytest.approx(mscale)
    lite = compared(with_scaling("deepseek-v3", mscale=1.0, mscale_all_dim=0.707))
    assert "attention scale" in lite["llama.cpp"].differs
    assert lite["llama.cpp"].attention_scale == pytest.approx(1.0)


def test_dynamic() -> None:
    config = {**presets.load("llama-2-7b"), "rope_scaling": {"type": "dynamic", "factor": 4.0}}
    long = compared(config, length=16_384)
    for name in ("vLLM", "llama.cpp"):
        assert long[name].differs == ("inverse frequencies",)
    assert long["mlx-lm"].outcome == "agrees"
    short = compared(config, length=4096)
    assert {c.outcome for c in short.values()} == {"agrees"}


def test_longrope_for_short_texts() -> None:
    found = compared("phi-3.5-mini")
    for name in ("mlx-lm", "vLLM", "llama.cpp"):
        assert found[name].differs == ("inverse frequencies",)
        assert found[name].length == 4096
    assert found["transformers"].outcome == "agrees"
    long = compared("phi-3.5-mini", length=100_000)
    assert {c.outcome for c in long.values()} == {"agrees"}
    explicit = compared(with_scaling("phi-3.5-mini", attention_factor=1.5), length=100_000)
    for name in ("mlx-lm", "vLLM", "llama.cpp"):
        assert explicit[name].differs == ("attention scale",)


def test_llama_3_with_another_trained_length() -> None:
    found = compared(with_scaling("llama-3.1-8b", original_max_position_embeddings=4096))
    assert found["llama.cpp"].differs == ("inverse frequencies",)
    assert "top level only: 8192" in found["llama.cpp"].remarks[0].text
    for name in ("transformers", "mlx-lm", "vLLM"):
        assert found[name].outcome == "agrees"


def test_the_schema_of_transformers_5_loses_mlx_lm() -> None:
    config = presets.load("llama-3.1-8b")
    scaling = {**config.pop("rope_scaling"), "rope_theta": config.pop("rope_theta")}
    found = compared({**config, "rope_parameters": scaling})
    assert found["mlx-lm"].differs == ("inverse frequencies",)
    texts = [remark.text for remark in found["mlx-lm"].remarks]
    assert texts == [
        "a missing rope_theta counts as 10000",
        "rope_parameters is not read: no scaling, without a warning",
    ]
    moe = {**config, "model_type": "qwen3_moe", "rope_parameters": {"rope_theta": 1e6}}
    assert compared(moe)["mlx-lm"].outcome == "refuses"
    current = {**config, "model_type": "qwen3", "rope_parameters": {"rope_theta": 1e6}}
    assert compared(current)["mlx-lm"].outcome == "agrees"


def test_a_file_that_reads_no_scaling() -> None:
    found = compared({**QWEN3, "model_type": "qwen3_moe"})
    assert found["mlx-lm"].differs == ("inverse frequencies", "attention scale")
    assert found["mlx-lm"].remarks[0].text == "rope_scaling is not read: no scaling"


def test_a_converter_that_writes_no_base() -> None:
    config = presets.load("gpt-neox-20b")
    assert compared(config)["llama.cpp"].outcome == "agrees"
    found = compared({**config, "rotary_emb_base": 50_000})["llama.cpp"]
    assert found.differs == ("inverse frequencies",)
    assert found.remarks[0].text == "neither base nor scaling is written: 10000, none"


def test_what_was_not_found_stays_unknown() -> None:
    assert compared("gemma-3-4b", "full_attention")["llama.cpp"].outcome == "agrees"
    assert compared("gemma-3-4b", "sliding_attention")["llama.cpp"].outcome == "unknown"
    assert compared("modernbert-base", "full_attention")["llama.cpp"].outcome == "unknown"


def test_partial_rotation_that_only_vllm_counts() -> None:
    config = presets.load("llama-2-7b")
    config["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
    }
    report = inspect(config, parity="transformers").groups[0]
    found = {each.framework: each for each in report.frameworks}
    if report.rotated == 128:  # as transformers' Llama does
        assert found["vLLM"].differs == ("pairs",)


@pytest.mark.parametrize("framework", [mlx_lm, vllm, llama_cpp])
def test_a_family_that_was_not_read_is_unknown(framework: Any) -> None:
    config = {**presets.load("llama-2-7b"), "model_type": "arcee"}
    found = compared(config)[framework.NAME]
    assert found.outcome == "unknown"
    assert "'arcee'" in (found.why or "")
    assert found.inv_freq is None


def test_values_that_no_rule_expects_are_unknown_not_errors() -> None:
    config = with_scaling("qwen3-8b-yarn", beta_fast="32")
    model = replace(read_config(QWEN3), part=None)
    case = ConfiguredLayers(model, model.groups[0], config)
    from whorl.configs.inspection.frameworks import compare_frameworks

    found = {each.framework: each for each in compare_frameworks(case, [4096])}
    assert found["mlx-lm"].outcome == "unknown"
    assert "its rule cannot be applied to this config" in (found["mlx-lm"].why or "")


def test_every_remark_has_its_source() -> None:
    for name in VARIED_PRESETS:
        for report in inspect(name).groups:
            for each in report.frameworks:
                for remark in each.remarks:
                    assert each.framework in remark.source
                    known = ("@", each.version, "commit not known")
                    assert any(word in remark.source for word in known)


def test_the_corners_of_llama_cpp_by_hand() -> None:
    """ggml's loop, from its source: floor, ceil, clamp, blend."""
    config = with_scaling("gpt-oss-20b", truncate=False)
    model = read_config(config)
    group = model.group("full_attention")
    options = llama_cpp.read(ConfiguredLayers(model, group, config)).options
    assert options is not None
    from whorl import RoPE

    found = RoPE(**options).frequencies().inv_freq

    def corner(turns: float) -> float:
        return 64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(150_000))

    low, high = max(0, math.floor(corner(32))), min(63, math.ceil(corner(1)))
    expected = []
    for i, theta in enumerate(compute_frequencies(64, 150_000.0).tolist()):
        mix = 1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
        expected.append(theta / 32 * (1 - mix) + theta * mix)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


GEMMA = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 6,
    "max_position_embeddings": 8192,
    "sliding_window": 512,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10_000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}


def outcomes(config: dict[str, Any]) -> list[list[tuple[str, str, float | None]]]:
    return [
        [(each.framework, each.outcome, each.inv_freq) for each in report.frameworks]
        for report in inspect(config).groups
    ]


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_a_part_is_judged_as_the_model_that_it_is(named: bool) -> None:
    flat = {"model_type": "gemma3_text", **GEMMA}
    nested = {"model_type": "gemma3", "text_config": flat if named else GEMMA}
    alone = outcomes(flat)
    assert outcomes(nested) == alone
    assert {outcome for group in alone for _, outcome, _ in group} >= {"agrees"}
    assert [group[0][1] for group in alone] == ["agrees", "agrees"]
    (vllm_,) = [f for f in inspect(nested).groups[0].frameworks if f.framework == "vLLM"]
    assert vllm_.remarks[-1].text == (
        "compared as 'gemma3_text', by text_config alone; code of 'gemma3' was not examined"
    )


def test_a_part_under_another_key() -> None:
    flat = presets.load("qwen3-8b-yarn")
    nested = {"model_type": "some_vlm", "llm_config": flat}
    (found,), (alone,) = outcomes(nested), outcomes(flat)
    assert found[1:] == alone[1:]  # transformers has no such model type
    assert alone[1][1] == "agrees"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (presets.load("deepseek-v3") | {"model_type": "kimi_k2"}, "no model type 'kimi_k2'"),
        (
            presets.load("llama-2-7b") | {"model_type": "LLaMA", "rope_theta": 1e4},
            "no model type 'LLaMA'",
        ),
        (
            {"model_type": "llava", "text_config": QWEN3 | {"model_type": "mine"}},
            "no model type 'mine'",
        ),
        ({"model_type": "mine", "text_config": QWEN3}, "no model type 'mine'"),
    ],
)
def test_transformers_is_unknown_where_it_has_no_such_family(config: Any, why: str) -> None:
    found = compared(config)["transformers"]
    assert found.outcome == "unknown"
    assert why in (found.why or "")
    assert found.inv_freq is None
    assert "transformers" not in inspect(config).verdict
