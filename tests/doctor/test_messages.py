"""What is said where several rules could speak, and what must stay quiet."""

from typing import Any

import pytest

from whorl import doctor
from whorl.doctor.engine import LLAMA

YARN = {"factor": 4.0, "original_max_position_embeddings": 1024}


def said(**keys: Any) -> list[tuple[str, str]]:
    found = doctor.examine({**LLAMA, **keys})
    return [(f.rule, f.message) for f in (*found.errors, *found.warnings)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("YaRN", "rope_type 'YaRN' is not known; did you mean 'yarn'?"),
        ("Llama3", "rope_type 'Llama3' is not known; did you mean 'llama3'?"),
        ("mrope", "rope_type 'mrope' is not one that llama takes."),
        ("su", "rope_type 'su' is what longrope was called; llama knows longrope only."),
    ],
)
def test_a_wrong_type_is_one_finding(given: str, message: str) -> None:
    assert said(rope_scaling={"rope_type": given, **YARN}) == [("unknown-type", message)]


def test_case_and_old_names_of_types_are_fixed() -> None:
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    for given, right in (("YaRN", "yarn"), ("su", "longrope")):
        scaling = {"type": given, **YARN, **lists}
        fixed = doctor.examine({**LLAMA, "rope_scaling": scaling}).fixed()
        assert fixed["rope_scaling"]["type"] == right


@pytest.mark.parametrize(
    ("model_type", "end"),
    [("LLaMA", "; did you mean 'llama'?"), ("zzzz", ".")],
)
def test_an_unknown_family_is_told(model_type: str, end: str) -> None:
    assert said(model_type=model_type) == [("unknown-family", f"{model_type!r} is not known{end}")]


def test_keys_of_an_unknown_family_are_named() -> None:
    ((rule, message),) = said(model_type="zzzz", rotary_pct=0.25)
    assert rule == "unknown-family"
    assert message.endswith("known. What its code makes of rotary_pct is a guess.")


def test_no_model_type_is_no_unknown_one() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert doctor.examine(config).findings == ()


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
    found = doctor.examine(config)
    assert [(f.rule, f.where) for f in found.findings] == [("beside-the-text", "rope_scaling")]
    repeated = {**config, "text_config": {**text, "rope_scaling": scaling}}
    assert doctor.examine(repeated).errors == ()
    own = {**config, "model_type": "musicflamingo", "rope_scaling": {"rope_type": "default"}}
    assert doctor.examine(own).errors == ()  # it rotates by time, besides its text


def test_the_base_is_held_against_the_context_unasked() -> None:
    def notes(context: int) -> set[str]:
        return {f.rule for f in doctor.examine({**LLAMA, "max_position_embeddings": context}).notes}

    assert "base-bound" in notes(1_048_576)
    assert "base-bound" not in notes(8192)


def test_an_empty_name_is_not_this_folder() -> None:
    with pytest.raises(ValueError, match=r"doctor: the name of the model is empty; pass a path"):
        doctor.examine("")


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
            "transformers 5.22.2 reads this config otherwise: sliding_attention layers base"
            " 500,000, not base 1,000,000.",
        ),
        (
            {"model_type": "gptj", "rotary_dim": 64, "rope_scaling": {"rope_type": "dynamic"}},
            "in-code",
            "gptj has its frequencies in its code and does not read rope_scaling, which is"
            " {'rope_type': 'dynamic'} here.",
        ),
        (
            {"model_type": "llama4_text", "attn_temperature_tuning": 4},
            "not-a-boolean",
            "attn_temperature_tuning is 4; transformers' llama4_text takes true or false only.",
        ),
        (
            {"model_type": "falcon", "head_dim": 64},
            "head-dim-refused",
            "transformers' falcon computes head_dim and takes none.",
        ),
        (
            {"model_type": "youtu", "head_dim": 128},
            "head-dim-refused",
            "head_dim is 128, of which transformers' youtu makes a table that does not fit"
            " qk_rope_head_dim 64.",
        ),
        (
            {"model_type": "qwen3", "head_dim": None},
            "not-an-integer",
            "head_dim is null; transformers' qwen3 takes an integer only.",
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
    found = doctor.examine({**LLAMA, **keys})
    assert [(f.rule, f.message) for f in found.errors] == [(rule, message)]


def test_lists_of_factors_that_were_changed_about() -> None:
    lists = {"short_factor": [8.0] * 64, "long_factor": [1.0] * 64}
    found = said(rope_scaling={"rope_type": "longrope", **YARN, **lists})
    assert ("factor-lists-swapped", "short_factor adds up to 512, long_factor to 64.") in found


def test_a_rule_about_a_key_speaks_for_the_general_ones() -> None:
    """Each is left out only while another says why."""
    config = {**LLAMA, "partial_rotary_factor": 0.5}
    assert [f.rule for f in doctor.examine(config).warnings] == ["partial-ignored"]
    assert doctor.examine(config).errors == ()
    found = doctor.examine(config, ignore=["partial-ignored"])
    assert [f.rule for f in found.errors] == ["transformers-differs"]


def test_parameters_of_attention_are_no_model_without_layers() -> None:
    config = {"model_type": "dbrx", "attn_config": {"rope_theta": 500000}}
    assert [f.rule for f in doctor.examine(config).findings] == ["transformers-differs"]
