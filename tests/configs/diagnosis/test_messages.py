"""What is said where several rules could speak, and what must stay quiet."""

import math
from typing import Any

import pytest
import torch

from whorl.configs import diagnosis
from whorl.configs.diagnosis import RULES
from whorl.configs.diagnosis.engine import LLAMA

ORIGINAL = "original_max_position_embeddings"
YARN = {"factor": 4.0, "original_max_position_embeddings": 1024}
LISTS = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}


def said(**keys: Any) -> list[tuple[str, str]]:
    return said_of({**LLAMA, **keys})


def said_of(config: dict[str, Any]) -> list[tuple[str, str]]:
    found = diagnosis.diagnose(config)
    return [(f.rule, f.message) for f in (*found.errors, *found.warnings)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("YaRN", "rope_type 'YaRN' is not known; did you mean 'yarn'?"),
        ("Llama3", "rope_type 'Llama3' is not known; did you mean 'llama3'?"),
        ("mrope", "rope_type 'mrope' is not a type that llama knows."),
        ("su", "rope_type 'su' is the old name of longrope; llama knows longrope only."),
    ],
)
def test_a_wrong_type_is_one_finding(given: str, message: str) -> None:
    assert said(rope_scaling={"rope_type": given, **YARN}) == [("unknown-type", message)]


def test_case_and_old_names_of_types_are_fixed() -> None:
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    for given, right in (("YaRN", "yarn"), ("su", "longrope")):
        scaling = {"type": given, **YARN, **lists}
        fixed = diagnosis.diagnose({**LLAMA, "rope_scaling": scaling}).fixed()
        assert fixed["rope_scaling"]["type"] == right


@pytest.mark.parametrize(
    ("model_type", "end"),
    [("LLaMA", "; did you mean 'llama'?"), ("zzzz", ".")],
)
def test_an_unknown_family_is_told(model_type: str, end: str) -> None:
    words = f"{model_type!r} is not known{end}"
    assert said(model_type=model_type, rope_theta=1e4) == [("unknown-family", words)]
    more = " It has no key of a rotary embedding either, so whether it rotates is not known."
    assert said(model_type=model_type) == [("unknown-family", words + more)]


def test_keys_of_an_unknown_family_are_named() -> None:
    ((rule, message),) = said(model_type="zzzz", rotary_pct=0.25)
    assert rule == "unknown-family"
    assert message.endswith("known. How its code uses rotary_pct is a guess.")


def test_no_model_type_is_no_unknown_one() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    found = diagnosis.diagnose(config).findings
    assert [(f.rule, f.message) for f in found] == [("no-model-type", "it is missing.")]
    found = diagnosis.diagnose({}).findings
    empty = "it is missing: the config is empty."
    assert [(f.rule, f.message) for f in found] == [("no-model-type", empty)]


def test_no_model_type_hides_no_other_error() -> None:
    config = {**LLAMA, "model_type": None, "rope_scaling": {"rope_type": "linear"}}
    assert [f.rule for f in diagnosis.diagnose(config).errors] == ["no-model-type", "unreadable"]


def test_whether_an_unknown_type_rotates_is_not_known() -> None:
    ((rule, message),) = said_of({"model_type": "foo_bar"})
    assert rule == "unknown-family"
    assert message == (
        "'foo_bar' is not known. It has no key of a rotary embedding either, so whether it rotates"
        " is not known."
    )
    part = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "foo"}}
    assert said_of(part) == []  # of a part without a sign nothing is expected


@pytest.mark.parametrize(
    "keys",
    [
        {"rotary_pct": 1.0},
        {"rope_ratio": 1},
        {"rotary_dim": 128},
        {"rotary_emb_base": 500000, "rope_theta": 500000.0},
        {
            "rope_base": 500000,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            "transformers_version": "5.0.0",
        },
    ],
)
def test_a_foreign_name_that_changes_nothing_is_no_fault(keys: dict[str, Any]) -> None:
    assert said(**keys) == []


def test_models_of_other_projects_may_read_their_own_names() -> None:
    assert said(model_type="chatglm", kv_channels=128, rope_ratio=500) == []


