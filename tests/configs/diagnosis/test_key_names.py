"""Keys that are misspelt or in the wrong dictionary."""

from whorl.configs import diagnosis
from whorl.configs.diagnosis import RULES
from whorl.configs.diagnosis.engine import LLAMA

from .findings import ORIGINAL, YARN, said, said_of


def test_an_unknown_key_is_renamed_only_to_what_its_value_fits() -> None:
    scaling = {"rope_type": "yarn", "scaling_factor": 4.0, "beta_fst": 16, ORIGINAL: 1024}
    found = diagnosis.diagnose({**LLAMA, "rope_scaling": scaling})
    said = {f.where: (f.message, f.fixable) for f in found.warnings if f.rule == "unknown-key"}
    assert said == {
        "rope_scaling.scaling_factor": (
            "nothing reads 'scaling_factor'; did you mean 'factor'?",
            False,
        ),
        "rope_scaling.beta_fst": ("nothing reads 'beta_fst'; did you mean 'beta_fast'?", True),
    }
    fixed = found.fixed()["rope_scaling"]
    assert fixed == {"rope_type": "yarn", "scaling_factor": 4.0, "beta_fast": 16, ORIGINAL: 1024}
    lists = {"rope_type": "longrope", **YARN, "shrt_factor": 1.0, "long_factor": [2.0] * 64}
    assert (
        "shrt_factor"
        in diagnosis.diagnose({**LLAMA, "rope_scaling": lists}).fixed()["rope_scaling"]
    )


def test_an_unknown_key_beside_the_right_one() -> None:
    scaling = {"rope_type": "linear", "factor": 4.0, "Factor": 8.0}
    (found,) = diagnosis.diagnose({**LLAMA, "rope_scaling": scaling}).warnings
    assert found.message == "nothing reads 'Factor'; 'factor' is also there, and read."
    assert found.remedy == "Keep the correct one of the two values."
    assert not found.fixable


def test_letters_that_look_like_others_are_spelt_out() -> None:
    ((rule, message),) = said(rope_thetа=5e5)
    assert rule == "misspelt-key"
    assert message == (
        "nothing reads 'rope_thet\u0430' (written 'rope_thet\\u0430'); did you mean 'rope_theta'?"
    )
    ((_, message),) = said(rope_scaling={"rope_type": "y\u0430rn", **YARN})
    assert message == (
        "rope_type 'y\u0430rn' (written 'y\\u0430rn') is not known; did you mean 'yarn'?"
    )
    wide = "".join(chr(ord(c) + 0xFEE0) for c in "llama")
    ((_, message),) = said(model_type=wide, rope_theta=1e4)
    assert message.endswith("is not known; did you mean 'llama'?")


def test_one_letter_of_a_key_may_be_another() -> None:
    for name in ("rope_thetq", "rope_tehta", "ropetheta"):
        assert [rule for rule, _ in said(**{name: 5e5})] == ["misspelt-key"]
    assert said(rope_percent=1) == []


def test_a_null_makes_room_for_a_rename() -> None:
    scaling = {"rope_type": None, "type": "linear", "factor": 4.0}
    found = diagnosis.diagnose({**LLAMA, "rope_scaling": scaling})
    assert [f.rule for f in found.errors] == ["old-type-key"]
    after = found.correct()
    assert after.config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert after.errors == ()


def test_a_slip_in_layer_types_is_named_there() -> None:
    config = RULES["unused-parameters"].near_miss.config
    config["layer_types"] = ["sliding_attention", "full_atention"]
    found = diagnosis.diagnose(config)
    (error,) = found.errors
    assert (error.rule, error.where) == ("unused-parameters", "layer_types")
    assert error.message == "layer_types contains 'full_atention'; did you mean 'full_attention'?"
    assert found.fixed() == RULES["unused-parameters"].near_miss.config


def test_parameters_beside_those_of_layer_types() -> None:
    config = RULES["unused-parameters"].near_miss.config
    config["rope_parameters"] |= {"factor": 8.0, "rope_theta": 5.0, "truncate": False}
    found = [f for f in diagnosis.diagnose(config).warnings if f.rule == "ignored-key"]
    assert [(f.where, f.message) for f in found] == [
        (
            f"rope_parameters.{name}",
            f"{name} is {value} beside the parameters of layer types, where nothing reads it.",
        )
        for name, value in (("factor", 8), ("rope_theta", 5))
    ]
    assert found[0].remedy == "Move it into the parameters of each layer type that it is for."


def test_layer_types_that_do_not_rotate_are_no_unknown_keys() -> None:
    keys = {"full_attention": None, "sliding_attention": None}
    config = {**RULES["unused-parameters"].near_miss.config, "rope_parameters": keys}
    assert said_of(config) == []
