"""How model families of transformers differ from the plain family, alike ones together.

The plain family rotates the whole head in every layer, in the half layout, by one dictionary of
parameters; it needs no line. Defaults for sizes and parameters are in defaults.json. Source:
transformers 5.22.2; tests/configs compare with its modules.
"""

from dataclasses import dataclass, replace
from typing import Literal

from whorl.types import Layout

from . import adaptations, layers, parity
from .adaptations import AdaptRule, QueryRule
from .layers import FULL, LINEAR, SLIDING, SkipRule, TypeRule
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
    parity_schema: Schema = parity.follow_one_dictionary
    adapt: AdaptRule | None = None
    query_scale: QueryRule | None = None
    notes: tuple[str, ...] = ()


PLAIN = Family()
_PARTIAL = Family(partial="aware")
_INTERLEAVED = Family(layout="interleaved")
_FP32 = Family(notes=("fp32-tables",))
_MLA = Family(layout="interleaved", out_layout="half", head="qk_rope_head_dim", notes=("mla",))
_INDEXED = replace(_MLA, types=layers.assign_one_type("indexed_attention"))
_QWEN = Family(types=layers.assign_windows_from_layer)
_ALTERNATING = Family(types=layers.assign_every_nth(2))
_GEMMA3 = Family(
    schema=read_two_bases("rope_theta", "rope_local_base_freq"),
    parity_schema=parity.follow_two_bases("rope_theta", "rope_local_base_freq"),
    types=layers.assign_every_nth(6, "sliding_window_pattern"),
)
_GEMMA4 = Family(
    types=layers.assign_every_nth(6, last=FULL),
    full_head=512,
    parity_schema=parity.follow_dictionary_per_type,
    notes=("per-layer-head-dim",),
)
_MODERNBERT = Family(
    schema=read_two_bases("global_rope_theta", "local_rope_theta", scaled=(FULL, SLIDING)),
    parity_schema=parity.follow_two_bases(
        "global_rope_theta", "local_rope_theta", (FULL, SLIDING), "ModernBERT"
    ),
    types=layers.assign_every_nth(3, "global_attn_every_n_layers", first=0),
    notes=("fp32-rotation",),
)
_EXAONE = Family(
    types=layers.assign_every_nth(4, "sliding_window_pattern"),
    unrotated=layers.skip_types(FULL, needs="sliding_window"),
)
_GRANITE_SWA = Family(
    types=layers.assign_every_nth(4, first=0),
    bases="layer_rope_theta",
    unrotated=layers.skip_zero_base(),
)
_MUSE = Family(types=layers.assign_every_nth_from_last(4), unrotated=layers.skip_zero_base(4))
_HUNYUAN = Family(
    parity_schema=parity.follow_null_head_dim,
    adapt=adaptations.use_fixed_alpha,
    notes=("qk-norm-after",),
)
_WINDOW = Family(window="sliding_window")
_PHI3 = replace(
    _WINDOW, partial="aware", parity_schema=parity.follow_phi3, adapt=adaptations.rename_to_longrope
)
_BEFORE_PROJECTION = Family(
    head="",
    schema=read_base_only,
    parity_schema=parity.follow_hard_coded(read_base_only, "rotary_embedding_base"),
    base="rotary_embedding_base",
    unrotated=layers.skip_all_unless("position_embeddings_type", "rotary"),
    reason="rope-off",
    notes=("before-projection",),
)
_BY_TYPE = Family(
    partial="aware",
    types=layers.assign_one_type(FULL),
    parity_schema=parity.follow_dictionary_per_type,
)
_HEAD_INDEX = Family(notes=("head-index-positions",))