def test_parameters_beside_the_text_are_one_finding() -> None:
    text = {**LLAMA, "rope_theta": 10000.0}
    scaling = {"rope_type": "yarn", "factor": 4.0}
    config = {"model_type": "llava", "text_config": text, "rope_scaling": scaling}
    found = diagnosis.diagnose(config)
    assert [(f.rule, f.where) for f in found.findings] == [("beside-the-text", "rope_scaling")]
    repeated = {**config, "text_config": {**text, "rope_scaling": scaling}}
    assert diagnosis.diagnose(repeated).errors == ()
    own = {**config, "model_type": "musicflamingo", "rope_scaling": {"rope_type": "default"}}
    assert diagnosis.diagnose(own).errors == ()  # it rotates by time, besides its text


def test_the_base_is_held_against_the_context_unasked() -> None:
    def notes(context: int) -> set[str]:
        return {
            f.rule for f in diagnosis.diagnose({**LLAMA, "max_position_embeddings": context}).notes
        }

    assert "base-bound" in notes(1_048_576)
    assert "base-bound" not in notes(8192)


def test_an_empty_name_is_not_this_folder() -> None:
    with pytest.raises(ValueError, match=r"doctor: the name of the model is empty; pass a path"):
        diagnosis.diagnose("")


@pytest.mark.parametrize(
    ("keys", "rule", "message"),
    [
        (
            {"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 1024}},
            "transformers-refuses",
            "transformers 5.22.2 refuses it: rope_parameters.factor is missing.",
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": None}},
            "transformers-refuses",
            "transformers 5.22.2 refuses it: rope_parameters.rope_theta is null.",
        ),
        (
            {"model_type": "olmo3", "rope_theta": 1e6},
            "transformers-differs",
            "transformers 5.22.2 reads this config differently: sliding_attention layers base"
            " 500,000, not base 1,000,000.",
        ),
        (
            {"model_type": "gptj", "rotary_dim": 64, "rope_scaling": {"rope_type": "dynamic"}},
            "in-code",
            "the code of gptj fixes the frequencies and does not read rope_scaling, which is"
            " {'rope_type': 'dynamic'} here.",
        ),
        (
            {"model_type": "llama4_text", "attn_temperature_tuning": 4},
            "not-a-boolean",
            "attn_temperature_tuning is 4; transformers' llama4_text accepts true or false only.",
        ),
        (
            {"model_type": "falcon", "head_dim": 64},
            "head-dim-refused",
            "transformers' falcon computes head_dim and does not accept it.",
        ),
        (
            {"model_type": "youtu", "head_dim": 128},
            "head-dim-refused",
            "head_dim is 128, and the table that transformers' youtu makes with it does not fit"
            " qk_rope_head_dim 64.",
        ),
        (
            {"model_type": "qwen3", "head_dim": None},
            "not-an-integer",
            "head_dim is null; transformers' qwen3 accepts an integer only.",
        ),
        (
            {"model_type": "gpt_neox", "rotary_emb_base": 1e6, "rope_theta": 1e4},
            "theta-disagrees",
            "rotary_emb_base is 1000000, rope_theta is 10000.",
        ),
        (
            {
                "model_type": "stablelm",
                "partial_rotary_factor": 0.5,
                "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25},
            },
            "share-disagrees",
            "partial_rotary_factor is 0.25 here and 0.5 at partial_rotary_factor.",
        ),
    ],
)
def test_one_error_says_it(keys: dict[str, Any], rule: str, message: str) -> None:
    found = diagnosis.diagnose({**LLAMA, **keys})
    assert [(f.rule, f.message) for f in found.errors] == [(rule, message)]


def test_lists_of_factors_that_were_changed_about() -> None:
    lists = {"short_factor": [8.0] * 64, "long_factor": [1.0] * 64}
    found = said(rope_scaling={"rope_type": "longrope", **YARN, **lists})
    assert ("factor-lists-swapped", "short_factor adds up to 512, long_factor to 64.") in found


def test_a_rule_about_a_key_speaks_for_the_general_ones() -> None:
    """Each is left out only while another says why."""
    config = {**LLAMA, "partial_rotary_factor": 0.5}
    assert [f.rule for f in diagnosis.diagnose(config).warnings] == ["partial-ignored"]
    assert diagnosis.diagnose(config).errors == ()
    found = diagnosis.diagnose(config, ignore=["partial-ignored"])
    assert [f.rule for f in found.errors] == ["transformers-differs"]


def test_parameters_of_attention_are_no_model_without_layers() -> None:
    config = {"model_type": "dbrx", "attn_config": {"rope_theta": 500000}}
    assert [f.rule for f in diagnosis.diagnose(config).findings] == ["transformers-differs"]


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
DEEPSEEK = {
    "type": "yarn",
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


@pytest.mark.parametrize("context", [131072, 16384])
def test_the_factor_of_linear_must_reach_the_claim(context: int) -> None:
    scaling = {"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": 4096}
    keys = {"max_position_embeddings": context, "rope_scaling": scaling}
    message = (
        "factor 2 extends 4096 tokens to 8192; max_position_embeddings is"
        f" {keys['max_position_embeddings']}."
    )
    assert said(**keys) == [("beyond-factor", message)]
    assert said(**{**keys, "max_position_embeddings": 8192}) == []
    assert said(**{**keys, "max_position_embeddings": 4096}) == []  # a note: max-is-trained
    ((rule, _),) = said(**{**keys, "max_position_embeddings": 6000})
    assert rule == "factor-mismatch"


def test_llama3_with_two_equal_lengths_contradicts_its_factor() -> None:
    keys = {"rope_theta": 5e5, "max_position_embeddings": 8192, "rope_scaling": LLAMA3}
    message = (
        "factor is 8, which extends the model, but max_position_embeddings and"
        " original_max_position_embeddings are both 8192, as in a model without an extension."
    )
    assert said(**keys) == [("factor-mismatch", message)]
    for context in (16384, 65536, 131072):  # no ratio is usual
        assert said(**{**keys, "max_position_embeddings": context}) == []
    ((rule, message),) = said(**{**keys, "max_position_embeddings": 4096})
    assert rule == "original-beyond-max"
    assert message == (
        "it is 8192, and max_position_embeddings is 4096, although factor 8 extends the model."
    )
    unscaled = {**LLAMA3, "factor": 1.0}
    assert said(**{**keys, "rope_scaling": unscaled}) == []


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
def test_llama3_without_its_base(name: str) -> None:
    keys = {"max_position_embeddings": 131072, name: LLAMA3}
    found = diagnosis.diagnose({**LLAMA, **keys}, ignore=["theta-inside-only"])
    assert [f.rule for f in (*found.errors, *found.warnings)] == ["theta-missing"]
    inside = "rope_parameters.rope_theta"
    assert found.warnings[0].where == ("rope_theta" if name == "rope_scaling" else inside)
    assert said(**keys, rope_theta=5e5) == []
    if name == "rope_scaling":  # a class with a default of its own
        assert said(**keys, model_type="smollm3") == []


@pytest.mark.parametrize("written", [True, False])
def test_latent_attention_needs_mscale_all_dim(written: bool) -> None:
    """Also where the keys of latent attention are left to the class."""
    alone = {k: v for k, v in DEEPSEEK.items() if k != "mscale_all_dim"}
    sizes = {"qk_rope_head_dim": 64} if written else {}
    config = {"model_type": "deepseek_v3", "max_position_embeddings": 163840, **sizes}
    message = (
        "mscale is 1 and mscale_all_dim is missing, so latent attention does not scale its"
        " softmax; with mscale_all_dim 1 it would scale it by 1.874."
    )
    assert said_of({**config, "rope_scaling": alone}) == [("mscale-alone", message)]
    assert said_of({**config, "rope_scaling": DEEPSEEK}) == []
    assert said(rope_scaling=alone, max_position_embeddings=163840) == []  # as without mscale


def test_the_advice_about_a_lone_mscale_has_its_value() -> None:
    for value, other in ((0.707, "0.707"), (1.0, "1")):
        scaling = {**DEEPSEEK, "mscale": value}
        del scaling["mscale_all_dim"]
        config = {"model_type": "deepseek_v2", "max_position_embeddings": 163840}
        (found,) = diagnosis.diagnose({**config, "rope_scaling": scaling}).warnings
        assert found.rule == "mscale-alone"
        assert found.remedy == (
            f"Add mscale_all_dim {other} if the model was trained like this (DeepSeek-V2 and -V3"
            " have two equal values); otherwise remove mscale."
        )


def test_bases_that_changed_places() -> None:
    full, window = {"rope_theta": 1e4}, {"rope_theta": 1e6}
    inside = "rope_parameters.sliding_attention.rope_theta", "rope_parameters.full_attention"
    for family, keys, local, whole in (
        (
            "gemma3_text",
            {"rope_theta": 1e4, "rope_local_base_freq": 1e6},
            *("rope_local_base_freq", "rope_theta"),
        ),
        (
            "modernbert",
            {"global_rope_theta": 1e4, "local_rope_theta": 1e6, "local_attention": 128},
            *("local_rope_theta", "global_rope_theta"),
        ),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": full, "sliding_attention": window}},
            *(inside[0], f"{inside[1]}.rope_theta"),
        ),
    ):
        config = {"model_type": family, "head_dim": 128, "hidden_size": 1024, **keys}
        findings = diagnosis.diagnose(config).warnings
        (found,) = [f for f in findings if f.rule == "local-base-larger"]
        assert found.where == local
        assert found.message == (
            f"the base is 1000000 in layers with a window ({local}) and 10000 in layers without a"
            f" window ({whole})."
        )
        assert found.remedy == (
            "Swap the two, if the model was trained with 10000 in layers with a window and 1000000"
            " in the others."
        )
    same = {"rope_theta": 1e4, "rope_local_base_freq": 1e4}
    assert said_of({"model_type": "gemma3_text", "head_dim": 128, **same}) == []


def test_every_quoted_number_is_named_and_corrected() -> None:
    scaling = {"type": "yarnn", "factor": "4.0", "original_max_position_embeddings": "1024"}
    config = {**LLAMA, "rope_theta": "5e5", "hidden_size": "4096", "rope_scaling": scaling}
    found = diagnosis.diagnose(config)
    assert [(f.rule, f.where) for f in found.errors] == [
        ("unknown-type", "rope_scaling.type"),
        ("quoted-number", "hidden_size"),
        ("quoted-number", "rope_theta"),
        ("quoted-number", "rope_scaling.factor"),
        ("quoted-number", "rope_scaling.original_max_position_embeddings"),
    ]
    assert found.errors[3].message == "factor is a string, not a number: '4.0'."
    right = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    fixed = found.fixed()
    assert fixed == {**LLAMA, "rope_theta": 5e5, "rope_scaling": right}
    assert [type(value) for value in fixed["rope_scaling"].values()] == [str, float, int]
    assert type(fixed["hidden_size"]) is int
    assert found.correct().errors == ()


def test_quoted_numbers_in_lists_and_words_for_switches() -> None:
    lists = {"short_factor": ["1.0"] * 64, "long_factor": [8.0] * 63 + ["08.0"]}
    scaling = {"rope_type": "longrope", "original_max_position_embeddings": 4096, **lists}
    found = diagnosis.diagnose(
        {**LLAMA, "max_position_embeddings": 131072, "rope_scaling": scaling}
    )
    assert [f.rule for f in found.errors] == ["quoted-number"] * 2
    assert [f.message for f in found.errors] == [
        "long_factor contains strings instead of numbers, the first at index 63: '08.0'.",
        "short_factor contains strings instead of numbers, the first at index 0: '1.0'.",
    ]
    fixed = found.fixed()["rope_scaling"]
    assert (fixed["short_factor"], fixed["long_factor"]) == ([1.0] * 64, [8.0] * 64)
    switch = {"model_type": "llama4_text", "head_dim": 128, "attn_temperature_tuning": "False"}
    assert diagnosis.diagnose({**LLAMA, **switch}).fixed()["attn_temperature_tuning"] is False


@pytest.mark.parametrize(
    ("keys", "where", "message", "remedy"),
    [
        ({"rope_theta": "500,000"}, "rope_theta", "'500,000'.", "Write 500000, without quotes."),
        ({"rope_theta": "1_000"}, "rope_theta", "'1_000'.", "Write 1000, without quotes."),
        (
            {"rope_theta": "4k"},
            "rope_theta",
            "'4k', perhaps 4000 (k = 1000).",
            "Write 4000 without quotes, if you mean that; --fix does not guess.",
        ),
        (
            {"max_position_embeddings": "4k"},
            "max_position_embeddings",
            "'4k', perhaps 4096 (k = 1024).",
            "Write 4096 without quotes, if you mean that; --fix does not guess.",
        ),
        *(
            (
                {"rope_theta": odd},
                "rope_theta",
                f"{odd!r}.",
                "Write the number that you mean, without quotes.",
            )
            for odd in ("nan", "", "0x10", "four", "\uff14")
        ),
    ],
)
def test_a_string_is_called_one(
    keys: dict[str, Any], where: str, message: str, remedy: str
) -> None:
    (found,) = diagnosis.diagnose({**LLAMA, **keys}).errors
    assert (found.rule, found.where) == ("quoted-number", where)
    assert found.message == f"{where} is a string, not a number: {message}"
    assert found.remedy == remedy
    assert found.fixable == ("--fix" not in remedy and "that you mean" not in remedy)


def test_all_strings_at_once_and_what_remains() -> None:
    scaling = {"rope_type": "yarn", "factor": " 4.0 ", ORIGINAL: "4k", "truncate": "False"}
    found = diagnosis.diagnose({**LLAMA, "rope_theta": "500,000", "rope_scaling": scaling})
    paths = ["rope_theta", "rope_scaling.factor", f"rope_scaling.{ORIGINAL}"]
    paths.append("rope_scaling.truncate")
    assert [(f.rule, f.where) for f in found.errors] == [("quoted-number", p) for p in paths]
    assert found.errors[3].message == "truncate is a string, not true or false: 'False'."
    after = found.correct()
    right = {**scaling, "factor": 4.0, "truncate": False}
    assert after.config == {**LLAMA, "rope_theta": 500000, "rope_scaling": right}
    assert [(f.rule, f.where) for f in after.errors] == [("quoted-number", paths[2])]
    (maybe,) = said(rope_scaling={"rope_type": "yarn", "factor": 4.0, "truncate": "perhaps"})[:1]
    assert maybe == ("quoted-number", "truncate is a string, not true or false: 'perhaps'.")


def test_strings_in_the_parameters_of_layer_types() -> None:
    full = {"rope_type": "linear", "factor": "8", "rope_theta": "x"}
    window = {"rope_type": "default", "rope_theta": "10_000"}
    keys = {"rope_parameters": {"full_attention": full, "sliding_attention": window}}
    config = {"model_type": "gemma3_text", "head_dim": 128, "hidden_size": 1024, **keys}
    found = diagnosis.diagnose(config)
    assert [f.where.removeprefix("rope_parameters.") for f in found.errors] == [
        "full_attention.factor",
        "full_attention.rope_theta",
        "sliding_attention.rope_theta",
    ]
    after = found.correct()
    assert after.config["rope_parameters"] == {
        "full_attention": {**full, "factor": 8},
        "sliding_attention": {**window, "rope_theta": 10000},
    }
    assert [f.where for f in after.errors] == ["rope_parameters.full_attention.rope_theta"]


def test_both_dictionaries_are_examined_and_corrected() -> None:
    keys: dict[str, dict[str, Any]] = {
        "rope_scaling": {"type": "Linear", "factor": "4"},
        "rope_parameters": {"rope_type": "linear", "factr": 4.0, "rope_theta": "10,000"},
    }
    found = diagnosis.diagnose({**LLAMA, **keys})
    assert {(f.rule, f.where) for f in found.findings if f.fixable} == {
        ("unknown-type", "rope_scaling.type"),
        ("quoted-number", "rope_scaling.factor"),
        ("quoted-number", "rope_parameters.rope_theta"),
        ("unknown-key", "rope_parameters.factr"),
    }
    after = found.correct()
    assert after.errors == ()
    assert after.config["rope_scaling"] == {"type": "linear", "factor": 4}
    assert after.config["rope_parameters"]["factor"] == 4.0
    # What they say is compared as numbers, so that quotes alone are no contradiction.
    same = {"rope_type": "linear", "factor": 4.0, "rope_theta": "10_000"}
    two = {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": same}
    assert [rule for rule, _ in said(**two)] == ["quoted-number"]


@pytest.mark.parametrize(
    ("family", "end"),
    [
        (
            "llama",
            "transformers 4 and 5 both use rope_scaling here; software that reads rope_parameters"
            " only uses that one.",
        ),
        (
            "zzzz",
            "transformers 4 and 5 both use rope_scaling, unless the model has its own code.",
        ),
        (
            "cohere2_moe",
            "transformers 5 uses rope_parameters in cohere2_moe; transformers 4 uses rope_scaling.",
        ),
        (
            "gemma3_text",
            "transformers 5 uses rope_scaling merged into rope_parameters in gemma3_text;"
            " transformers 4 uses rope_scaling.",
        ),
    ],
)
def test_which_of_two_dictionaries_counts(family: str, end: str) -> None:
    new: dict[str, Any] = {"rope_type": "default", "rope_theta": 5e5}
    if family == "gemma3_text":
        new = {"full_attention": new, "sliding_attention": new}
    types = {"layer_types": ["full_attention", "sliding_attention"]}
    two = {"rope_parameters": new, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    config = {**LLAMA, "model_type": family, "head_dim": 128, **two}
    config |= types if family == "gemma3_text" else {}
    (message,) = [m for rule, m in said_of(config) if rule == "two-dictionaries"]
    assert message.endswith(end)


@pytest.mark.parametrize(
    ("keys", "where", "message"),
    [
        ({"rope_theta": True}, "", "rope_theta must be a number above 1; got true."),
        ({"rope_theta": [1e4]}, "", "rope_theta must be a number above 1; got a list, [10000.0]."),
        ({"rope_theta": -5}, "", "rope_theta must be a number above 1; got -5."),
        ({"rope_theta": math.nan}, "", "rope_theta must be a number above 1; got NaN."),
        ({"rope_theta": -math.inf}, "", "rope_theta must be a number above 1; got -Infinity."),
        ({"rope_theta": 1}, "", "rope_theta must be a number above 1; got 1."),
        ({"model_type": 5}, "", "model_type must be a string; got 5."),
        (
            {"num_hidden_layers": 10**9},
            "",
            "num_hidden_layers must be a whole number from 0 to 2000; got 1000000000.",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", **YARN, "mscale_all_dim": -1.0}},
            "rope_scaling.mscale_all_dim",
            "mscale_all_dim must be a number, 0 or more; got -1.",
        ),
        ({"hidden_size": True}, "", "hidden_size must be a whole number above 0; got true."),
        (
            {"max_position_embeddings": 2**41},
            "",
            "max_position_embeddings must be a whole number from 1 to 1099511627776; got"
            " 2199023255552.",
        ),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": {"value": 4}}},
            "rope_scaling.factor",
            "factor must be a number; got an object, {'value': 4}.",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", **YARN, "beta_fast": -1}},
            "rope_scaling.beta_fast",
            "beta_fast must be a number, 0 or more; got -1.",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", **YARN, "truncate": 0}},
            "rope_scaling.truncate",
            "truncate must be true or false; got 0.",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", **YARN, "partial_rotary_factor": 1.5}},
            "rope_scaling.partial_rotary_factor",
            "partial_rotary_factor must be a number above 0 and at most 1; got 1.5.",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", **YARN, "factor": 1e308}},
            "rope_scaling.factor",
            "factor is 1e+308, and 1024 tokens times 1e+308 is more than any text has.",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", **YARN, **LISTS, "short_factor": 1.0}},
            "rope_scaling.short_factor",
            "short_factor must be a list of numbers; got 1.",
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "longrope",
                    **YARN,
                    **LISTS,
                    "short_factor": [1.0] * 3 + [None] * 61,
                }
            },
            "rope_scaling.short_factor",
            "short_factor[3] must be a number above 0; got null.",
        ),
        (
            {"rope_scaling": "yarn"},
            "rope_scaling",
            "rope_scaling must be an object or null; got the string 'yarn'.",
        ),
        (
            {
                "model_type": "qwen3",
                "layer_types": ["full_attention"] * 2,
                "rope_parameters": {"full_attention": 5},
            },
            "rope_parameters.full_attention",
            "full_attention must be an object or null; got 5.",
        ),
    ],
)
def test_a_value_that_its_key_cannot_have(keys: dict[str, Any], where: str, message: str) -> None:
    found = diagnosis.diagnose({**LLAMA, **keys})
    (error,) = [f for f in found.errors if f.rule == "impossible-value"]
    assert (error.where, error.message) == (where or next(iter(keys)), message)
    assert [f.rule for f in found.errors if f.rule in ("unreadable", "not-an-integer")] == []
    assert not any("inf" in f.message for f in found.findings)


