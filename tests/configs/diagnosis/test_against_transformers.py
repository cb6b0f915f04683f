"""What the rules say about transformers, tried on the installed version."""

from typing import Any

import pytest
import torch

from tests.configs.census import ROTARY, without_timm
from tests.configs.own_code import config_of as made
from tests.configs.own_code import tables_of
from tests.peers import needs_transformers_5
from whorl.configs import diagnosis
from whorl.configs.diagnosis import RULES
from whorl.configs.diagnosis.engine import LLAMA
from whorl.configs.huggingface import classes, defaults

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.filterwarnings("ignore"), needs_transformers_5]


def config_of(name: str, **more: Any) -> Any:
    keys = {**RULES[name].trigger.config, **more}
    return transformers.AutoConfig.for_model(**keys)


def frequencies(config: Any) -> torch.Tensor:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding(config).inv_freq


@pytest.mark.slow
def test_rope_scaling_replaces_rope_parameters() -> None:
    assert config_of("two-dictionaries").rope_parameters["rope_type"] == "linear"


def test_rope_type_wins_over_type() -> None:
    assert config_of("two-types").rope_parameters["rope_type"] == "linear"


@pytest.mark.slow
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

    def compute(config: Any, **more: Any) -> torch.Tensor:
        found: torch.Tensor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu", **more)[0]
        return found

    keys = RULES["truncate-nested"].trigger.config
    inner = keys["rope_parameters"]["full_attention"]
    flat = transformers.LlamaConfig(**{**keys, "model_type": "llama", "rope_parameters": inner})
    nested = transformers.Olmo3Config(**keys)
    fixed = transformers.Olmo3Config(**diagnosis.diagnose(keys).fixed())
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


REFUSED = [
    ("not-an-integer", {}, "expected int, got float"),
    ("not-an-integer", {"max_position_embeddings": None}, "expected int, got NoneType"),
    ("layer-list-length", {}, "must be equal to the number of `layer_types`"),
    ("heads-refused", {}, "is not a multiple of the number of attention"),
    ("heads-refused", {"head_dim": 128}, "is not a multiple of the number of attention"),
    ("type-refused", {}, "must be one of"),
    ("type-refused", {"model_type": "phi4_multimodal"}, "must be one of"),
    ("type-refused", {"model_type": "phimoe"}, "short_mscale"),
    ("su-original", {}, "Missing required keys in `rope_parameters`"),
]


@pytest.mark.parametrize(("name", "more", "message"), REFUSED)
def test_it_is_refused(name: str, more: dict[str, Any], message: str) -> None:
    found = diagnosis.diagnose({**RULES[name].trigger.config, **more})
    assert name in {finding.rule for finding in found.errors}
    with pytest.raises(Exception, match=message):
        config_of(name, **more)
    near = RULES[name].near_miss.config
    assert transformers.AutoConfig.for_model(**near).model_type == near["model_type"]


@pytest.mark.slow
def test_which_families_want_heads_that_divide() -> None:
    found = set()
    with without_timm():
        for rotary in ROTARY.values():
            sizes = {"hidden_size": 4096, "num_attention_heads": 33, "num_key_value_heads": 33}
            try:
                rotary.config_class(**sizes, head_dim=128)
            except Exception as error:
                if "4096" in str(error):
                    found.add(rotary.model_type)
    assert found == classes.HEADS_DIVIDE


def refuses(family: str, **keys: Any) -> bool:
    try:
        made(family, **keys)
    except Exception:  # classes of huggingface_hub
        return True
    return False


@pytest.mark.slow
def test_a_class_takes_no_other_type_than_that_of_its_default() -> None:
    takes = []
    for family in ROTARY:
        for name in (defaults.get_entry(family) or {})["keys"]:
            usual = classes.get_class_default(family, name)
            other = float(usual) if type(usual) is int else int(usual) if usual is True else None
            if other is not None and not refuses(family, **{name: other}):
                takes.append((family, name))
    assert takes == []


