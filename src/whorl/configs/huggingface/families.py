"""How model families of transformers differ from the plain family, one line for each.

The plain family rotates the whole head in every layer, in the half layout, by one dictionary of
parameters; it needs no line. Defaults for sizes and parameters are in defaults.json. Source:
transformers 5.22.2; tests/configs compare with its modules.
"""

from dataclasses import dataclass, replace
from typing import Literal

from whorl.types import Layout

from .adaptations import (
    AdaptRule,
    QueryRule,
    drop_share,
    read_nomic_scaling,
    rename_to_longrope,
    scale_queries_by_beta,
    scale_queries_by_power_if_unrotated,
    scale_queries_if_unrotated,
    set_share_by_width,
    set_two_scales,
    use_fixed_alpha,
)
from .layers import (
    FULL,
    LINEAR,
    SLIDING,
    SkipRule,
    TypeRule,
    assign_every_nth,
    assign_every_nth_from_last,
    assign_one_type,
    assign_windows_from_layer,
    skip_all_unless,
    skip_flagged,
    skip_numbered,
    skip_types,
    skip_zero_base,
)
from .layers_rare import (
    assign_alternating_windows,
    assign_by_compression_ratio,
    assign_chunks,
    assign_dense_prefix,
    assign_ends_and_every_fourth,
    assign_first_and_every_sixth,
    assign_full_to_listed,
    assign_hybrid_blocks,
    assign_listed_windows,
    assign_reference_windows,
    assign_windows_to_all,
    repeat_block_types,
    skip_full_except_dense,
    skip_if_alibi,
    skip_if_base_is_null,
)
from .parity import (
    follow_base_list,
    follow_compressed_layers,
    follow_default_only,
    follow_dictionary_per_type,
    follow_dictionary_per_type_with_share,
    follow_equal_widths,
    follow_hard_coded,
    follow_late_layer_types,
    follow_late_parameters,
    follow_null_head_dim,
    follow_one_dictionary,
    follow_other_names,
    follow_phi3,
    follow_phimoe,
    follow_share_of_head,
    follow_step,
    follow_two_bases,
)
from .schema import (
    Schema,
    read_base_only,
    read_compressed_layers,
    read_lists_per_layer,
    read_plain,
    read_two_bases,
    use_base_10000,
)

__all__ = ["FAMILIES", "PLAIN", "Family"]


@dataclass(frozen=True)
class Family:
    """How one family treats positions.

    layout, out_layout: as for RoPE.
    head: the key for the width of a head, or of its rotated part if that is separate.
    full_head: the default width of heads in layers with full attention.
    partial: whether the class reads partial_rotary_factor with rope_type "default" too; classes
        that are "blind" to it rotate the whole head then.
    position: where in a head the rotated channels are.
    direction: "backward" rotates by minus the angle.
    base, share: keys for the base and the rotated share if they have other names, "a.b" for a key
        inside an object; with the default share, None for that of the usual key.
    interleaved: a key that is true for models with the interleaved layout.
    absolute: a key with the number of rotated channels.
    bases, scaled: keys for a list with the base of each layer, and for a list of the layers that
        scale their frequencies.
    window: the key for the window that all layers have, independent of their types.
    types, unrotated: rules of layers.py. reason: id of the note on layers that do not rotate.
    labels: names of rope parameters by layer type, if the two differ.
    schema, adapt: how rope parameters are read, and how each dictionary is changed then.
    parity_schema: the schema for parity="transformers": what its config class does with the keys.
    query_scale: rule of adaptations.py.
    notes: ids of notes on the model (configs/_notes.py).
    """

    layout: Layout = "half"
    out_layout: Layout | None = None
    head: str = "head_dim"
    full_head: int | None = None
    partial: Literal["blind", "aware"] = "blind"
    position: Literal["front", "tail"] = "front"
    direction: Literal["forward", "backward"] = "forward"
    base: str | None = None
    share: tuple[str, float | None] | None = None
    interleaved: str | None = None
    absolute: str | None = None
    bases: str | None = None
    scaled: str | None = None
    window: str | None = None
    types: TypeRule | None = None
    unrotated: SkipRule | None = None
    reason: str = "nope-layers"
    labels: tuple[tuple[str, str], ...] = ()
    schema: Schema = read_plain
    parity_schema: Schema = follow_one_dictionary
    adapt: AdaptRule | None = None
    query_scale: QueryRule | None = None
    notes: tuple[str, ...] = ()


