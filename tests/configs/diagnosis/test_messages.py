"""What is said where several rules could speak, and what must stay quiet."""

from typing import Any

import pytest
import torch

from whorl.configs import diagnosis
from whorl.configs.diagnosis.engine import LLAMA

from .findings import ORIGINAL, YARN, said, said_of


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


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_model_type_is_none(name: str) -> None:
    (finding,) = diagnosis.diagnose({**LLAMA, "model_type": name}).errors
    assert (finding.rule, finding.message) == (
        "no-model-type",
        f"it is {name!r}, which is no name.",
    )


def test_the_odd_width_of_latent_attention() -> None:
    config = {"model_type": "deepseek_v3", "qk_rope_head_dim": 63, "max_position_embeddings": 4096}
    (error,) = diagnosis.diagnose({**config, "rope_theta": 1e4}).errors
    assert (error.rule, error.where) == ("odd-head", "qk_rope_head_dim")
    assert error.message == "63 of the 63 channels of a head rotate, and 63 is odd."
    assert error.remedy.startswith("Make qk_rope_head_dim even; ")


def test_two_trained_lengths() -> None:
    message = f"{ORIGINAL} is 1024 here and 2048 at {ORIGINAL}."
    keys = {ORIGINAL: 2048, "rope_scaling": {"rope_type": "yarn", **YARN}}
    assert ("original-disagrees", message) in said(**keys)
    assert "original-disagrees" not in dict(said(**{**keys, ORIGINAL: 1024}))


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