@pytest.mark.slow
def test_which_families_take_or_fill_a_head_of_null() -> None:
    kept, filled, refused = set(), set(), set()
    for family in ROTARY:
        if refuses(family, head_dim=None):
            refused.add(family)
        elif getattr(made(family, head_dim=None), "head_dim", None) is not None:
            filled.add(family)
        if made(family).to_dict().get("head_dim", 0) is None:
            kept.add(family)
    assert filled == classes.FILL_HEADS
    assert kept == set(classes.NULL_HEADS)
    declared = {
        family for family in ROTARY if type(classes.get_class_default(family, "head_dim")) is int
    }
    assert declared - refused == set(classes.OPTIONAL_HEADS)
    assert refused - declared == set(classes.NO_HEADS)


def test_which_families_take_head_dim_for_the_rotated_part() -> None:
    found = {}
    for family in ROTARY:
        if classes.get_class_default(family, "qk_rope_head_dim") is None:
            continue
        config = made(family, head_dim=96)
        pairs = len(tables_of(family, config)[0].inv_freq)
        if 2 * pairs != config.qk_rope_head_dim:
            found[family] = pairs / 48
    assert found == classes.LATENT


@pytest.mark.slow
def test_which_families_put_their_own_head_in_place() -> None:
    sizes = {"hidden_size": 1024, "num_attention_heads": 8}
    found = []
    for family in ROTARY:
        if not refuses(family, **sizes, head_dim=96):
            given = made(family, **sizes, head_dim=96).to_dict().get("head_dim")
            found += [family] if given == 128 else []
    (table,) = tables_of("roformer", made("roformer", **sizes, head_dim=96))  # its code divides
    assert len(table.inv_freq) == 64
    assert sorted([*found, "roformer"]) == list(classes.OWN_HEADS)


@pytest.mark.slow
def test_no_key_of_a_class_is_taken_for_a_slip() -> None:
    for family in ROTARY:
        keys = {"model_type": family, **dict.fromkeys(made(family).to_dict(), None)}
        found = diagnosis.diagnose({**keys, "model_type": family})
        assert "misspelt-key" not in {finding.rule for finding in found.findings}, family
    lists = {"rope_theta": [1e4, 1e4], "partial_rotary_factors": [0.5, 1.0]}
    step = {"layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2}
    found = diagnosis.diagnose({"model_type": "step3p5", **step, **lists})
    assert (found.errors, found.warnings) == ((), ())


def test_lists_of_another_length_stop_the_model() -> None:
    keys = {**RULES["layer-list-length"].near_miss.config, "model_type": "smollm3"}
    keys.update(no_rope_layers=[1], num_hidden_layers=2)
    assert "layer-list-length" in {finding.rule for finding in diagnosis.diagnose(keys).errors}
    config = transformers.SmolLM3Config(**keys)
    with pytest.raises(IndexError):
        [config.no_rope_layers[layer] for layer in range(config.num_hidden_layers)]


def test_nested_parameters_of_llama_are_not_read_and_the_fix_helps() -> None:
    inner = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}
    keys = {**LLAMA, "rope_parameters": {"full_attention": inner}}
    found = diagnosis.diagnose(keys)
    assert [finding.rule for finding in found.errors] == ["unused-parameters"]
    assert "unscaled, by rope_theta 10000" in found.errors[0].message
    plain = frequencies(transformers.LlamaConfig(**LLAMA))
    assert torch.equal(frequencies(transformers.LlamaConfig(**keys)), plain)
    right = frequencies(transformers.LlamaConfig(**{**LLAMA, "rope_parameters": inner}))
    assert torch.equal(frequencies(transformers.LlamaConfig(**found.fixed())), right)


def test_an_old_type_key_does_not_scale_gemma() -> None:
    keys = RULES["old-type-key"].trigger.config
    config = transformers.Gemma3TextConfig(**keys)
    assert config.rope_parameters["full_attention"]["rope_type"] == "default"
    fixed = transformers.Gemma3TextConfig(**diagnosis.diagnose(keys).fixed())
    assert fixed.rope_parameters["full_attention"]["rope_type"] == "linear"


def test_a_slip_in_a_layer_type_loses_its_scaling() -> None:
    config = transformers.Gemma3TextConfig(**RULES["unused-parameters"].trigger.config)
    assert config.rope_parameters["full_attention"]["rope_type"] == "default"


def test_the_text_does_not_read_what_stands_beside_it() -> None:
    config = config_of("beside-the-text")
    assert config.text_config.rope_parameters["rope_type"] == "default"