def test_every_impossible_value_at_once() -> None:
    scaling = {"rope_type": "yarn", "factor": [4], "beta_fast": True, ORIGINAL: -1}
    found = diagnosis.diagnose({**LLAMA, "rope_theta": 0, "rope_scaling": scaling})
    paths = ["rope_theta", *(f"rope_scaling.{k}" for k in ("beta_fast", "factor", ORIGINAL))]
    assert [(f.rule, f.where) for f in found.errors] == [("impossible-value", p) for p in paths]


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "step3p5", "rope_theta": [1e4, 5e6], "layer_types": ["full_attention"] * 2},
        {"model_type": "openelm", "num_attention_heads": [8, 12], "head_dim": 64},
    ],
)
def test_lists_that_a_class_reads(config: dict[str, Any]) -> None:
    rules = [rule for rule, _ in said_of({**LLAMA, **config})]
    assert "impossible-value" not in rules


def test_phi_moe_is_not_told_to_change_its_config() -> None:
    lists = {"short_factor": [1.0] * 64, "long_factor": [8.0] * 64}
    scales = {"short_mscale": 1.25, "long_mscale": 1.25}
    scaling = {"type": "longrope", "original_max_position_embeddings": 4096, **lists, **scales}
    config = {"model_type": "phimoe", "max_position_embeddings": 131072, "rope_scaling": scaling}
    found = diagnosis.diagnose({**LLAMA, **config})
    assert found.errors == ()
    (finding,) = found.warnings
    assert finding.rule == "long-factor-unused"
    assert finding.message == (
        "transformers' phimoe uses short_factor for every text, also beyond 4096 tokens."
    )
    assert "the config is right" in finding.remedy


