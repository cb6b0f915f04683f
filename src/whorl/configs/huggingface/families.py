"""How model families of transformers depart from the plain one, a line for each.

The plain family rotates the whole head in every layer, in the half layout, by one dictionary of
parameters. A family that does so needs no line; sizes and parameters that a config leaves out are
in defaults.json. Facts: transformers 5.22.2, checked against its modules by tests/configs.
"""

from dataclasses import dataclass, replace
from typing import Literal

from whorl.types import Layout

from .adapting import (
    Adapt,
    QueryRule,
    absolute_width,
    fixed_stretch,
    longrope_names,
    nomic_names,
    on_unrotated,
    power_on_unrotated,
    share_of_whole_head,
    two_scales,
    with_beta,
)
from .followed import (
    by_lists,
    by_type,
    coded,
    compressing,
    one_width,
    only_default,
    other_names,
    part_of_head,
    phi3,
    phimoe,
    replaced_late,
    steps,
    two_keys,
    typed_late,
    usual,
    with_share,
    without_width,
)
from .layers import (
    FULL,
    LINEAR,
    SLIDING,
    Types,
    Unrotated,
    among,
    backwards,
    beyond_window,
    every,
    listed,
    of_type,
    same,
    unless,
    zero_base,
)
from .layers_odd import (
    alternating_below,
    attention_windows,
    blocks,
    chunked,
    dense_prefix,
    ends_and_every_fourth,
    first_and_every_sixth,
    full_at,
    in_blocks,
    null_base,
    only_alibi,
    ratios,
    referring,
    unforced,
    windowed,
)
from .schema import (
    Schema,
    always_10000,
    by_layer,
    compressed,
    hard_coded,
    plain,
    two_bases,
)

__all__ = ["FAMILIES", "PLAIN", "Family"]


@dataclass(frozen=True)
class Family:
    """What one family does.

    layout, out_layout: of the channels; see RoPE.
    head: the key of the width of a head, or of its rotated part where that is separate.
    full_head: the width of heads that see everything, of a config that does not say.
    partial: whether partial_rotary_factor counts with rope_type "default" as with the others;
        classes that are "blind" to it rotate the whole head then.
    place: where the rotated channels of a head are.
    turn: "backward" rotates by minus the angle.
    base, share: keys for the base and the rotated share, where these have other names, "a.b" for
        one inside another; and the share of a config that does not say, None for its usual key.
    interleaved: a key that is true in models that pair neighbouring channels.
    absolute: a key with the number of rotated channels.
    bases, scaled: keys of a list with the base of each layer, and of one with the numbers of the
        layers that scale their frequencies.
    window: the key of the window that all layers have, whatever their types.
    types, unrotated: rules of layers.py. reason: the note of layers that do not rotate.
    labels: of the rope parameters of a type of layer, where the two have different names.
    schema, adapt: how its dictionaries are read, and what is changed in each of them.
    followed: the schema under parity="transformers", what its config class does with the keys.
    query_scale: rule of adapting.py.
    notes: ids of what else the model does (configs/_notes.py).
    """

    layout: Layout = "half"
    out_layout: Layout | None = None
    head: str = "head_dim"
    full_head: int | None = None
    partial: Literal["blind", "aware"] = "blind"
    place: Literal["front", "tail"] = "front"
    turn: Literal["forward", "backward"] = "forward"
    base: str | None = None
    share: tuple[str, float | None] | None = None
    interleaved: str | None = None
    absolute: str | None = None
    bases: str | None = None
    scaled: str | None = None
    window: str | None = None
    types: Types | None = None
    unrotated: Unrotated | None = None
    reason: str = "nope-layers"
    labels: tuple[tuple[str, str], ...] = ()
    schema: Schema = plain
    followed: Schema = usual
    adapt: Adapt | None = None
    query_scale: QueryRule | None = None
    notes: tuple[str, ...] = ()