#: Model types that are read alike.
_ALIKE: tuple[tuple[Family, str], ...] = (
    (
        Family(
            schema=read_base_only,
            parity_schema=parity.follow_hard_coded(read_base_only, "rope_theta"),
            unrotated=layers.skip_all_unless("position_embedding_type", "rotary"),
            reason="rope-off",
            notes=("query-scaled-before",),
        ),
        "SaProtConfig esm",
    ),
    (
        replace(_MLA, parity_schema=parity.follow_equal_widths),
        "axk1 deepseek_v3 longcat_flash youtu",
    ),
    (replace(_INDEXED, notes=("mla", "indexer-half")), "axk2 deepseek_v32"),
    (
        _INTERLEAVED,
        "blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher helium "
        "pe_audio_encoder pe_audio_video_encoder pe_video_encoder",
    ),
    (
        replace(
            _INTERLEAVED,
            schema=use_base_10000,
            parity_schema=parity.follow_hard_coded(use_base_10000),
            absolute="rotary_dim",
        ),
        "codegen gptj",
    ),
    (_QWEN, "deepseek_ocr2_encoder dots1 qwen2 qwen3 qwen3_omni_moe_talker_code_predictor"),
    (
        _WINDOW,
        "doge mimi mimi_decoder mimi_encoder mistral pocket_tts_audio_tokenizer "
        "pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qwen3_moe "
        "starcoder2 voxtral_realtime_encoder voxtral_realtime_text",
    ),
    (_GEMMA4, "embedding_gemma2_text gemma4_text gemma4_unified_text"),
    (replace(_INTERLEAVED, notes=("fp32-tables",)), "ernie4_5 ernie4_5_moe"),
    (_EXAONE, "exaone4 exaone_moe"),
    (_FP32, "flex_olmo olmo olmo2"),
    (_ALTERNATING, "gemma2 gpt_oss t5_gemma_module vaultgemma"),
    (_GEMMA3, "gemma3_text t5gemma2_decoder t5gemma2_text"),
    (replace(_INTERLEAVED, partial="aware"), "glm glm4 moonshine moonshine_streaming"),
    (
        _PARTIAL,
        "glm4_moe glmasr_encoder nemotron nemotron3_5_transcribe_asr_audio "
        "nemotron3_5_transcribe_word_timestamp nemotron3_diarization_audio persimmon phi "
        "solar_open stablelm",
    ),
    (_GRANITE_SWA, "granite_swa granitemoe_swa"),
    (_HUNYUAN, "hunyuan_v1_dense hunyuan_v1_moe"),
    (_BY_TYPE, "laguna mellum"),
    (_MODERNBERT, "modernbert modernbert-decoder"),
    (_MUSE, "muse_glimmer_text muse_spark_text"),
    (_HEAD_INDEX, "neucodec xcodec2"),
    (_PHI3, "phi3 phi4_multimodal"),
    (_BEFORE_PROJECTION, "wav2vec2-bert wav2vec2-conformer"),
)

