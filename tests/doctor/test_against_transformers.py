"""What the rules say about transformers, tried on the installed version."""

from typing import Any

import pytest
import torch

from whorl.doctor import RULES

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


def config_of(name: str, **more: Any) -> Any:
    keys = {**RULES[name].trigger.config, **more}
    return transformers.AutoConfig.for_model(**keys)


def frequencies(config: Any) -> torch.Tensor:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding(config).inv_freq


def test_rope_scaling_replaces_rope_parameters() -> None:
    assert config_of("two-dictionaries").rope_parameters["rope_type"] == "linear"


def test_rope_type_wins_over_type() -> None:
    assert config_of("two-types").rope_parameters["rope_type"] == "linear"


def test_a_lone_factor_is_ignored() -> None:
    plain = frequencies(transformers.LlamaConfig(hidden_size=4096, num_attention_heads=32))
    assert torch.equal(frequencies(config_of("lone-factor")), plain)


def test_a_missing_base_is_10000() -> None:
    assert config_of("theta-missing").rope_parameters["rope_theta"] == 10_000.0


def test_the_base_inside_wins() -> None:
    assert config_of("theta-disagrees").rope_parameters["rope_theta"] == 500_000.0


def test_a_config_of_version_5_has_no_base_beside() -> None:
    config = config_of("theta-inside-only")
    assert not hasattr(config, "rope_theta")
    assert "rope_theta" not in config.to_dict()


def test_default_is_not_in_the_table() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    assert "default" not in ROPE_INIT_FUNCTIONS
    assert "linear" in ROPE_INIT_FUNCTIONS


def test_a_missing_original_is_the_context() -> None:
    found = config_of("original-missing").rope_parameters
    assert found["original_max_position_embeddings"] == 131072


def test_an_mscale_alone_is_ignored() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scales = {}
    for name in ("mscale-alone", "mscale-without-mla", "attention-factor-dropped"):
        config = config_of(name)
        scales[name] = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")[1]
    assert scales["mscale-alone"] == pytest.approx(1.138629, abs=1e-6)
    assert scales["mscale-without-mla"] == 1.0
    assert scales["attention-factor-dropped"] == 1.0


def test_truncate_inside_a_layer_type_is_ignored_and_the_fix_helps() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from whorl import doctor

    def compute(config: Any, **more: Any) -> torch.Tensor:
        found: torch.Tensor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu", **more)[0]
        return found

    keys = RULES["truncate-nested"].trigger.config
    inner = keys["rope_parameters"]["full_attention"]
    flat = transformers.LlamaConfig(**{**keys, "model_type": "llama", "rope_parameters": inner})
    nested = transformers.Olmo3Config(**keys)
    fixed = transformers.Olmo3Config(**doctor.examine(keys).fixed())
    right = compute(flat)
    assert not torch.equal(compute(nested, layer_type="full_attention"), right)
    assert torch.equal(compute(fixed, layer_type="full_attention"), right)


@pytest.mark.parametrize("family", ["mixtral", "minimax", "ministral"])
def test_a_null_head_does_not_load(family: str) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = config_of("head-dim-null", model_type=family)
    with pytest.raises(TypeError, match="NoneType"):
        ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")


def test_a_part_is_ignored_by_llama() -> None:
    assert len(frequencies(config_of("partial-ignored"))) == 64


def test_an_odd_head_is_refused() -> None:
    with pytest.raises(Exception, match="even rotary dimension"):  # a class of huggingface_hub
        config_of("odd-head")


def test_proportional_without_a_share_turns_every_pair() -> None:
    assert bool((frequencies(config_of("proportional-whole")) > 0).all())


def test_float32_angles_are_off_as_said() -> None:
    config = transformers.LlamaConfig(
        hidden_size=4096, num_attention_heads=32, rope_parameters={"rope_theta": 500000.0}
    )
    exact = 500000.0 ** (-torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    for length, off in ((131_072, False), (1_048_576, True)):
        position = torch.arange(length - 64, length, dtype=torch.float64)[:, None]
        angles = position.float() * frequencies(config)
        assert (float((angles.double() - position * exact).abs().max()) > 0.02) is off