@pytest.mark.parametrize("name", ["nomic_bert", "llama"])
def test_published_names_are_said_where_they_change_something(name: str) -> None:
    base = 1000 if name == "nomic_bert" else 10000
    right = {"rotary_emb_base": base, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False}
    config = {**LLAMA, "model_type": name}
    assert said_of({**config, **right}) == []
    for key, value in (
        ("rotary_emb_base", 77777),
        ("rotary_emb_fraction", 0.5),
        ("rotary_emb_interleaved", True),
        ("rotary_scaling_factor", 2),
    ):
        rules = dict(said_of({**config, **right, key: value}))
        assert rules["foreign-name"].startswith(f"{name} does not read {key}, which is")


def test_half_positions_is_about_rotary_models() -> None:
    own = {"torch_dtype": "bfloat16", "auto_map": {"AutoModel": "modeling_x.X"}}
    sizes = {"d_model": 4096, "n_heads": 32, "n_layers": 2, "max_seq_len": 65536}
    alibi = {"model_type": "mpt", **sizes, "attn_config": {"alibi": True}, **own}
    assert diagnosis.diagnose(alibi).findings == ()
    turning = {**alibi, "attn_config": {"rope": True, "rope_theta": 10000.0}}
    (note,) = [f for f in diagnosis.diagnose(turning).findings if f.rule == "half-positions"]
    assert note.message == (
        "the model runs in bfloat16, which is exact for integers up to 256, and has up to"
        " 65536 positions; whether its own code (auto_map) computes positions in bfloat16 is not"
        " known."
    )


