"""What is said where several rules could speak, and what must stay quiet."""

from typing import Any

import pytest
import torch

from whorl.configs import diagnosis
from whorl.configs.diagnosis.engine import LLAMA

ORIGINAL = "original_max_position_embeddings"
YARN = {"factor": 4.0, "original_max_position_embeddings": 1024}


def said(**keys: Any) -> list[tuple[str, str]]:
    return said_of({**LLAMA, **keys})


def said_of(config: dict[str, Any]) -> list[tuple[str, str]]:
    found = diagnosis.examine(config)
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
        fixed = diagnosis.examine({**LLAMA, "rope_scaling": scaling}).fixed()
        assert fixed["rope_scaling"]["type"] == right


@pytest.mark.parametrize(
    ("model_type", "end"),
    [("LLaMA", "; did you mean 'llama'?"), ("zzzz", ".")],
)
def test_an_unknown_family_is_told(model_type: str, end: str) -> None:
    words = f"{model_type!r} is not known{end}"
    assert said(model_type=model_type, rope_theta=1e4) == [("unknown-family", words)]
    more = " No key speaks of a rotary embedding either, so whether it rotates is not known."
    assert said(model_type=model_type) == [("unknown-family", words + more)]


def test_keys_of_an_unknown_family_are_named() -> None:
    ((rule, message),) = said(model_type="zzzz", rotary_pct=0.25)
    assert rule == "unknown-family"
    assert message.endswith("known. What its code makes of rotary_pct is a guess.")


def test_no_model_type_is_no_unknown_one() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    found = diagnosis.examine(config).findings
    assert [(f.rule, f.message) for f in found] == [("no-model-type", "it is missing.")]
    found = diagnosis.examine({}).findings
    empty = "it is missing: the config is empty."
    assert [(f.rule, f.message) for f in found] == [("no-model-type", empty)]


def test_no_model_type_hides_no_other_error() -> None:
    config = {**LLAMA, "model_type": None, "rope_scaling": {"rope_type": "linear"}}
    assert [f.rule for f in diagnosis.examine(config).errors] == ["no-model-type", "unreadable"]


def test_whether_an_unknown_type_rotates_is_not_known() -> None:
    ((rule, message),) = said_of({"model_type": "foo_bar"})
    assert rule == "unknown-family"
    assert message == (
        "'foo_bar' is not known. No key speaks of a rotary embedding either, so whether it rotates"
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
    found = diagnosis.examine(config)
    assert [(f.rule, f.where) for f in found.findings] == [("beside-the-text", "rope_scaling")]
    repeated = {**config, "text_config": {**text, "rope_scaling": scaling}}
    assert diagnosis.examine(repeated).errors == ()
    own = {**config, "model_type": "musicflamingo", "rope_scaling": {"rope_type": "default"}}
    assert diagnosis.examine(own).errors == ()  # it rotates by time, besides its text


def test_the_base_is_held_against_the_context_unasked() -> None:
    def notes(context: int) -> set[str]:
        return {
            f.rule for f in diagnosis.examine({**LLAMA, "max_position_embeddings": context}).notes
        }

    assert "base-bound" in notes(1_048_576)
    assert "base-bound" not in notes(8192)


def test_an_empty_name_is_not_this_folder() -> None:
    with pytest.raises(ValueError, match=r"doctor: the name of the model is empty; pass a path"):
        diagnosis.examine("")


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
    found = diagnosis.examine({**LLAMA, **keys})
    assert [(f.rule, f.message) for f in found.errors] == [(rule, message)]


def test_lists_of_factors_that_were_changed_about() -> None:
    lists = {"short_factor": [8.0] * 64, "long_factor": [1.0] * 64}
    found = said(rope_scaling={"rope_type": "longrope", **YARN, **lists})
    assert ("factor-lists-swapped", "short_factor adds up to 512, long_factor to 64.") in found


def test_a_rule_about_a_key_speaks_for_the_general_ones() -> None:
    """Each is left out only while another says why."""
    config = {**LLAMA, "partial_rotary_factor": 0.5}
    assert [f.rule for f in diagnosis.examine(config).warnings] == ["partial-ignored"]
    assert diagnosis.examine(config).errors == ()
    found = diagnosis.examine(config, ignore=["partial-ignored"])
    assert [f.rule for f in found.errors] == ["transformers-differs"]


def test_parameters_of_attention_are_no_model_without_layers() -> None:
    config = {"model_type": "dbrx", "attn_config": {"rope_theta": 500000}}
    assert [f.rule for f in diagnosis.examine(config).findings] == ["transformers-differs"]


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
        "factor 2 reaches 8192 tokens from 4096; max_position_embeddings is"
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
        " original_max_position_embeddings are both 8192, which says that it is not extended."
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
    found = diagnosis.examine({**LLAMA, **keys}, ignore=["theta-inside-only"])
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
        "mscale is 1 and mscale_all_dim is missing, so that latent attention does not scale its"
        " softmax; with mscale_all_dim 1 it would, by 1.874."
    )
    assert said_of({**config, "rope_scaling": alone}) == [("mscale-alone", message)]
    assert said_of({**config, "rope_scaling": DEEPSEEK}) == []
    assert said(rope_scaling=alone, max_position_embeddings=163840) == []  # as without mscale