PLAIN = Family()
_PARTIAL = Family(partial="aware")
_INTERLEAVED = Family(layout="interleaved")
_FP32 = Family(notes=("fp32-tables",))
_MLA = Family(layout="interleaved", out_layout="half", head="qk_rope_head_dim", notes=("mla",))
_INDEXED = replace(_MLA, types=assign_one_type("indexed_attention"))
_QWEN = Family(types=assign_windows_from_layer)
_ALTERNATING = Family(types=assign_every_nth(2))
_GEMMA3 = Family(
    schema=read_two_bases("rope_theta", "rope_local_base_freq"),
    parity_schema=follow_two_bases("rope_theta", "rope_local_base_freq"),
    types=assign_every_nth(6, "sliding_window_pattern"),
)
_GEMMA4 = Family(
    types=assign_every_nth(6, last=FULL),
    full_head=512,
    parity_schema=follow_dictionary_per_type,
    notes=("per-layer-head-dim",),
)
_MODERNBERT = Family(
    schema=read_two_bases("global_rope_theta", "local_rope_theta", scaled=(FULL, SLIDING)),
    parity_schema=follow_two_bases(
        "global_rope_theta", "local_rope_theta", (FULL, SLIDING), "ModernBERT"
    ),
    types=assign_every_nth(3, "global_attn_every_n_layers", first=0),
    notes=("fp32-rotation",),
)
_EXAONE = Family(
    types=assign_every_nth(4, "sliding_window_pattern"),
    unrotated=skip_types(FULL, needs="sliding_window"),
)
_GRANITE_SWA = Family(
    types=assign_every_nth(4, first=0), bases="layer_rope_theta", unrotated=skip_zero_base()
)
_MUSE = Family(types=assign_every_nth_from_last(4), unrotated=skip_zero_base(4))
_HUNYUAN = Family(
    parity_schema=follow_null_head_dim, adapt=use_fixed_alpha, notes=("qk-norm-after",)
)
_WINDOW = Family(window="sliding_window")
_PHI3 = replace(_WINDOW, partial="aware", parity_schema=follow_phi3, adapt=rename_to_longrope)
_BEFORE_PROJECTION = Family(
    head="",
    schema=read_base_only,
    parity_schema=follow_hard_coded(read_base_only, "rotary_embedding_base"),
    base="rotary_embedding_base",
    unrotated=skip_all_unless("position_embeddings_type", "rotary"),
    reason="rope-off",
    notes=("before-projection",),
)
_BY_TYPE = Family(
    partial="aware", types=assign_one_type(FULL), parity_schema=follow_dictionary_per_type
)
_HEAD_INDEX = Family(notes=("head-index-positions",))

