"""The rules for transformers and mlx-lm beside the installed packages."""

import importlib
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.peers import needs_transformers_5
from whorl import RoPE
from whorl.configs import presets, read_config
from whorl.configs.inspection import inspect
from whorl.configs.inspection.frameworks import ConfiguredLayers, mlx_lm, transformers
from whorl.configs.inspection.frameworks.base import FrameworkReading

pytestmark = needs_transformers_5

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
LLAMA3 = presets.load("llama-3.1-8b")["rope_scaling"]
EXTRAS = {
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn-attention-factor": {**YARN, "attention_factor": 1.0},
    "yarn-mscale": {**YARN, "mscale": 0.5},
    "yarn-mscales": {**YARN, "mscale": 0.5, "mscale_all_dim": 0.25},
    "yarn-truncate": {**YARN, "truncate": False},
}
# What model files need besides the keys of positions.
REST = {
    "intermediate_size": 64,
    "vocab_size": 32,
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "norm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "use_qkv_bias": False,
    "use_parallel_residual": True,
    "logits_scaling": 1.0,
    "attention_multiplier": 1.0,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "num_experts": 2,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 8,
    "norm_topk_prob": True,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "query_pre_attn_scalar": 256,
    "partial_rotary_factor": 0.5,
}


@contextmanager
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def frequencies(reading: FrameworkReading, length: int) -> tuple[Tensor, float]:
    assert reading.options is not None
    rope = RoPE(**{**reading.options, "precision": "float32"})
    found = rope.frequencies(reading.at or length)
    return found.inv_freq, float(found.attention_scale)


def qwen(extra: str) -> dict[str, Any]:
    return {**presets.load("qwen3-8b"), "rope_scaling": dict(EXTRAS[extra])}


# transformers

ROTARY = {
    "deepseek-v3": ("deepseek_v3", "DeepseekV3RotaryEmbedding"),
    "gemma-3-4b": ("gemma3", "Gemma3RotaryEmbedding"),
    "glm-4-9b": ("glm4", "Glm4RotaryEmbedding"),
    "gpt-neox-20b": ("gpt_neox", "GPTNeoXRotaryEmbedding"),
    "gpt-oss-20b": ("gpt_oss", "GptOssRotaryEmbedding"),
    "llama-3.1-8b": ("llama", "LlamaRotaryEmbedding"),
    "phi-3.5-mini": ("phi3", "Phi3RotaryEmbedding"),
    "qwen3-8b-yarn": ("qwen3", "Qwen3RotaryEmbedding"),
}


def of_transformers(config: dict[str, Any], module: str, rotary: str, length: int) -> Any:
    """The rotary module of the installed transformers, after a text of ``length`` tokens."""
    hub = pytest.importorskip("transformers")
    with without_warnings():
        keys = {k: v for k, v in config.items() if not k.startswith("_")}
        built = hub.CONFIG_MAPPING[keys.pop("model_type")](**keys)
        modeling = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
        made = getattr(modeling, rotary)(built)
        x, places = torch.zeros(1, 1, 8), torch.arange(length)[None]
        layer_types = getattr(made, "layer_types", None)
        for args in [(name,) for name in set(layer_types)] if layer_types else [()]:
            made(x, places, *args)
    return made


@pytest.mark.parametrize("length", [64, 8192])
@pytest.mark.parametrize("name", ROTARY)
def test_transformers_reads_presets_so(name: str, length: int) -> None:
    config = presets.load(name)
    made = of_transformers(config, *ROTARY[name], length)
    model = read_config(config)
    for group in model.groups:
        reading = transformers.read(ConfiguredLayers(model, group, config))
        inv_freq, scale = frequencies(reading, length)
        prefix = f"{group.name}_" if hasattr(made, f"{group.name}_inv_freq") else ""
        theirs = getattr(made, f"{prefix}inv_freq").double()
        torch.testing.assert_close(inv_freq, theirs, rtol=1e-6, atol=0)
        assert scale == pytest.approx(getattr(made, f"{prefix}attention_scaling"), rel=1e-6)