def test_bases_that_changed_places() -> None:
    full, window = {"rope_theta": 1e4}, {"rope_theta": 1e6}
    for keys in (
        {"rope_theta": 1e4, "rope_local_base_freq": 1e6},
        {"rope_parameters": {"full_attention": full, "sliding_attention": window}},
    ):
        config = {"model_type": "gemma3_text", "head_dim": 128, "hidden_size": 1024, **keys}
        (line,) = [m for rule, m in said_of(config) if rule == "local-base-larger"]
        assert line == "it is 1000000 in layers with a window and 10000 in layers without."
    same = {"rope_theta": 1e4, "rope_local_base_freq": 1e4}
    assert said_of({"model_type": "gemma3_text", "head_dim": 128, **same}) == []


def test_every_quoted_number_is_named_and_corrected() -> None:
    scaling = {"type": "yarnn", "factor": "4.0", "original_max_position_embeddings": "1024"}
    config = {**LLAMA, "rope_theta": "5e5", "hidden_size": "4096", "rope_scaling": scaling}
    found = diagnosis.examine(config)
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
    found = diagnosis.examine({**LLAMA, "max_position_embeddings": 131072, "rope_scaling": scaling})
    assert [f.rule for f in found.errors] == ["quoted-number"] * 2
    assert found.errors[1].message.startswith("short_factor holds strings in place of numbers: [")
    fixed = found.fixed()["rope_scaling"]
    assert (fixed["short_factor"], fixed["long_factor"]) == ([1.0] * 64, [8.0] * 64)
    switch = {"model_type": "llama4_text", "head_dim": 128, "attn_temperature_tuning": "False"}
    assert diagnosis.examine({**LLAMA, **switch}).fixed()["attn_temperature_tuning"] is False
    for odd in ("nan", "4k", "", "1_000", "0x10", "four"):
        assert "quoted-number" not in dict(said(rope_theta=odd))


def test_phi_moe_is_not_told_to_change_its_config() -> None:
    lists = {"short_factor": [1.0] * 64, "long_factor": [8.0] * 64}
    scales = {"short_mscale": 1.25, "long_mscale": 1.25}
    scaling = {"type": "longrope", "original_max_position_embeddings": 4096, **lists, **scales}
    config = {"model_type": "phimoe", "max_position_embeddings": 131072, "rope_scaling": scaling}
    found = diagnosis.examine({**LLAMA, **config})
    assert found.errors == ()
    (finding,) = found.warnings
    assert finding.rule == "long-factor-unused"
    assert finding.message == (
        "transformers' phimoe takes short_factor for every text, also past 4096 tokens."
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
    assert diagnosis.examine(alibi).findings == ()
    turning = {**alibi, "attn_config": {"rope": True, "rope_theta": 10000.0}}
    (note,) = [f for f in diagnosis.examine(turning).findings if f.rule == "half-positions"]
    assert note.message == (
        "the model runs in bfloat16, which is exact for whole numbers up to 256, and has up to"
        " 65536 positions; whether its own code (auto_map) computes positions in bfloat16 is not"
        " known."
    )


@pytest.mark.parametrize("length", [32768, 100_000, 10**9])
def test_the_bound_of_the_base_in_words(length: int) -> None:
    """The distance is that of the model, whatever the length, and the first."""
    frequencies = 10_000.0 ** (-torch.arange(64, dtype=torch.float64) / 64)
    distance = torch.arange(1, 1708, dtype=torch.float64)[:, None]
    assert ((distance * frequencies).cos().mean(-1) < 0).nonzero().tolist() == [[1706]]
    (note,) = [f for f in diagnosis.examine(LLAMA, length=length).notes if f.rule == "base-bound"]
    assert note.message == (
        "a token that matches the query exactly can score below an unrelated one from about 1707"
        f" tokens away on; texts have up to {length}."
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
    found = diagnosis.examine({**LLAMA, "max_position_embeddings": 32768, **keys})
    assert found.errors
    assert "original-missing" not in {f.rule for f in found.findings}


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_model_type_is_none(name: str) -> None:
    (finding,) = diagnosis.examine({**LLAMA, "model_type": name}).errors
    assert (finding.rule, finding.message) == (
        "no-model-type",
        f"it is {name!r}, which names none.",
    )
