"""Wrong values in configs of transformers: a reading or a ConfigError that names the key."""

import json
import math
from contextlib import nullcontext
from typing import Any

import pytest

from tests.effort import bounded
from whorl.configs import ConfigError, read_config
from whorl.configs.huggingface.defaults import KEYS

#: What could make a reader count for long.
LARGE: tuple[Any, ...] = (*(2**31, 10**5000, 10**30, 1e308, math.inf, ["x"] * 3000, [0.5] * 3000),)
HOSTILE: tuple[Any, ...] = (
    *(None, True, "", "many", [], {}, [1, "2"], {"a": {}}, 0, -1, 1.5, 7),
    *(math.nan, -math.inf, 1e-320, *LARGE),
)
ROPE = (
    *("type", "rope_type", "rope_theta", "factor", "attention_factor", "beta_fast", "beta_slow"),
    *("mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor", "alpha"),
    *("low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    *("partial_rotary_factor", "llama_4_scaling_beta", "short_mscale", "long_mscale"),
)
SEEDS: tuple[dict[str, Any], ...] = (
    {"model_type": "llama", "rope_scaling": {"type": "yarn", "factor": 4.0}},
    {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    {"model_type": "phimoe", "rope_scaling": {"type": "longrope"}},
    {"model_type": "deepseek_v3", "rope_scaling": {"type": "llama3", "factor": 4.0}},
    {"model_type": "glm4_moe", "rope_scaling": {"type": "proportional"}},
)


def outcome(data: dict[str, Any], counted: bool = True) -> str:
    """Read and build all of it; what cannot be read must say so in the one way.

    counted: whether there must be few calls, the counting of which takes as long again.
    """
    try:
        with bounded(what=data) if counted else nullcontext():
            found = read_config(data)
            json.dumps(found.to_dict(), allow_nan=False)
            for group in found.groups:
                if group.rotation is not None:
                    group.rotation.build(table_length=0)
        return "read"
    except ConfigError as error:
        said = str(error)
        assert said.endswith((".", "?"))
        assert len(said) < 600, said
        return said


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed["rope_scaling"]["type"])
def test_hostile_values_give_a_reading_or_a_clear_error(seed: dict[str, Any]) -> None:
    errors = 0
    for value in HOSTILE:
        for key in ROPE:
            rope = {**seed["rope_scaling"], key: value}
            errors += outcome({**seed, "rope_scaling": rope}, value in LARGE) != "read"
    assert errors > 50


@pytest.mark.parametrize("model_type", ["llama", "gemma4_text", "llama4_text", "llava"])
def test_hostile_keys_beside_the_parameters(model_type: str) -> None:
    keys = [*KEYS, "model_type", "rope_parameters", "rope_scaling", "no_rope_layers"]
    keys += ["per_layer_config", "text_config", "global_head_dim", "mlp_layer_types"]
    found = [outcome({"model_type": model_type, k: v}, v in LARGE) for k in keys for v in HOSTILE]
    errors = sum(one != "read" for one in found)
    assert errors > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"hidden_size": "wide"},
            r"hidden_size must be a whole number from 1 to \d+; got the string 'wide'",
        ),
        ({"num_attention_heads": 0}, "num_attention_heads must be a whole number from 1"),
        ({"hidden_size": 7}, "must be a width of heads"),
        ({"head_dim": 15}, "head_dim must be even"),
        ({"rope_theta": math.nan}, "rope_theta must be a finite number above 0; got nan"),
        ({"rope_theta": "1e4"}, r"above 0; got the string '1e4'; write it without quotes\."),
        ({"head_dim": "64"}, r"from 1 to 8192; got the string '64'; write it without quotes\."),
        ({"rope_theta": "50,000,000"}, r"string '50,000,000'; write 50000000, without quotes\."),
        ({"rope_theta": "500k"}, r"above 0; got the string '500k'\.$"),
        ({"rope_theta": True}, r"must be a finite number above 0; got true\."),
        ({"rope_scaling": [1]}, r"rope_scaling must be an object; got \[1\]"),
        ({"rope_scaling": {"type": "yarm"}}, "'yarm' is not known; did you mean 'yarn'"),
        (
            {"rope_scaling": {"type": "mrope"}},
            "'mrope' is not known: it belongs to vision-language",
        ),
        ({"rope_scaling": {"type": 3}}, r"rope_scaling\.rope_type must be a string; got 3"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor is missing; linear"),
        (
            {"rope_scaling": {"type": "linear", "factor": -2}},
            r"rope_scaling\.factor must be a finite number above 0; got -2",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 0.5}},
            "rope_scaling: YaRN: factor must be a finite number >= 1",
        ),
        (
            {"rope_scaling": {"type": "llama3", "factor": 8.0}},
            r"rope_scaling\.low_freq_factor is missing",
        ),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
            r"rope_scaling\.long_factor is missing",
        ),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "must hold 64 factors, one for each pair",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 1.5}},
            r"partial_rotary_factor must be above 0 and at most 1, the rotated share of the 128",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 1e-9}},
            r"partial_rotary_factor must be at least 1 / 128, so that one of the 128 channels of a",
        ),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be a whole number from 0 to"),
        ({"layer_types": [1]}, "layer_types must be a list of strings"),
        ({"layer_types": [f"t{n}" for n in range(32)] * 2}, "read"),
        (
            {"layer_types": [f"t{n}" for n in range(500)], "num_hidden_layers": 500},
            "layers must be of at most 100 kinds; got 500",
        ),
        ({"model_type": ["llama"]}, r"model_type must be a string; got \['llama'\]"),
        (
            {
                "layer_types": ["a", "b"],
                "rope_parameters": {"a": {"rope_type": "default"}},
            },
            r"rope_parameters must hold parameters, or null, for the layer type 'b'; it has 'a'",
        ),
    ],
)
def test_messages_name_the_key_and_what_it_must_be(change: dict[str, Any], message: str) -> None:
    data = {"model_type": "llama", **change}
    if message == "read":
        assert outcome(data) == "read"
        return
    with pytest.raises(ConfigError, match=message):
        read_config(data)
