"""What ``inspect`` says about known models, and what it refuses."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from whorl.configs import ConfigError, presets, read_config
from whorl.configs.inspection import GroupReport, Inspection, inspect

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def only(found: Inspection) -> GroupReport:
    (report,) = found.groups
    return report


def named(found: Inspection, name: str) -> GroupReport:
    (report,) = [r for r in found.groups if r.group.name == name and r.encoding is not None]
    return report


def test_llama_3_1() -> None:
    report = only(inspect("llama-3.1-8b"))
    assert (report.layout, report.base, report.rotated, report.pairs) == ("half", 5e5, 128, 64)
    assert report.fastest == pytest.approx(math.tau)
    slowest = math.tau * 500_000 ** (126 / 128) * 8
    assert report.slowest == pytest.approx(slowest)
    never = [i for i in range(64) if math.tau * 500_000 ** (2 * i / 128) > 8192]
    assert report.trained is not None
    assert (report.trained.never, report.trained.first) == (len(never), never[0]) == (29, 35)
    assert report.claimed is not None
    assert (report.claimed.tokens, report.claimed.never) == (131_072, 25)
    assert report.attention_scale == 1.0
    assert report.description is not None
    assert report.description.effective_context == 8 * 8192


def test_gemma_3_has_two_ways_and_an_unknown_length_of_training() -> None:
    found = inspect("gemma-3-4b", length=500_000)
    full, local = named(found, "full_attention"), named(found, "sliding_attention")
    assert (full.base, local.base) == (1e6, 1e4)
    assert full.trained is None
    assert full.description is not None
    assert full.description.effective_context is None
    assert full.at_length is not None
    assert full.at_length.new is None
    assert local.at_length is not None
    assert (local.at_length.distance, local.at_length.new) == (1024, 0)
    assert local.trained is not None
    assert local.trained.tokens == 1024
    assert "does not say how many training had" in found.verdict
    assert "the window limits distances to 1,024" in found.verdict
    told = named(inspect("gemma-3-4b", trained=32_768), "full_attention")
    assert told.description is not None
    assert told.description.effective_context == 8 * 32_768


def test_deepseek_v3_moves_its_scale_into_the_softmax() -> None:
    report = only(inspect("deepseek-v3"))
    assert report.group.softmax_scale == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    assert report.attention_scale == 1.0
    assert report.layout == "interleaved"


def test_gpt_oss_gpt_neox_and_modernbert() -> None:
    oss = named(inspect("gpt-oss-20b"), "full_attention")
    assert oss.attention_scale == pytest.approx(0.1 * math.log(32) + 1)
    neox = only(inspect("gpt-neox-20b"))
    assert (neox.rotated, neox.head_dim, neox.pairs) == (24, 96, 12)
    bert = inspect("modernbert-base")
    assert named(bert, "full_attention").base == 160_000
    assert named(bert, "sliding_attention").base == 10_000


def test_phi_3_5_shows_the_factors_of_the_length_asked_for() -> None:
    config = presets.load("phi-3.5-mini")["rope_scaling"]
    short, long = only(inspect("phi-3.5-mini", length=4096)), only(inspect("phi-3.5-mini"))
    assert short.fastest == pytest.approx(math.tau * config["short_factor"][0])
    assert long.fastest == pytest.approx(math.tau * config["long_factor"][0])
    assert long.attention_scale == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))


def test_layers_without_positions_are_shown() -> None:
    found = inspect("smollm3-3b")
    rotated, still = found.groups
    assert len(rotated.group.layers) == 27
    assert still.encoding is None
    assert still.group.layers == tuple(range(3, 36, 4))
    assert "9 full_attention layers have no positions" in found.verdict
    assert still.to_dict()["pairs"] is None


def test_a_model_without_rotation() -> None:
    found = inspect({"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4})
    assert found.groups == ()
    assert found.verdict.startswith("bert has no rotary embedding.")
    assert str(found).startswith("bert has no rotary embedding.")


def test_a_length_past_training() -> None:
    report = only(inspect("mistral-7b-v0.3", length=65_536))
    at = report.at_length
    assert at is not None
    never = [i for i in range(64) if math.tau * 1e6 ** (2 * i / 128) > 32_768]
    assert (at.new, at.first) == (len(never), never[0])
    assert at.excess == pytest.approx(2.0)
    assert 0 < at.float32_error < 0.01
    assert at.alike is None
    inside = only(inspect("mistral-7b-v0.3", length=32_768)).at_length
    assert inside is not None
    assert (inside.new, inside.first, inside.excess) == (0, None, None)


def test_a_small_base_makes_distances_look_alike() -> None:
    report = only(inspect({**LLAMA, "head_dim": 8, "rope_theta": 30.0}, length=9000))
    assert report.at_length is not None
    assert report.at_length.alike is not None
    assert report.at_length.alike.distance < 9000
    assert report.description is not None
    assert report.description.effective_context is None


def test_the_frequencies_follow_parity() -> None:
    nested = {
        **LLAMA,
        "model_type": "gemma3_text",
        "head_dim": 64,
        "layer_types": ["full_attention", "sliding_attention"],
        "max_position_embeddings": 131_072,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 150_000.0,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "truncate": False,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    }
    right = named(inspect(nested), "full_attention")
    theirs = named(inspect(nested, parity="transformers"), "full_attention")
    assert right.wavelengths != theirs.wavelengths
    outcome = {c.framework: c for c in right.frameworks}["transformers"]
    assert (outcome.outcome, outcome.differs) == ("differs", ("inverse frequencies",))
    assert outcome.inv_freq is not None
    assert outcome.inv_freq > 0.1
    assert "truncate is not read" in outcome.remarks[0].text


def test_a_file_wins_over_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "llama-3.1-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**LLAMA, "rope_theta": 7.0}))
    assert only(inspect("llama-3.1-8b")).base == 7.0
    assert only(inspect(folder)).base == 7.0


def test_a_wrapped_text_model_is_compared_by_its_text_part() -> None:
    config = {"model_type": "llava", "text_config": presets.load("llama-2-7b")}
    report = only(inspect(config))
    assert report.base == 10_000
    assert len(report.frameworks) == 4


def test_one_layer_type() -> None:
    found = inspect("gemma-3-4b", layer_type="sliding_attention")
    assert [r.group.name for r in found.groups] == ["sliding_attention"]
    with pytest.raises(ConfigError, match="no layer type 'slidng_attention'; did you mean"):
        inspect("gemma-3-4b", layer_type="slidng_attention")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, r"length must be a number of tokens, an int from 1 to 2\*\*40; got 0"),
        ({"length": 2.5}, r"length must be a number of tokens, an int from 1 to 2\*\*40; got 2.5"),
        (
            {"trained": True},
            r"trained must be a number of tokens, an int from 1 to 2\*\*40; got True",
        ),
        ({"factor": 2.0}, "factor needs extend=, the name of the scaling"),
        (
            {"trained": 4096},
            r"trained must be 8192, as the config says, or be left out; got trained=4096",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        inspect("llama-3.1-8b", **options)


@pytest.mark.parametrize("name", ["llama-3.1-8", "no/llama.json", "x" * 200])
def test_neither_a_file_nor_a_preset(name: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .* and no preset of that name"):
        inspect(name)


def test_json_holds_the_reading_and_more() -> None:
    found = inspect("qwen3-8b-yarn", length=100_000, extend="yarn").to_dict()
    (group,) = found["groups"]
    reading = read_config(presets.load("qwen3-8b-yarn")).groups[0].to_dict()
    assert {name: group[name] for name in reading} == reading
    assert len(group["wavelengths"]) == group["pairs"] == 64
    assert found["patch"]["rope_parameters"]["factor"] == pytest.approx(100_000 / 32_768)
    assert group["frameworks"][0]["framework"] == "transformers"


def test_a_short_text_does_not_change_what_a_model_reaches() -> None:
    """Short factors never serve the lengths that the reach is about."""
    short, whole = only(inspect("phi-3.5-mini", length=3000)), only(inspect("phi-3.5-mini"))
    assert short.claimed == whole.claimed
    assert short.furthest == whole.description
    assert short.to_dict()["reach"] == whole.to_dict()["reach"]
    assert short.description is not None
    assert short.description != whole.description
    reach = f"{whole.to_dict()['reach']:,}"
    for length in (None, 3000):
        found = inspect("phi-3.5-mini", length=length)
        assert f"their angles stay in distribution up to {reach} tokens" in found.verdict
        assert f"{reach} tokens (limited by pair" in str(found)
    assert short.at_length is not None
    assert short.at_length.new == 0


@pytest.mark.parametrize(("window", "bound"), [(4096, 4096), (32_768, None), (99_999, None)])
def test_a_window_as_long_as_the_claim_bounds_nothing(window: int, bound: int | None) -> None:
    config = {**presets.load("mistral-7b-v0.3"), "sliding_window": window}
    found = inspect(config)
    assert only(found).bound == bound
    assert ("limited by the window" in str(found)) == (bound is not None)
    assert ("have wavelengths longer than 32,768 tokens" in found.verdict) == (bound is None)