FAMILIES: dict[str, Family] = {
    "Qwen3OmniMoeCode2WavConfig": Family(types=assign_one_type(SLIDING)),
    "SaProtConfig": Family(
        schema=read_base_only,
        parity_schema=follow_hard_coded(read_base_only, "rope_theta"),
        unrotated=skip_all_unless("position_embedding_type", "rotary"),
        reason="rope-off",
        notes=("query-scaled-before",),
    ),
    "afmoe": Family(
        types=assign_every_nth(4, "global_attn_every_n_layers"), unrotated=skip_types(FULL)
    ),
    "axk1": replace(_MLA, parity_schema=follow_equal_widths),
    "axk2": replace(_INDEXED, notes=("mla", "indexer-half")),
    "bailing_hybrid": replace(_MLA, types=assign_every_nth(8, "layer_group_size", miss=LINEAR)),
    "bamba": replace(
        _PARTIAL, types=assign_full_to_listed("attn_layer_indices", LINEAR, without=LINEAR)
    ),
    "beam": replace(
        _FP32,
        parity_schema=follow_dictionary_per_type,
        types=assign_every_nth(6, last=FULL),
        query_scale=scale_queries_by_power_if_unrotated,
    ),
    "blt_global_transformer": _INTERLEAVED,
    "blt_local_decoder": _INTERLEAVED,
    "blt_local_encoder": _INTERLEAVED,
    "blt_patcher": _INTERLEAVED,
    "clvp_encoder": Family(
        schema=use_base_10000,
        parity_schema=follow_hard_coded(use_base_10000),
        absolute="clvp",
        unrotated=skip_all_unless("use_rotary_embedding", True),
        reason="rope-off",
        notes=("values-rotated",),
    ),
    "codegen": replace(
        _INTERLEAVED,
        schema=use_base_10000,
        parity_schema=follow_hard_coded(use_base_10000),
        absolute="rotary_dim",
    ),
    "cohere": replace(_INTERLEAVED, notes=("fp32-rotation",)),
    "cohere2": replace(
        _INTERLEAVED,
        types=assign_every_nth(4, "sliding_window_pattern"),
        unrotated=skip_types(FULL),
    ),
    "cohere2_moe": replace(
        _INTERLEAVED,
        parity_schema=follow_late_parameters,
        types=assign_dense_prefix,
        unrotated=skip_full_except_dense,
    ),
    "cwm": Family(types=assign_every_nth(4, first=0)),
    "dbrx": Family(base="attn_config.rope_theta"),
    "deepseek_ocr2_encoder": _QWEN,
    "deepseek_v2": Family(layout="interleaved", head="qk_rope_head_dim", notes=("mla",)),
    "deepseek_v3": replace(_MLA, parity_schema=follow_equal_widths),
    "deepseek_v32": replace(_INDEXED, notes=("mla", "indexer-half")),
    "deepseek_v4": Family(
        layout="interleaved",
        partial="aware",
        position="tail",
        types=assign_by_compression_ratio,
        labels=((SLIDING, "main"), ("", "compress")),
        schema=read_compressed_layers,
        parity_schema=follow_compressed_layers,
        notes=("output-unrotated", "window-start-positions"),
    ),
    "diffusion_gemma_text": replace(_GEMMA4, partial="aware"),
    "doge": _WINDOW,
    "dots1": _QWEN,
    "embedding_gemma2_text": _GEMMA4,
    "ernie4_5": replace(_INTERLEAVED, notes=("fp32-tables",)),
    "ernie4_5_moe": replace(_INTERLEAVED, notes=("fp32-tables",)),
    "esm": Family(
        schema=read_base_only,
        parity_schema=follow_hard_coded(read_base_only, "rope_theta"),
        unrotated=skip_all_unless("position_embedding_type", "rotary"),
        reason="rope-off",
        notes=("query-scaled-before",),
    ),
    "exaone4": _EXAONE,
    "exaone_moe": _EXAONE,
    "falcon": Family(unrotated=skip_if_alibi, reason="alibi-instead"),
    "falcon_h1": Family(types=assign_one_type("hybrid"), notes=("key-multiplier",)),
    "flex_olmo": _FP32,
    "flint": Family(types=assign_ends_and_every_fourth, unrotated=skip_types(FULL)),
    "gemma2": _ALTERNATING,
    "gemma3_text": _GEMMA3,
    "gemma3n_text": replace(_GEMMA3, types=assign_every_nth(5)),
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
        parity_schema=follow_other_names("rotary_emb_base", "rotary_pct", 0.25),
    ),
    "gpt_neox_japanese": Family(
        partial="aware",
        base="rotary_emb_base",
        share=("rotary_pct", 1.0),
        parity_schema=follow_other_names("rotary_emb_base", "rotary_pct", 1.0),
    ),
    "gpt_oss": _ALTERNATING,
    "gptj": replace(
        _INTERLEAVED,
        schema=use_base_10000,
        parity_schema=follow_hard_coded(use_base_10000),
        absolute="rotary_dim",
    ),
    "granite_swa": _GRANITE_SWA,
    "granitemoe_swa": _GRANITE_SWA,
    "granitemoehybrid": Family(
        types=assign_one_type(LINEAR),
        unrotated=skip_all_unless("position_embedding_type", "rope"),
        reason="rope-off",
    ),
    "helium": _INTERLEAVED,
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": _HUNYUAN,
    "hy_v4": Family(
        head="qk_rope_head_dim",
        types=assign_one_type("indexed_attention"),
        notes=("mla", "indexer-tail"),
    ),
    "idefics": Family(notes=("cross-attention-unrotated",)),
    "kolibri1": replace(_EXAONE, types=assign_every_nth(5)),
    "laguna": _BY_TYPE,
    "lasr_encoder": Family(notes=("table-dropout",)),
    "lfm2": Family(types=assign_full_to_listed("full_attn_idxs", "conv", without=FULL)),
    "lfm2_moe": Family(
        parity_schema=follow_late_layer_types,
        types=assign_full_to_listed("full_attn_idxs", "conv", without=FULL),
    ),
    "llama4_text": Family(
        layout="interleaved",
        types=assign_chunks,
        unrotated=skip_flagged("no_rope_layers", "no_rope_layer_interval"),
        query_scale=scale_queries_if_unrotated,
        notes=("qk-norm-after", "fp32-rotation"),
    ),
    "longcat_flash": replace(_MLA, parity_schema=follow_equal_widths),
    "mellum": _BY_TYPE,
    "mimo_v2_flash": replace(
        _BY_TYPE,
        parity_schema=follow_dictionary_per_type_with_share(0.334),
        share=("partial_rotary_factor", 0.334),
        types=assign_first_and_every_sixth,
    ),
    "mimi": _WINDOW,
    "mimi_decoder": _WINDOW,
    "mimi_encoder": _WINDOW,
    "minicpm3": Family(head="qk_rope_head_dim", notes=("mla",)),
    "minimax": replace(
        _WINDOW,
        parity_schema=follow_null_head_dim,
        types=assign_every_nth(2, hit=LINEAR, miss=FULL),
    ),
    "minimax_m2": Family(partial="aware", adapt=set_share_by_width),
    "minimax_m3_vl_text": Family(
        parity_schema=follow_late_layer_types,
        partial="aware",
        types=assign_one_type(FULL),
        notes=("indexer-front",),
    ),
    "ministral": Family(parity_schema=follow_null_head_dim, types=assign_windows_to_all),
    "ministral3": replace(_WINDOW, query_scale=scale_queries_by_beta),
    "mistral": _WINDOW,
    "mistral4": replace(
        _MLA,
        parity_schema=follow_share_of_head,
        adapt=drop_share,
        query_scale=scale_queries_by_beta,
    ),
    "mistral_large4_text": replace(
        _INDEXED,
        unrotated=skip_flagged("no_rope_layers", "no_rope_layer_interval"),
        notes=("mla", "learned-gains", "learned-query-scale", "shared-keys"),
    ),
    "mixtral": replace(_WINDOW, parity_schema=follow_null_head_dim),
    "mllama_text_model": Family(
        unrotated=skip_numbered("cross_attention_layers", 3, 8, 13, 18, 23, 28, 33, 38),
        reason="cross-attention-unrotated",
    ),
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _MODERNBERT,
    "molmo2_text": Family(scaled="rope_scaling_layers", notes=("unscaled-layers",)),
    "moonshine": replace(_INTERLEAVED, partial="aware"),
    "moonshine_streaming": replace(_INTERLEAVED, partial="aware"),
    "muse_glimmer_assistant": Family(types=assign_one_type(SLIDING), notes=("fewer-queries",)),
    "muse_glimmer_text": _MUSE,
    "muse_spark_text": _MUSE,
    "nanochat": Family(direction="backward", notes=("sign-reversed", "qk-norm-after")),
    "nemotron": _PARTIAL,
    "nemotron3_5_transcribe_asr_audio": _PARTIAL,
    "nemotron3_5_transcribe_word_timestamp": _PARTIAL,
    "nemotron3_diarization_audio": _PARTIAL,
    "neucodec": _HEAD_INDEX,
    "nomic_bert": Family(
        base="rotary_emb_base",
        share=("rotary_emb_fraction", None),
        interleaved="rotary_emb_interleaved",
        adapt=read_nomic_scaling,
    ),
    "olmo": _FP32,
    "olmo2": _FP32,
    "olmo3": replace(
        _FP32,
        schema=read_two_bases("rope_theta", "rope_theta"),
        parity_schema=follow_two_bases("rope_theta", "rope_theta"),
        types=assign_every_nth(4),
    ),
    "olmo_hybrid": replace(
        _FP32, types=assign_every_nth(4, miss=LINEAR), unrotated=skip_if_base_is_null
    ),
    "openai_privacy_filter": replace(_INTERLEAVED, window="sliding_window"),
    "pe_audio_encoder": _INTERLEAVED,
    "pe_audio_video_encoder": _INTERLEAVED,
    "pe_video_encoder": _INTERLEAVED,
    "persimmon": _PARTIAL,
    "phi": _PARTIAL,
    "phi3": _PHI3,
    "phi4_multimodal": _PHI3,
    "phimoe": replace(_WINDOW, parity_schema=follow_phimoe, adapt=set_two_scales),
    "pocket_tts_audio_tokenizer": _WINDOW,
    "pocket_tts_audio_tokenizer_decoder": _WINDOW,
    "pocket_tts_audio_tokenizer_encoder": _WINDOW,
    "qwen2": _QWEN,
    "qwen2_5_omni_dit": Family(layout="interleaved", out_layout="half", notes=("one-head",)),
    "qwen2_moe": Family(types=assign_alternating_windows),
    "qwen3": _QWEN,
    "qwen3_moe": _WINDOW,
    "qwen3_next": Family(
        partial="aware", types=assign_every_nth(4, "full_attention_interval", miss=LINEAR)
    ),
    "qwen3_omni_moe_talker_code_predictor": _QWEN,
    "recurrent_gemma": replace(
        _WINDOW, partial="aware", types=repeat_block_types, parity_schema=follow_default_only
    ),
    "roformer": Family(
        layout="interleaved",
        schema=use_base_10000,
        parity_schema=follow_hard_coded(use_base_10000),
        notes=("float64-angles", "values-rotated-optional"),
    ),
    "seamless_m4t": replace(_BEFORE_PROJECTION, head="speech_encoder"),
    "smollm3": Family(
        types=assign_one_type(FULL),
        unrotated=skip_flagged("no_rope_layers", "no_rope_layer_interval"),
    ),
    "solar_open": _PARTIAL,
    "stablelm": _PARTIAL,
    "starcoder2": _WINDOW,
    "step3p5": Family(
        partial="aware",
        schema=read_lists_per_layer,
        parity_schema=follow_step,
        types=assign_one_type(FULL),
    ),
    "t5_gemma_module": _ALTERNATING,
    "t5gemma2_decoder": _GEMMA3,
    "t5gemma2_text": _GEMMA3,
    "timesfm2_5": Family(notes=("negative-positions", "qk-norm-after")),
    "ultrabert": Family(
        schema=read_lists_per_layer, parity_schema=follow_base_list, types=assign_listed_windows
    ),
    "unlimited_ocr_text": Family(types=assign_reference_windows),
    "vaultgemma": _ALTERNATING,
    "voxtral_realtime_encoder": _WINDOW,
    "voxtral_realtime_text": _WINDOW,
    "wav2vec2-bert": _BEFORE_PROJECTION,
    "wav2vec2-conformer": _BEFORE_PROJECTION,
    "xcodec2": _HEAD_INDEX,
    "youtu": replace(_MLA, parity_schema=follow_equal_widths),
    "zamba2": Family(
        head="attention_head_dim",
        types=assign_hybrid_blocks,
        unrotated=skip_all_unless("use_mem_rope", True),
        reason="rope-off",
    ),
    "zaya": Family(
        partial="aware", types=assign_one_type("hybrid"), parity_schema=follow_dictionary_per_type
    ),
}