FAMILIES: dict[str, Family] = {
    **{name: alike for alike, names in _ALIKE for name in names.split()},
    "Qwen3OmniMoeCode2WavConfig": Family(types=layers.assign_one_type(SLIDING)),
    "afmoe": Family(
        types=layers.assign_every_nth(4, "global_attn_every_n_layers"),
        unrotated=layers.skip_types(FULL),
    ),
    "bailing_hybrid": replace(
        _MLA, types=layers.assign_every_nth(8, "layer_group_size", miss=LINEAR)
    ),
    "bamba": replace(
        _PARTIAL, types=layers.assign_full_to_listed("attn_layer_indices", LINEAR, without=LINEAR)
    ),
    "beam": replace(
        _FP32,
        parity_schema=parity.follow_dictionary_per_type,
        types=layers.assign_every_nth(6, last=FULL),
        query_scale=adaptations.scale_queries_by_power_if_unrotated,
    ),
    "clvp_encoder": Family(
        schema=use_base_10000,
        parity_schema=parity.follow_hard_coded(use_base_10000),
        absolute="clvp",
        unrotated=layers.skip_all_unless("use_rotary_embedding", True),
        reason="rope-off",
        notes=("values-rotated",),
    ),
    "cohere": replace(_INTERLEAVED, notes=("fp32-rotation",)),
    "cohere2": replace(
        _INTERLEAVED,
        types=layers.assign_every_nth(4, "sliding_window_pattern"),
        unrotated=layers.skip_types(FULL),
    ),
    "cohere2_moe": replace(
        _INTERLEAVED,
        parity_schema=parity.follow_late_parameters,
        types=layers.assign_dense_prefix,
        unrotated=layers.skip_full_except_dense,
    ),
    "cwm": Family(types=layers.assign_every_nth(4, first=0)),
    "dbrx": Family(base="attn_config.rope_theta"),
    "deepseek_v2": Family(layout="interleaved", head="qk_rope_head_dim", notes=("mla",)),
    "deepseek_v4": Family(
        layout="interleaved",
        partial="aware",
        position="tail",
        types=layers.assign_by_compression_ratio,
        labels=((SLIDING, "main"), ("", "compress")),
        schema=read_compressed_layers,
        parity_schema=parity.follow_compressed_layers,
        notes=("output-unrotated", "window-start-positions"),
    ),
    "diffusion_gemma_text": replace(_GEMMA4, partial="aware"),
    "falcon": Family(unrotated=layers.skip_if_alibi, reason="alibi-instead"),
    "falcon_h1": Family(types=layers.assign_one_type("hybrid"), notes=("key-multiplier",)),
    "flint": Family(types=layers.assign_ends_and_every_fourth, unrotated=layers.skip_types(FULL)),
    "gemma3n_text": replace(_GEMMA3, types=layers.assign_every_nth(5)),
    "glm4_moe_lite": replace(_MLA, partial="aware"),
    "glm_moe_dsa": replace(_INDEXED, notes=("mla", "indexer-interleaved")),
    "gpt_neox": Family(
        partial="aware",
        base="rotary_emb_base",
        share=("rotary_pct", 0.25),
        parity_schema=parity.follow_other_names("rotary_emb_base", "rotary_pct", 0.25),
    ),
    "gpt_neox_japanese": Family(
        partial="aware",
        base="rotary_emb_base",
        share=("rotary_pct", 1.0),
        parity_schema=parity.follow_other_names("rotary_emb_base", "rotary_pct", 1.0),
    ),
    "granitemoehybrid": Family(
        types=layers.assign_one_type(LINEAR),
        unrotated=layers.skip_all_unless("position_embedding_type", "rope"),
        reason="rope-off",
    ),
    "hy_v4": Family(
        head="qk_rope_head_dim",
        types=layers.assign_one_type("indexed_attention"),
        notes=("mla", "indexer-tail"),
    ),
    "idefics": Family(notes=("cross-attention-unrotated",)),
    "kolibri1": replace(_EXAONE, types=layers.assign_every_nth(5)),
    "lasr_encoder": Family(notes=("table-dropout",)),
    "lfm2": Family(types=layers.assign_full_to_listed("full_attn_idxs", "conv", without=FULL)),
    "lfm2_moe": Family(
        parity_schema=parity.follow_late_layer_types,
        types=layers.assign_full_to_listed("full_attn_idxs", "conv", without=FULL),
    ),
    "llama4_text": Family(
        layout="interleaved",
        types=layers.assign_chunks,
        unrotated=layers.skip_flagged("no_rope_layers", "no_rope_layer_interval"),
        query_scale=adaptations.scale_queries_if_unrotated,
        notes=("qk-norm-after", "fp32-rotation"),
    ),
    "mimo_v2_flash": replace(
        _BY_TYPE,
        parity_schema=parity.follow_dictionary_per_type_with_share(0.334),
        share=("partial_rotary_factor", 0.334),
        types=layers.assign_first_and_every_sixth,
    ),
    "minicpm3": Family(head="qk_rope_head_dim", notes=("mla",)),
    "minimax": replace(
        _WINDOW,
        parity_schema=parity.follow_null_head_dim,
        types=layers.assign_every_nth(2, hit=LINEAR, miss=FULL),
    ),
    "minimax_m2": Family(partial="aware", adapt=adaptations.set_share_by_width),
    "minimax_m3_vl_text": Family(
        parity_schema=parity.follow_late_layer_types,
        partial="aware",
        types=layers.assign_one_type(FULL),
        notes=("indexer-front",),
    ),
    "ministral": Family(
        parity_schema=parity.follow_null_head_dim, types=layers.assign_windows_to_all
    ),
    "ministral3": replace(_WINDOW, query_scale=adaptations.scale_queries_by_beta),
    "mistral4": replace(
        _MLA,
        parity_schema=parity.follow_share_of_head,
        adapt=adaptations.drop_share,
        query_scale=adaptations.scale_queries_by_beta,
    ),
    "mistral_large4_text": replace(
        _INDEXED,
        unrotated=layers.skip_flagged("no_rope_layers", "no_rope_layer_interval"),
        notes=("mla", "learned-gains", "learned-query-scale", "shared-keys"),
    ),
    "mixtral": replace(_WINDOW, parity_schema=parity.follow_null_head_dim),
    "mllama_text_model": Family(
        unrotated=layers.skip_numbered("cross_attention_layers", 3, 8, 13, 18, 23, 28, 33, 38),
        reason="cross-attention-unrotated",
    ),
    "molmo2_text": Family(scaled="rope_scaling_layers", notes=("unscaled-layers",)),
    "muse_glimmer_assistant": Family(
        types=layers.assign_one_type(SLIDING), notes=("fewer-queries",)
    ),
    "nanochat": Family(direction="backward", notes=("sign-reversed", "qk-norm-after")),
    "nomic_bert": Family(
        base="rotary_emb_base",
        share=("rotary_emb_fraction", None),
        interleaved="rotary_emb_interleaved",
        adapt=adaptations.read_nomic_scaling,
    ),
    "olmo3": replace(
        _FP32,
        schema=read_two_bases("rope_theta", "rope_theta"),
        parity_schema=parity.follow_two_bases("rope_theta", "rope_theta"),
        types=layers.assign_every_nth(4),
    ),
    "olmo_hybrid": replace(
        _FP32, types=layers.assign_every_nth(4, miss=LINEAR), unrotated=layers.skip_if_base_is_null
    ),
    "openai_privacy_filter": replace(_INTERLEAVED, window="sliding_window"),
    "phimoe": replace(
        _WINDOW, parity_schema=parity.follow_phimoe, adapt=adaptations.set_two_scales
    ),
    "qwen2_5_omni_dit": Family(layout="interleaved", out_layout="half", notes=("one-head",)),
    "qwen2_moe": Family(types=layers.assign_alternating_windows),
    "qwen3_next": Family(
        partial="aware", types=layers.assign_every_nth(4, "full_attention_interval", miss=LINEAR)
    ),
    "recurrent_gemma": replace(
        _WINDOW,
        partial="aware",
        types=layers.repeat_block_types,
        parity_schema=parity.follow_default_only,
    ),
    "roformer": Family(
        layout="interleaved",
        schema=use_base_10000,
        parity_schema=parity.follow_hard_coded(use_base_10000),
        notes=("float64-angles", "values-rotated-optional"),
    ),
    "seamless_m4t": replace(_BEFORE_PROJECTION, head="speech_encoder"),
    "smollm3": Family(
        types=layers.assign_one_type(FULL),
        unrotated=layers.skip_flagged("no_rope_layers", "no_rope_layer_interval"),
    ),
    "step3p5": Family(
        partial="aware",
        schema=read_lists_per_layer,
        parity_schema=parity.follow_step,
        types=layers.assign_one_type(FULL),
    ),
    "timesfm2_5": Family(notes=("negative-positions", "qk-norm-after")),
    "ultrabert": Family(
        schema=read_lists_per_layer,
        parity_schema=parity.follow_base_list,
        types=layers.assign_listed_windows,
    ),
    "unlimited_ocr_text": Family(types=layers.assign_reference_windows),
    "zamba2": Family(
        head="attention_head_dim",
        types=layers.assign_hybrid_blocks,
        unrotated=layers.skip_all_unless("use_mem_rope", True),
        reason="rope-off",
    ),
    "zaya": Family(
        partial="aware",
        types=layers.assign_one_type("hybrid"),
        parity_schema=parity.follow_dictionary_per_type,
    ),
}