@pytest.mark.parametrize("extra", EXTRAS)
def test_transformers_reads_scalings_so(extra: str) -> None:
    config = qwen(extra)
    made = of_transformers(config, "qwen3", "Qwen3RotaryEmbedding", 50_000)
    model = read_config(config)
    inv_freq, scale = frequencies(
        transformers.read(ConfiguredLayers(model, model.groups[0], config)), 50_000
    )
    torch.testing.assert_close(inv_freq, made.inv_freq.double(), rtol=1e-6, atol=0)
    assert scale == pytest.approx(made.attention_scaling, rel=1e-6)


@pytest.mark.parametrize("by", ["linear", "ntk", "ntk_by_parts", "yarn", "llama3", "dynamic_ntk"])
def test_transformers_does_what_an_extension_shows(by: str) -> None:
    found = inspect("mistral-7b-v0.3", extend=by, factor=1.5)
    extension = found.groups[0].extension
    assert extension is not None
    assert found.patch is not None
    assert found.old_patch is not None
    config = presets.load("mistral-7b-v0.3")
    waves = torch.tensor([pair.new_wavelength for pair in extension.after.pairs]).double()
    for patch in (found.patch, found.old_patch):
        patched = {**config, **patch}
        if patch is found.patch:
            del patched["rope_theta"]
        made = of_transformers(patched, "mistral", "MistralRotaryEmbedding", extension.length)
        torch.testing.assert_close(math.tau / made.inv_freq.double(), waves, rtol=2e-6, atol=0)
        assert made.attention_scaling == pytest.approx(extension.after.attention_scale)


# mlx-lm


def of_mlx(config: dict[str, Any]) -> list[Any]:
    """The attention modules of the installed mlx-lm; its arrays are lazy, so nothing is made."""
    family = mlx_lm.FAMILIES[config["model_type"]]
    with without_warnings():
        pytest.importorskip("mlx_lm")
        name = family.file or config["model_type"]
        module = importlib.import_module(f"mlx_lm.models.{name}")
        model = module.Model(module.ModelArgs.from_dict(config))
    found = [getattr(layer, "self_attn", None) or layer.attention for layer in model.layers]
    return found


def turns_of(rope: Any, length: int) -> tuple[Tensor, float, bool]:
    """Inverse frequencies, attention scale and ``traditional`` of a rope module of mlx-lm."""
    import numpy

    scale = float(getattr(rope, "mscale", getattr(rope, "_scale", 1.0)))
    traditional = bool(getattr(rope, "traditional", False))
    if hasattr(rope, "_freqs"):
        return 1 / torch.tensor(numpy.array(rope._freqs)).double(), scale, traditional
    dims, base = rope.dims, rope.base
    if hasattr(rope, "factor"):  # dynamic
        longest, factor = rope.max_position_embeddings, rope.factor
        stretch = factor * max(length, longest) / longest - (factor - 1)
        base = base * stretch ** (dims / (dims - 2))
    steps = torch.arange(0, dims, 2, dtype=torch.float64) / dims
    return getattr(rope, "scale", 1.0) * base**-steps, scale, traditional


def check_mlx(config: dict[str, Any], length: int) -> None:
    attentions = of_mlx(config)
    model = read_config({k: v for k, v in config.items() if k not in REST or k.startswith("part")})
    for group in model.groups:
        if group.rotation is None:
            continue
        reading = mlx_lm.read(ConfiguredLayers(model, group, config))
        inv_freq, scale = frequencies(reading, length)
        attention = attentions[group.layers[0]]
        theirs, other, traditional = turns_of(attention.rope, length)
        torch.testing.assert_close(inv_freq, theirs, rtol=2e-6, atol=0)
        assert scale == pytest.approx(other, rel=1e-6)
        assert reading.layout == ("interleaved" if traditional else "half")
        width = attention.head_dim if hasattr(attention, "head_dim") else None
        if width is None and hasattr(attention, "q_head_dim"):
            width = attention.q_head_dim
        if config["model_type"] == "deepseek_v3" and width is not None:
            assert attention.scale * width**0.5 == pytest.approx(reading.softmax_scale)