PLAIN = Family()
_PARTIAL = Family(partial="aware")
_INTERLEAVED = Family(layout="interleaved")
_FP32 = Family(notes=("fp32-tables",))
_MLA = Family(layout="interleaved", out_layout="half", head="qk_rope_head_dim", notes=("mla",))
_INDEXED = replace(_MLA, types=same("indexed_attention"))
_QWEN = Family(types=beyond_window)
_ALTERNATING = Family(types=every(2))
_GEMMA3 = Family(
    schema=two_bases("rope_theta", "rope_local_base_freq"),
    followed=two_keys("rope_theta", "rope_local_base_freq"),
    types=every(6, "sliding_window_pattern"),
)
_GEMMA4 = Family(
    types=every(6, last=FULL), full_head=512, followed=by_type, notes=("per-layer-head-dim",)
)
_MODERNBERT = Family(
    schema=two_bases("global_rope_theta", "local_rope_theta", scaled=(FULL, SLIDING)),
    followed=two_keys("global_rope_theta", "local_rope_theta", (FULL, SLIDING), "ModernBERT"),
    types=every(3, "global_attn_every_n_layers", first=0),
    notes=("fp32-rotation",),
)
_EXAONE = Family(
    types=every(4, "sliding_window_pattern"), unrotated=of_type(FULL, needs="sliding_window")
)
_GRANITE_SWA = Family(types=every(4, first=0), bases="layer_rope_theta", unrotated=zero_base())
_MUSE = Family(types=backwards(4), unrotated=zero_base(4))
_HUNYUAN = Family(followed=without_width, adapt=fixed_stretch, notes=("qk-norm-after",))
_WINDOW = Family(window="sliding_window")
_PHI3 = replace(_WINDOW, partial="aware", followed=phi3, adapt=longrope_names)
_BEFORE_PROJECTION = Family(
    head="",
    schema=hard_coded,
    followed=coded(hard_coded, "rotary_embedding_base"),
    base="rotary_embedding_base",
    unrotated=unless("position_embeddings_type", "rotary"),
    reason="rope-off",
    notes=("before-projection",),
)
_BY_TYPE = Family(partial="aware", types=same(FULL), followed=by_type)
_HEAD_INDEX = Family(notes=("head-index-positions",))

