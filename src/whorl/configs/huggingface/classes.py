"""What config classes of transformers 5.22.2 refuse, apart from rope parameters: types and heads.

A class checks the type of every key that it has a default for: a float is no int, an int is no
bool (strict dataclasses of huggingface_hub). Tests compare the tables with the installed version.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from whorl._support.words import quote

from . import defaults

__all__ = [
    "FILL_HEADS",
    "HEADS_DIVIDE",
    "LATENT",
    "NO_HEADS",
    "NULL_HEADS",
    "OPTIONAL_HEADS",
    "OWN_HEADS",
    "explain_replaced_head",
    "explain_wrong_head",
    "find_wrong_types",
    "get_class_default",
    "has_null_head",
    "list_refusals",
]

#: Families whose hidden_size must be a multiple of num_attention_heads, even with a head_dim.
HEADS_DIVIDE = frozenset(
    {
        *("arcee", "aria_text", "cwm", "deepseek_ocr2_text", "deepseek_v2", "esmc", "eurobert"),
        *("gemma2", "gemma3_text", "gemma3n_text", "gradium_phonon_tts", "higgs_audio_v2"),
        *("hrm_text", "hyperclovax", "jais2", "llama", "minicpm3", "muse_glimmer_text"),
        *("muse_spark_text", "nemotron3_5_transcribe_asr_audio"),
        *("nemotron3_5_transcribe_word_timestamp", "nemotron3_diarization_audio", "neucodec"),
        *("pocket_tts", "t5_gemma_module", "t5gemma2_decoder", "t5gemma2_text", "ultrabert"),
        *("unlimited_ocr_text", "vaultgemma", "xcodec2"),
    }
)
#: Families that accept null for head_dim, although the class has a number for it.
OPTIONAL_HEADS = ("afmoe", "ernie4_5", "glm", "higgs_audio_v2")
#: Config classes whose head_dim is null if a config has none.
NULL_HEADS = ("hunyuan_v1_dense", "hunyuan_v1_moe", "minimax", "ministral", "mixtral")
#: Config classes that fill in a head_dim of null.
FILL_HEADS = frozenset(
    {
        *("arcee", "aria_text", "csm", "csm_depth_decoder_model", "deepseek_ocr2_text"),
        *("deepseek_v2", "diffllama", "ernie4_5", "esmc", "eurobert", "gradium_phonon_tts"),
        *("higgs_audio_v2", "hyperclovax", "jais2", "kyutai_speech_to_text", "llama"),
        *("mimi_decoder", "mimi_encoder", "minicpm3", "mistral", "moonshine_streaming"),
        *("moshi", "nemotron", "nomic_bert", "pocket_tts"),
        *("pocket_tts_audio_tokenizer_decoder", "pocket_tts_audio_tokenizer_encoder"),
        *("ultrabert", "unlimited_ocr_text", "voxtral_realtime_text"),
    }
)
#: Config classes that compute head_dim and do not accept the key.
NO_HEADS = ("falcon",)
#: Config classes that replace any head_dim by hidden_size / num_attention_heads.
OWN_HEADS = ("deepseek_ocr2_text", "roformer", "unlimited_ocr_text")
#: Config classes with latent attention whose table has this share of head_dim as its width.
LATENT = {
    "axk1": 1.0,
    "deepseek_v3": 1.0,
    "longcat_flash": 1.0,
    "mistral4": 0.5,
    "youtu": 1.0,
}


def get_class_default(family: str | None, name: str) -> Any:
    """The default of a key in the class of a family; None if it has none."""
    entry = defaults.get_entry(defaults.get_known_name(family)) or {}
    if name in entry.get("names", {}) or name.startswith("default_"):
        return None  # these are not keys of configs
    return entry.get("keys", {}).get(name)


def find_wrong_types(
    config: Mapping[str, Any], family: str | None, kind: type[int] | type[bool]
) -> Iterator[tuple[str, Any]]:
    """Keys and values that the class refuses because they are not of this type."""
    other = (float, str) if kind is int else (int, float, str)
    nulls = ["max_position_embeddings"] if kind is int else []
    nulls += ["head_dim"] if kind is int and family not in OPTIONAL_HEADS else []
    for name, value in config.items():
        if type(value) is kind or type(get_class_default(family, name)) is not kind:
            continue
        if name in nulls if value is None else isinstance(value, other):
            yield name, value


def has_null_head(config: Mapping[str, Any], family: str | None, rope_type: str) -> bool:
    """Whether head_dim is null where the function of this rope_type multiplies it."""
    scales = rope_type in ("dynamic", "yarn", "longrope")
    known = defaults.get_entry(defaults.get_known_name(family)) is not None
    if not scales or not known or config.get("head_dim") is not None:
        return False
    return family in NULL_HEADS or ("head_dim" in config and family not in FILL_HEADS)


def explain_wrong_head(config: Mapping[str, Any], family: str | None) -> str | None:
    """Why the class of a family cannot use the head_dim of a config; None if it can."""
    if family in NO_HEADS and "head_dim" in config:
        return f"transformers' {family} computes head_dim and does not accept it"
    head, part = config.get("head_dim"), config.get("qk_rope_head_dim")
    part = get_class_default(family, "qk_rope_head_dim") if part is None else part
    if family not in LATENT or type(head) is not int or head * LATENT[family] == part:
        return None
    return (
        f"head_dim is {head}, and the table that transformers' {family} makes with it does not fit"
        f" qk_rope_head_dim {part}"
    )


def explain_replaced_head(config: Mapping[str, Any], family: str | None) -> str | None:
    """How the class of a family replaces the head_dim of a config; None if it keeps it."""
    names = ("head_dim", "hidden_size", "num_attention_heads")
    head, hidden, heads = (
        get_class_default(family, name) if config.get(name) is None else config[name]
        for name in names
    )
    sizes = all(type(size) is int and size > 0 for size in (head, hidden, heads))
    if family not in OWN_HEADS or not sizes or head == hidden // heads:
        return None
    return f"head_dim is {head}, and transformers' {family} replaces it by {hidden // heads}"


def list_refusals(config: Mapping[str, Any], family: str | None, rope_type: str) -> Iterator[str]:
    """Reasons why the config class of a family, or its model, raises an error."""
    for kind in (int, bool):
        for name, value in find_wrong_types(config, family, kind):
            yield f"{name} must be of type {kind.__name__}; got {quote(value)}"
    sizes: list[Any] = [config.get(name) for name in ("hidden_size", "num_attention_heads")]
    whole = all(type(size) is int and size > 0 for size in sizes)
    if family in HEADS_DIVIDE and whole and sizes[0] % sizes[1]:
        yield f"hidden_size {sizes[0]} is not a multiple of num_attention_heads {sizes[1]}"
    if has_null_head(config, family, rope_type):
        yield f"head_dim is null, and {rope_type} multiplies it"
    if (why := explain_wrong_head(config, family)) is not None:
        yield why