def small(model_type: str) -> dict[str, Any]:
    """A config of that family, small but for its heads, in the older schema."""
    config: dict[str, Any] = {
        **REST,
        "model_type": model_type,
        "hidden_size": 256,
        "head_dim": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 6,
        "max_position_embeddings": 32_768,
        "rope_theta": 123_456.0,
    }
    if model_type not in ("glm4", "phi", "stablelm"):
        del config["partial_rotary_factor"]
    if model_type == "gpt_neox":
        config |= {"rotary_pct": 0.25, "rotary_emb_base": 5000}
        del config["rope_theta"]
    if model_type == "gpt_oss":
        config |= {"layer_types": ["sliding_attention", "full_attention"] * 3}
    if model_type == "deepseek_v3":
        preset = presets.load("deepseek-v3")
        config |= {k: v for k, v in preset.items() if k.startswith(("qk_", "v_", "kv_", "q_"))}
        config |= {"first_k_dense_replace": 6, "n_routed_experts": None}
        del config["head_dim"]
    if model_type in ("cohere2", "gemma2", "gemma3_text"):
        config["sliding_window"] = 512
    return config


@pytest.mark.parametrize("model_type", sorted(mlx_lm.FAMILIES))
def test_mlx_lm_reads_families_so(model_type: str) -> None:
    check_mlx(small(model_type), 50_000)


@pytest.mark.parametrize("model_type", sorted(mlx_lm.FAMILIES))
@pytest.mark.parametrize("traditional", [False, True])
def test_mlx_lm_reads_the_layout_so(model_type: str, traditional: bool) -> None:
    check_mlx({**small(model_type), "rope_traditional": traditional}, 50_000)


def test_a_layout_that_transformers_does_not_read() -> None:
    config = {**small("llama"), "rope_traditional": True}
    model = read_config(config)
    case = ConfiguredLayers(model, model.groups[0], config)
    assert (transformers.read(case).layout, mlx_lm.read(case).layout) == ("half", "interleaved")


# The file of phi3 refuses both; gpt_neox's has other names for all of it.
@pytest.mark.parametrize("model_type", sorted(set(mlx_lm.FAMILIES) - {"phi3", "gpt_neox"}))
@pytest.mark.parametrize("extra", ["yarn", "linear"])
def test_mlx_lm_reads_scaled_families_so(model_type: str, extra: str) -> None:
    check_mlx({**small(model_type), "rope_scaling": dict(EXTRAS[extra])}, 50_000)


def test_mlx_lm_refuses_phi3_without_long_factors() -> None:
    config = {**small("phi3"), "rope_scaling": dict(EXTRAS["linear"])}
    model = replace(read_config(presets.load("phi-3.5-mini")), part=None)
    reading = mlx_lm.read(ConfiguredLayers(model, model.groups[0], config))
    assert (reading.outcome, reading.why) == (
        "refuses",
        "rope_scaling must have 'type' and 'long_factor'",
    )
    with pytest.raises(ValueError, match="rope_scaling must contain keys"):
        of_mlx(config)


@pytest.mark.parametrize("extra", EXTRAS)
def test_mlx_lm_reads_scalings_so(extra: str) -> None:
    config = {**small("llama"), "rope_scaling": dict(EXTRAS[extra])}
    check_mlx(config, 50_000)


@pytest.mark.parametrize("name", ["phi-3.5-mini", "deepseek-v3", "gemma-3-4b", "gpt-oss-20b"])
def test_mlx_lm_reads_presets_so(name: str) -> None:
    preset = presets.load(name)
    config = {**small(preset["model_type"]), **preset}
    if "head_dim" not in preset:
        config.pop("head_dim", None)
    check_mlx(config, 100_000)


@pytest.mark.parametrize("model_type", sorted(mlx_lm.FAMILIES))
def test_mlx_lm_and_the_schema_of_transformers_5(model_type: str) -> None:
    config = small(model_type)
    for name in ("rope_theta", "rotary_pct", "rotary_emb_base"):
        config.pop(name, None)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 77_777.0}
    if config.get("partial_rotary_factor"):  # version 5 has it there alone
        config["rope_parameters"]["partial_rotary_factor"] = config.pop("partial_rotary_factor")
    model = read_config(config)
    for group in model.groups:
        if group.rotation is None:
            continue
        reading = mlx_lm.read(ConfiguredLayers(model, group, config))
        if reading.options is None:
            with pytest.raises((TypeError, ValueError), match=r"missing"):
                of_mlx(config)
            continue
        rope = of_mlx(config)[group.layers[0]].rope
        assert reading.options["base"] == pytest.approx(rope.base)
        width = reading.options.get("rotary_dim") or reading.options["head_dim"]
        assert width == rope.dims