@pytest.mark.parametrize("length", [32768, 100_000, 10**9])
def test_the_bound_of_the_base_in_words(length: int) -> None:
    """The distance is that of the model, whatever the length, and the first."""
    frequencies = 10_000.0 ** (-torch.arange(64, dtype=torch.float64) / 64)
    distance = torch.arange(1, 1708, dtype=torch.float64)[:, None]
    assert ((distance * frequencies).cos().mean(-1) < 0).nonzero().tolist() == [[1706]]
    (note,) = [f for f in diagnosis.diagnose(LLAMA, length=length).notes if f.rule == "base-bound"]
    assert note.message == (
        "a token that matches the query exactly can score below an unrelated one from a distance of"
        f" about 1707 tokens on; distances are up to {length}."
    )


# A key that is there with a wrong value is not missing


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, ORIGINAL: "8192"}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, ORIGINAL: -5}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 8192.5}},
        {
            "model_type": "phi3",
            ORIGINAL: "4096",
            "rope_scaling": {
                "rope_type": "longrope",
                "short_factor": [1.0] * 64,
                "long_factor": [2.0] * 64,
            },
        },
    ],
    ids=["quoted", "negative", "fraction", "phi3"],
)
def test_a_trained_length_that_is_wrong_is_not_missing(keys: dict[str, Any]) -> None:
    found = diagnosis.diagnose({**LLAMA, "max_position_embeddings": 32768, **keys})
    assert found.errors
    assert "original-missing" not in {f.rule for f in found.findings}


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_model_type_is_none(name: str) -> None:
    (finding,) = diagnosis.diagnose({**LLAMA, "model_type": name}).errors
    assert (finding.rule, finding.message) == (
        "no-model-type",
        f"it is {name!r}, which is no name.",
    )


