"""What a GGUF file means: the rules of llama.cpp, written out."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.configs import ConfigError, ModelPositions, read_config
from whorl.configs._gguf_layers import PERMUTED, SLIDING, get_rope_style
from whorl.scaling import NTK, Linear, Llama3, LongRoPE

from .gguf_files import gguf_bytes, metadata

HALF_PAIRS = 32  # of a head with 64 channels


def read(architecture: str = "llama", **keys: Any) -> ModelPositions:
    return read_config(metadata(architecture, **keys))


def scaling(found: ModelPositions) -> Any:
    return found.build().config.scaling  # type: ignore[attr-defined]


# Layouts


def test_every_architecture_of_the_package_is_known() -> None:
    gguf = pytest.importorskip("gguf")
    names = set(gguf.MODEL_ARCH_NAMES.values())
    assert {name for name in names if get_rope_style(name, sections=False) is None} == set()
    known = set(SLIDING) | PERMUTED
    assert {
        name for name in known if get_rope_style(name, sections=False) in (None, "none")
    } == set()
    assert all(get_rope_style(name, sections=False) == "norm" for name in PERMUTED)


@pytest.mark.parametrize(
    ("architecture", "layout"),
    [("llama", "interleaved"), ("command-r", "interleaved"), ("qwen2", "half"), ("phi3", "half")],
)
def test_layout(architecture: str, layout: str) -> None:
    found = read(architecture)
    assert found.kind == "gguf"
    assert found.build().config.layout == layout  # type: ignore[attr-defined]
    notes = [note.id for note in found.notes]
    assert notes == (["permuted-storage"] if architecture == "llama" else [])


def test_architectures_without_rotation() -> None:
    for found in (read("gpt2"), read("mamba"), read("baichuan", block_count=40)):
        assert found.groups == ()
        assert [note.id for note in found.notes] == ["no-rotary"]
    assert read("baichuan").groups


def test_gptj_rotates_neighbours() -> None:
    found = read("gptj", rope__dimension_count=32).group().rotation
    assert found is not None
    assert (found.options["rotary_dim"], found.options["layout"]) == (32, "interleaved")


def test_unknown_architecture_is_read_as_most_are() -> None:
    found = read("zebra")
    assert [note.id for note in found.notes] == ["unknown-family"]
    assert found.build().config.layout == "half"  # type: ignore[attr-defined]


# Sizes


def options(found: ModelPositions, **which: Any) -> dict[str, Any]:
    rotation = found.group(**which).rotation
    assert rotation is not None
    return dict(rotation.options)


def test_what_llama_cpp_assumes() -> None:
    found = read("qwen2")
    assert options(found) == {"head_dim": 64, "base": 10_000.0, "layout": "half"}
    assert found.context == found.trained_context == 8192
    assert found.groups[0].layers == (0, 1, 2, 3)
    assert found.groups[0].name is None
    assert found.group().parameters == {"rope_type": "default", "rope_theta": 10_000.0}


def test_widths() -> None:
    partial = read("stablelm", rope__dimension_count=16)
    assert options(partial) | {"rotary_dim": 16} == options(partial)
    assert partial.group().parameters["partial_rotary_factor"] == 0.25
    wide = read("gemma", attention__key_length=128)
    assert options(wide)["head_dim"] == 128
    per_layer = read("openelm", attention__head_count=[0, 8, 16, 4])
    assert options(per_layer)["head_dim"] == 32
    latent = read(
        "deepseek2", attention__kv_lora_rank=512, attention__key_length=576,
        rope__dimension_count=64,
    )  # fmt: skip
    assert options(latent)["head_dim"] == 64
    assert [note.id for note in latent.group().notes] == ["mla"]
    unsaid = read("deepseek2", attention__key_length=576, rope__dimension_count=64)
    assert options(unsaid)["head_dim"] == 64
    assert [note.id for note in unsaid.group().notes] == ["mla"]


# Frequencies


def test_linear() -> None:
    assert scaling(read(rope__scaling__type="linear", rope__scaling__factor=4.0)) == Linear(4.0)
    assert scaling(read(rope__scaling__factor=4.0)) == Linear(4.0)
    assert scaling(read(rope__scale_linear=4.0)) == Linear(4.0)
    assert scaling(read(rope__scaling__type="none", rope__scaling__factor=4.0)) is None
    assert scaling(read(rope__scaling__factor=0.0)) is None


def ggml_yarn(
    width: int, base: float, factor: float, trained: int, fast: float = 32.0, slow: float = 1.0
) -> tuple[list[float], float]:
    """ggml_rope_cache_init with ext_factor 1: frequencies, and its own factor 1 + 0.1 ln s."""

    def corner(turns: float) -> float:
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(0, math.floor(corner(fast))), min(width - 1, math.ceil(corner(slow)))
    found = []
    for pair_index in range(width // 2):
        theta = base ** (-2 * pair_index / width)
        ramp = 1 - min(1, max(0, (pair_index - low) / max(0.001, high - low)))
        found.append(theta / factor * (1 - ramp) + theta * ramp)
    return found, 1 + 0.1 * math.log(factor)


def same(
    found: ModelPositions, wanted: list[float], scale: float, tolerance: float = 1e-12
) -> None:
    got = found.build().frequencies()  # type: ignore[operator]
    expected = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(got.inv_freq, expected, rtol=tolerance, atol=0)
    assert got.attention_scale == pytest.approx(scale, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 4.0, 40.0])
@pytest.mark.parametrize("attention", [None, 1.25])
def test_yarn_by_ggml_written_out(factor: float, attention: float | None) -> None:
    found = read(
        "qwen3",
        rope__freq_base=1e6,
        rope__scaling__type="yarn",
        rope__scaling__factor=factor,
        rope__scaling__original_context_length=4096,
        rope__scaling__attn_factor=attention,
    )
    wanted, own = ggml_yarn(64, 1e6, factor, 4096)
    same(found, wanted, own * (attention or 1.0))
    assert found.trained_context == 4096
    assert found.group().softmax_scale == 1.0
    assert found.group().parameters["rope_type"] == "yarn"


def test_yarn_corners() -> None:
    found = read(
        "grok",
        rope__scaling__type="yarn",
        rope__scaling__factor=16.0,
        rope__scaling__yarn_beta_fast=8.0,
        rope__scaling__yarn_beta_slow=2.0,
        rope__scaling__yarn_ext_factor=1.0,
    )
    wanted, own = ggml_yarn(64, 1e4, 16.0, 8192, 8.0, 2.0)
    same(found, wanted, own)


def test_yarn_without_its_ramp_is_linear() -> None:
    keys: dict[str, Any] = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    assert scaling(read(**keys, rope__scaling__yarn_ext_factor=0.0)) == Linear(4.0)
    with pytest.raises(
        ConfigError, match="yarn_ext_factor must be 0 or 1, because whorl cannot apply"
    ):
        read(**keys, rope__scaling__yarn_ext_factor=0.5)


def test_a_log_multiplier_as_it_stands() -> None:
    found = read(
        "mistral3",
        rope__scaling__type="yarn",
        rope__scaling__factor=16.0,
        rope__scaling__yarn_log_multiplier=1.0,
    )
    assert found.build().frequencies().attention_scale == pytest.approx(1.0)  # type: ignore[operator]
    assert found.group().softmax_scale == 1.0


def test_deepseek32_has_mscale_1() -> None:
    found = read(
        "deepseek32",
        attention__kv_lora_rank=512,
        rope__dimension_count=64,
        rope__scaling__type="yarn",
        rope__scaling__factor=40.0,
        rope__scaling__yarn_log_multiplier=0.0707,
    )
    wanted = (1 + 0.1 * math.log(40)) / (1 + 0.0707 * math.log(40))
    scale = found.build().frequencies().attention_scale  # type: ignore[operator]
    assert scale == pytest.approx(wanted, rel=1e-6)
    assert found.group().softmax_scale == pytest.approx((1 + 0.1 * math.log(40)) ** 2, rel=1e-6)


@pytest.mark.parametrize("weight", [0.707, 1.0])
def test_deepseek_puts_mscale_into_the_softmax(weight: float) -> None:
    found = read(
        "deepseek2",
        attention__kv_lora_rank=512,
        rope__dimension_count=64,
        rope__scaling__type="yarn",
        rope__scaling__factor=40.0,
        rope__scaling__original_context_length=4096,
        rope__scaling__yarn_log_multiplier=0.1 * weight,
    )
    # transformers: g(s, mscale) / g(s, mscale_all_dim) = 1 with equal weights, g^2 in the softmax
    assert found.build().frequencies().attention_scale == pytest.approx(1.0)  # type: ignore[operator]
    wanted = (1 + 0.1 * weight * math.log(40.0)) ** 2
    assert found.group().softmax_scale == pytest.approx(wanted, rel=1e-6)


def file_with(
    tmp_path: Path, tensors: dict[str, Any], architecture: str = "llama", **keys: Any
) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(metadata(architecture, **keys), tensors))
    return path


def llama3_factors(
    factor: float, trained: int, base: float = 500000.0, width: int = 64
) -> list[float]:
    """As convert_hf_to_gguf.py makes rope_freqs.weight."""
    low, high = trained / 1.0, trained / 4.0
    found = []
    for index in range(width // 2):
        wavelength = 2 * math.pi * base ** (2 * index / width)
        if wavelength < high:
            found.append(1.0)
        elif wavelength > low:
            found.append(factor)
        else:
            smooth = (trained / wavelength - 1.0) / (4.0 - 1.0)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return found


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_is_recognised(factor: float, tmp_path: Path) -> None:
    factors = llama3_factors(factor, 8192)
    keys: dict[str, Any] = {"rope__freq_base": 500000.0, "context_length": 131072}
    found = read_config(file_with(tmp_path, {"rope_freqs.weight": factors}, **keys))
    assert scaling(found) == Llama3(factor, 8192)
    assert (found.context, found.trained_context) == (131072, 8192)
    wanted = [500000.0 ** (-2 * i / 64) / d for i, d in enumerate(factors)]
    same(found, wanted, 1.0, tolerance=1e-6)


def test_other_divisors_are_taken_as_they_are(tmp_path: Path) -> None:
    factors = [1.0 + index / 4 for index in range(HALF_PAIRS)]
    found = read_config(file_with(tmp_path, {"rope_freqs.weight": factors}))
    assert isinstance(scaling(found), LongRoPE)
    same(found, [10_000.0 ** (-2 * i / 64) / d for i, d in enumerate(factors)], 1.0)
    slower = read_config(
        file_with(
            tmp_path,
            {"rope_freqs.weight": factors},
            rope__scaling__factor=2.0,
            rope__scaling__attn_factor=1.5,
        )
    )
    same(slower, [10_000.0 ** (-2 * i / 64) / d / 2 for i, d in enumerate(factors)], 1.5)


def test_longrope(tmp_path: Path) -> None:
    short, long = [1.0] * HALF_PAIRS, [1.5 + n for n in range(HALF_PAIRS)]
    tensors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    keys = {
        "rope__scaling__original_context_length": 4096,
        "rope__scaling__attn_factor": 1.1902380714238083,
        "context_length": 131072,
    }
    found = read_config(file_with(tmp_path, tensors, "phi3", **keys))
    rule = scaling(found)
    assert rule.short_factors == tuple(short)
    assert rule.long_factors == tuple(long)
    assert rule.original_context == found.trained_context == 4096
    assert rule.attention_factor == pytest.approx(1.19023807)
    assert [note.id for note in found.group().notes] == ["longrope-at-load"]
    tensors.pop("rope_factors_long.weight")
    with pytest.raises(
        ConfigError, match="rope_factors_short and rope_factors_long must both be in the file"
    ):
        read_config(file_with(tmp_path, tensors, "phi3", **keys))


def test_an_attention_factor_alone(tmp_path: Path) -> None:
    found = read(rope__scaling__attn_factor=1.25)
    same(found, [10_000.0 ** (-2 * i / 64) for i in range(HALF_PAIRS)], 1.25)


def test_alpha() -> None:
    assert scaling(read("hunyuan_vl", rope__scaling__alpha=1000.0)) == NTK(1000.0)


# Values that cannot be


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"block_count": 2**32 - 1}, r"llama\.block_count must be a whole number from 1 to"),
        ({"rope__freq_base": float("nan")}, r"llama\.rope\.freq_base must be a finite number"),
        ({"rope__freq_base": -1.0}, r"llama\.rope\.freq_base must be a finite number above 0"),
        ({"rope__freq_base": "x"}, r"llama\.rope\.freq_base must be a finite number"),
        ({"rope__dimension_count": 63}, "must be even and at least 2, because channels rotate"),
        ({"rope__dimension_count": 128}, "must be at most head_dim"),
        ({"attention__head_count": None}, r"llama\.attention\.head_count is missing;"),
        ({"attention__head_count": 2**31}, r"llama\.attention\.head_count must be a number of"),
        ({"embedding_length": None}, r"llama\.embedding_length is missing;"),
        ({"rope__scaling__type": "zigzag"}, r"rope\.scaling\.type must be none, linear, yarn or"),
        ({"rope__scaling__factor": -2.0}, r"rope\.scaling\.factor must be above 0"),
        ({"rope__scaling__type": "yarn", "context_length": None}, "is missing; the scaling"),
        ({"rope__scaling__type": "yarn", "rope__scaling__factor": 0.5}, "factor must be .* >= 1"),
        ({"rope__dimension_sections": [1, 2, 3, 4, 5]}, "must be at most 4 numbers of pairs"),
    ],
)
def test_wrong_values_are_named(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(**keys)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"rope_freqs.weight": [1.0] * 5}, "must hold 32 numbers, one for each pair of the 64"),
        ({"rope_freqs.weight": [0.0] * 32}, "must be finite numbers above 0"),
        ({"rope_freqs.weight": [float("nan")] * 32}, "finite"),
    ],
)
def test_wrong_tensors_are_named(tensors: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config(file_with(tmp_path, tensors))


def test_yarn_and_divisors(tmp_path: Path) -> None:
    path = file_with(tmp_path, {"rope_freqs.weight": [1.0] * 32}, rope__scaling__type="yarn")
    with pytest.raises(
        ConfigError, match=r"must not have both YaRN and the tensor rope_freqs\.weight"
    ):
        read_config(path)
