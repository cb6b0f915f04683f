"""Values that a key cannot have, in quotes or not: named, corrected where that is certain."""

import math
from typing import Any

import pytest

from whorl.configs import diagnosis
from whorl.configs.diagnosis.engine import LLAMA

from .findings import LISTS, ORIGINAL, YARN, said, said_of


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


NO_BASE = "rope_theta must be a number above 1 that a float32 can hold; got"


@pytest.mark.parametrize(
    ("keys", "where", "message"),
    [
        ({"rope_theta": True}, "", f"{NO_BASE} true."),
        ({"rope_theta": [1e4]}, "", f"{NO_BASE} a list, [10000.0]."),
        ({"rope_theta": -5}, "", f"{NO_BASE} -5."),
        ({"rope_theta": math.nan}, "", f"{NO_BASE} NaN."),
        ({"rope_theta": -math.inf}, "", f"{NO_BASE} -Infinity."),
        ({"rope_theta": 1e308}, "", f"{NO_BASE} 1e+308."),
        ({"rope_theta": 3.5e38}, "", f"{NO_BASE} 3.5e+38."),
        ({"rope_theta": 1}, "", f"{NO_BASE} 1."),
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


def test_a_list_in_quotes_is_no_number() -> None:
    scaling = {"rope_type": "longrope", **YARN, **LISTS, "long_factor": "[1.0, 2.0]"}
    (error,) = diagnosis.diagnose({**LLAMA, "rope_scaling": scaling}).errors
    assert error.message == "long_factor is a string, not a list: '[1.0, 2.0]'."
    assert error.remedy == "Write long_factor as a list of numbers, without quotes."


def test_wrong_values_of_an_unused_dictionary_are_reported() -> None:
    unused = {"rope_type": "linear", "factor": [4.0]}
    used = {"rope_type": "linear", "factor": 4.0}
    found = diagnosis.diagnose({**LLAMA, "rope_scaling": used, "rope_parameters": unused})
    assert "rope_parameters.factor" in {
        f.where for f in found.errors if f.rule == "impossible-value"
    }