FAMILIES: dict[str, Family] = {
    "Qwen3OmniMoeCode2WavConfig": Family(types=same(SLIDING)),
    "SaProtConfig": Family(
        schema=hard_coded,
        followed=coded(hard_coded, "rope_theta"),
        unrotated=unless("position_embedding_type", "rotary"),
        reason="rope-off",
        notes=("query-scaled-before",),
    ),
    "afmoe": Family(types=every(4, "global_attn_every_n_layers"), unrotated=of_type(FULL)),
    "axk1": replace(_MLA, followed=one_width),
    "axk2": replace(_INDEXED, notes=("mla", "indexer-half")),
    "bailing_hybrid": replace(_MLA, types=every(8, "layer_group_size", miss=LINEAR)),
    "bamba": replace(_PARTIAL, types=full_at("attn_layer_indices", LINEAR, without=LINEAR)),
    "beam": replace(
        _FP32, followed=by_type, types=every(6, last=FULL), query_scale=power_on_unrotated
    ),
    "blt_global_transformer": _INTERLEAVED,
    "blt_local_decoder": _INTERLEAVED,
    "blt_local_encoder": _INTERLEAVED,
    "blt_patcher": _INTERLEAVED,
    "clvp_encoder": Family(
        schema=always_10000,
        followed=coded(always_10000),
        absolute="clvp",
        unrotated=unless("use_rotary_embedding", True),
        reason="rope-off",
        notes=("values-rotated",),
    ),
    "codegen": replace(
        _INTERLEAVED, schema=always_10000, followed=coded(always_10000), absolute="rotary_dim"
    ),
    "cohere": replace(_INTERLEAVED, notes=("fp32-rotation",)),
    "cohere2": replace(
        _INTERLEAVED, types=every(4, "sliding_window_pattern"), unrotated=of_type(FULL)
    ),
    "cohere2_moe": replace(
        _INTERLEAVED, followed=replaced_late, types=dense_prefix, unrotated=unforced
    ),
    "cwm": Family(types=every(4, first=0)),
    "dbrx": Family(base="attn_config.rope_theta"),
    "deepseek_ocr2_encoder": _QWEN,
    "deepseek_v2": Family(layout="interleaved", head="qk_rope_head_dim", notes=("mla",)),
    "deepseek_v3": replace(_MLA, followed=one_width),
    "deepseek_v32": replace(_INDEXED, notes=("mla", "indexer-half")),
    "deepseek_v4": Family(
        layout="interleaved",
        partial="aware",
        place="tail",
        types=ratios,
        labels=((SLIDING, "main"), ("", "compress")),
        schema=compressed,
        followed=compressing,
        notes=("output-unrotated", "window-start-positions"),
    ),
    "diffusion_gemma_text": replace(_GEMMA4, partial="aware"),
    "doge": _WINDOW,
    "dots1": _QWEN,
    "embedding_gemma2_text": _GEMMA4,
    "ernie4_5": replace(_INTERLEAVED, notes=("fp32-tables",)),
    "ernie4_5_moe": replace(_INTERLEAVED, notes=("fp32-tables",)),
    "esm": Family(
        schema=hard_coded,
        followed=coded(hard_coded, "rope_theta"),
        unrotated=unless("position_embedding_type", "rotary"),
        reason="rope-off",
        notes=("query-scaled-before",),
    ),
    "exaone4": _EXAONE,
    "exaone_moe": _EXAONE,
    "falcon": Family(unrotated=only_alibi, reason="alibi-instead"),
    "falcon_h1": Family(types=same("hybrid"), notes=("key-multiplier",)),
    "flex_olmo": _FP32,
    "flint": Family(types=ends_and_every_fourth, unrotated=of_type(FULL)),
    "gemma2": _ALTERNATING,
    "gemma3_text": _GEMMA3,
    "gemma3n_text": replace(_GEMMA3, types=every(5)),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm": replace(_INTERLEAVED, partial="aware"),
    "glm4": replace(_INTERLEAVED, partial="aware"),
    "glm4_moe": _PARTIAL,
    "glm4_moe_lite": replace(_MLA, partial="aware"),
    "glm_moe_dsa": replace(_INDEXED, notes=("mla", "indexer-interleaved")),
    "glmasr_encoder": _PARTIAL,
    "gpt_neox": Family(
        partial="aware",
        base="rotary_emb_base",
        share=("rotary_pct", 0.25),
        followed=other_names("rotary_emb_base", "rotary_pct", 0.25),
    ),
    "gpt_neox_japanese": Family(
        partial="aware",
        base="rotary_emb_base",
        share=("rotary_pct", 1.0),
        followed=other_names("rotary_emb_base", "rotary_pct", 1.0),
    ),
    "gpt_oss": _ALTERNATING,
    "gptj": replace(
        _INTERLEAVED, schema=always_10000, followed=coded(always_10000), absolute="rotary_dim"
    ),
    "granite_swa": _GRANITE_SWA,
    "granitemoe_swa": _GRANITE_SWA,
    "granitemoehybrid": Family(
        types=same(LINEAR), unrotated=unless("position_embedding_type", "rope"), reason="rope-off"
    ),
    "helium": _INTERLEAVED,
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": _HUNYUAN,
    "hy_v4": Family(
        head="qk_rope_head_dim", types=same("indexed_attention"), notes=("mla", "indexer-tail")
    ),
    "idefics": Family(notes=("cross-attention-unrotated",)),
    "kolibri1": replace(_EXAONE, types=every(5)),
    "laguna": _BY_TYPE,
    "lasr_encoder": Family(notes=("table-dropout",)),
    "lfm2": Family(types=full_at("full_attn_idxs", "conv", without=FULL)),
    "lfm2_moe": Family(followed=typed_late, types=full_at("full_attn_idxs", "conv", without=FULL)),
    "llama4_text": Family(
        layout="interleaved",
        types=chunked,
        unrotated=listed("no_rope_layers", "no_rope_layer_interval"),
        query_scale=on_unrotated,
        notes=("qk-norm-after", "fp32-rotation"),
    ),
    "longcat_flash": replace(_MLA, followed=one_width),
    "mellum": _BY_TYPE,
    "mimo_v2_flash": replace(
        _BY_TYPE,
        followed=with_share(0.334),
        share=("partial_rotary_factor", 0.334),
        types=first_and_every_sixth,
    ),
    "mimi": _WINDOW,
    "mimi_decoder": _WINDOW,
    "mimi_encoder": _WINDOW,
    "minicpm3": Family(head="qk_rope_head_dim", notes=("mla",)),
    "minimax": replace(_WINDOW, followed=without_width, types=every(2, hit=LINEAR, miss=FULL)),
    "minimax_m2": Family(partial="aware", adapt=absolute_width),
    "minimax_m3_vl_text": Family(
        followed=typed_late, partial="aware", types=same(FULL), notes=("indexer-front",)
    ),
    "ministral": Family(followed=without_width, types=windowed),
    "ministral3": replace(_WINDOW, query_scale=with_beta),
    "mistral": _WINDOW,
    "mistral4": replace(
        _MLA, followed=part_of_head, adapt=share_of_whole_head, query_scale=with_beta
    ),
    "mistral_large4_text": replace(
        _INDEXED,
        unrotated=listed("no_rope_layers", "no_rope_layer_interval"),
        notes=("mla", "learned-gains", "learned-query-scale", "shared-keys"),
    ),
    "mixtral": replace(_WINDOW, followed=without_width),
    "mllama_text_model": Family(
        unrotated=among("cross_attention_layers", 3, 8, 13, 18, 23, 28, 33, 38),
        reason="cross-attention-unrotated",
    ),
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _MODERNBERT,
    "molmo2_text": Family(scaled="rope_scaling_layers", notes=("unscaled-layers",)),
    "moonshine": replace(_INTERLEAVED, partial="aware"),
    "moonshine_streaming": replace(_INTERLEAVED, partial="aware"),
    "muse_glimmer_assistant": Family(types=same(SLIDING), notes=("fewer-queries",)),
    "muse_glimmer_text": _MUSE,
    "muse_spark_text": _MUSE,
    "nanochat": Family(turn="backward", notes=("sign-reversed", "qk-norm-after")),
    "nemotron": _PARTIAL,
    "nemotron3_5_transcribe_asr_audio": _PARTIAL,
    "nemotron3_5_transcribe_word_timestamp": _PARTIAL,
    "nemotron3_diarization_audio": _PARTIAL,
    "neucodec": _HEAD_INDEX,
    "nomic_bert": Family(
        base="rotary_emb_base",
        share=("rotary_emb_fraction", None),
        interleaved="rotary_emb_interleaved",
        adapt=nomic_names,
    ),
    "olmo": _FP32,
    "olmo2": _FP32,
    "olmo3": replace(
        _FP32,
        schema=two_bases("rope_theta", "rope_theta"),
        followed=two_keys("rope_theta", "rope_theta"),
        types=every(4),
    ),
    "olmo_hybrid": replace(_FP32, types=every(4, miss=LINEAR), unrotated=null_base),
    "openai_privacy_filter": replace(_INTERLEAVED, window="sliding_window"),
    "pe_audio_encoder": _INTERLEAVED,
    "pe_audio_video_encoder": _INTERLEAVED,
    "pe_video_encoder": _INTERLEAVED,
    "persimmon": _PARTIAL,
    "phi": _PARTIAL,
    "phi3": _PHI3,
    "phi4_multimodal": _PHI3,
    "phimoe": replace(_WINDOW, followed=phimoe, adapt=two_scales),
    "pocket_tts_audio_tokenizer": _WINDOW,
    "pocket_tts_audio_tokenizer_decoder": _WINDOW,
    "pocket_tts_audio_tokenizer_encoder": _WINDOW,
    "qwen2": _QWEN,
    "qwen2_5_omni_dit": Family(layout="interleaved", out_layout="half", notes=("one-head",)),
    "qwen2_moe": Family(types=alternating_below),
    "qwen3": _QWEN,
    "qwen3_moe": _WINDOW,
    "qwen3_next": Family(partial="aware", types=every(4, "full_attention_interval", miss=LINEAR)),
    "qwen3_omni_moe_talker_code_predictor": _QWEN,
    "recurrent_gemma": replace(_WINDOW, partial="aware", types=blocks, followed=only_default),
    "roformer": Family(
        layout="interleaved",
        schema=always_10000,
        followed=coded(always_10000),
        notes=("float64-angles", "values-rotated-optional"),
    ),
    "seamless_m4t": replace(_BEFORE_PROJECTION, head="speech_encoder"),
    "smollm3": Family(
        types=same(FULL), unrotated=listed("no_rope_layers", "no_rope_layer_interval")
    ),
    "solar_open": _PARTIAL,
    "stablelm": _PARTIAL,
    "starcoder2": _WINDOW,
    "step3p5": Family(partial="aware", schema=by_layer, followed=steps, types=same(FULL)),
    "t5_gemma_module": _ALTERNATING,
    "t5gemma2_decoder": _GEMMA3,
    "t5gemma2_text": _GEMMA3,
    "timesfm2_5": Family(notes=("negative-positions", "qk-norm-after")),
    "ultrabert": Family(schema=by_layer, followed=by_lists, types=attention_windows),
    "unlimited_ocr_text": Family(types=referring),
    "vaultgemma": _ALTERNATING,
    "voxtral_realtime_encoder": _WINDOW,
    "voxtral_realtime_text": _WINDOW,
    "wav2vec2-bert": _BEFORE_PROJECTION,
    "wav2vec2-conformer": _BEFORE_PROJECTION,
    "xcodec2": _HEAD_INDEX,
    "youtu": replace(_MLA, followed=one_width),
    "zamba2": Family(
        head="attention_head_dim",
        types=in_blocks,
        unrotated=unless("use_mem_rope", True),
        reason="rope-off",
    ),
    "zaya": Family(partial="aware", types=same("hybrid"), followed=by_type),
}