# Names and places


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


def test_the_odd_width_of_latent_attention() -> None:
    config = {"model_type": "deepseek_v3", "qk_rope_head_dim": 63, "max_position_embeddings": 4096}
    (error,) = diagnosis.diagnose({**config, "rope_theta": 1e4}).errors
    assert (error.rule, error.where) == ("odd-head", "qk_rope_head_dim")
    assert error.message == "63 of the 63 channels of a head rotate, and 63 is odd."
    assert error.remedy.startswith("Make qk_rope_head_dim even; ")


def test_a_list_in_quotes_is_no_number() -> None:
    scaling = {"rope_type": "longrope", **YARN, **LISTS, "long_factor": "[1.0, 2.0]"}
    (error,) = diagnosis.diagnose({**LLAMA, "rope_scaling": scaling}).errors
    assert error.message == "long_factor is a string, not a list: '[1.0, 2.0]'."
    assert error.remedy == "Write long_factor as a list of numbers, without quotes."


def test_two_trained_lengths() -> None:
    message = f"{ORIGINAL} is 1024 here and 2048 at {ORIGINAL}."
    keys = {ORIGINAL: 2048, "rope_scaling": {"rope_type": "yarn", **YARN}}
    assert ("original-disagrees", message) in said(**keys)
    assert "original-disagrees" not in dict(said(**{**keys, ORIGINAL: 1024}))


def test_wrong_values_of_an_unused_dictionary_are_reported() -> None:
    unused = {"rope_type": "linear", "factor": [4.0]}
    used = {"rope_type": "linear", "factor": 4.0}
    found = diagnosis.diagnose({**LLAMA, "rope_scaling": used, "rope_parameters": unused})
    assert "rope_parameters.factor" in {
        f.where for f in found.errors if f.rule == "impossible-value"
    }


def test_a_warning_does_not_hide_further_differences() -> None:
    """The rotated channels have a rule of their own; the base and the layout have none."""
    nomic = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_layer": 2}
    share = {**nomic, "n_positions": 8192, "rotary_emb_base": 1000, "rotary_emb_fraction": 0.25}
    found = diagnosis.diagnose(share)
    assert "transformers-differs" not in {one.rule for one in found.findings}
    (ignored,) = [one for one in found.findings if one.rule == "partial-ignored"]
    assert ignored.where == "rotary_emb_fraction"
    assert ignored.remedy.startswith("Remove rotary_emb_fraction if ")
    found = diagnosis.diagnose({**share, "rotary_emb_base": 10000, "rotary_emb_interleaved": True})
    assert [one.rule for one in found.errors] == ["transformers-differs"]
