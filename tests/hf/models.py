"""Small models of every family with random weights, large enough that positions matter."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)

from whorl.hf.families import FAMILIES

#: Model types to test: those of a text part are tested in the whole model.
KINDS = [kind for kind in FAMILIES if not kind.endswith("_vl_text")]
#: Models whose attention modules change, and those whose masks do.
CHANGED = [kind for kind in KINDS if FAMILIES[kind] not in ("rotary", "deepseek")]
ENCODERS = ["deberta", "deberta-v2", "modernbert", "mpnet", "roformer"]
ROTARY = [kind for kind in KINDS if kind not in CHANGED]
SEQ2SEQ = [kind for kind in KINDS if FAMILIES[kind] == "t5"]
VISION = {
    "qwen2_vl": {"depth": 1, "embed_dim": 16, "hidden_size": 48, "num_heads": 2, "patch_size": 4},
    "qwen3_vl": {"depth": 1, "hidden_size": 16, "out_hidden_size": 48, "num_heads": 2}
    | {"intermediate_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
}

_VOCAB = 120
_ROTARY: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}
_T5: dict[str, Any] = {"d_model": 48, "d_kv": 12, "num_heads": 4, "num_layers": 2, "d_ff": 64}
_T5 |= {"dropout_rate": 0.0, "decoder_start_token_id": 0}
_BERT: dict[str, Any] = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_DEBERTA: dict[str, Any] = {
    **_BERT,
    # As in DeBERTa v3.
    "relative_attention": True,
    "position_buckets": 32,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_GEMMA3 = {**_ROTARY, "head_dim": 12, "sliding_window": 90, "sliding_window_pattern": 2}
_SIGLIP = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 16}
_SIGLIP |= {"num_attention_heads": 2, "patch_size": 4}
_OPTIONS: dict[str, dict[str, Any]] = {
    # Six heads: ALiBi's slopes of a number of heads that is no power of two.
    "bloom": {"hidden_size": 48, "n_head": 6, "n_layer": 2},
    "mpt": {"d_model": 48, "n_heads": 6, "n_layers": 2, "max_seq_len": 1024},
    "deberta": {**_BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": _DEBERTA,
    # Two layers: one with a window or experts of its own, one without.
    "deepseek_v3": _ROTARY
    | {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "v_head_dim": 10}
    | {"qk_rope_head_dim": 8, "qk_nope_head_dim": 6, "first_k_dense_replace": 1}
    | {"moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2}
    | {"n_group": 2, "topk_group": 2},
    "falcon": {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "alibi": True},
    "gemma2": {**_ROTARY, "head_dim": 12, "sliding_window": 90, "attn_logit_softcapping": 2.0},
    "gpt_oss": _ROTARY
    | {"head_dim": 12, "sliding_window": 90, "max_position_embeddings": 131072}
    | {"num_local_experts": 2, "num_experts_per_tok": 1},
    "modernbert": _ROTARY
    | {"local_attention": 90, "global_attn_every_n_layers": 2, "cls_token_id": 1}
    | {"sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    "gptj": {"n_embd": 48, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_positions": 512},
    # Positions begin at 2.
    "mpnet": {**_BERT, "max_position_embeddings": 514, "relative_attention_num_buckets": 32},
    "roformer": _BERT,
    "gpt_neox": {**_ROTARY, "rotary_pct": 0.5},
    **dict.fromkeys(("gemma3", "gemma3_text"), _GEMMA3),
    "mistral": {**_ROTARY, "sliding_window": 90},
    "olmo3": {**_ROTARY, "sliding_window": 90},
    "mixtral": {**_ROTARY, "num_local_experts": 2, "sliding_window": 90},
    "phi3": {**_ROTARY, "sliding_window": 90},
    "qwen2": {**_ROTARY, "sliding_window": 90, "use_sliding_window": True, "max_window_layers": 1},
    "glm": {**_ROTARY, "head_dim": 12},
    "glm4": {**_ROTARY, "head_dim": 12},
    "gemma": {**_ROTARY, "head_dim": 12},
    "xlnet": {"d_model": 48, "n_head": 4, "n_layer": 2, "d_inner": 64, "dropout": 0.0},
    # Two pairs rotate by each axis of the position.
    **dict.fromkeys(
        VISION,
        _ROTARY
        | {"head_dim": 12, "bos_token_id": 1, "eos_token_id": 2}
        | {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [2, 2, 2]}},
    ),
    **dict.fromkeys(SEQ2SEQ, _T5),
}


def build_model(kind: str, *, std: float = 0.2, **more: object) -> PreTrainedModel:
    """A small model of a ``model_type``, with random matrices and without dropout."""
    options = {**_OPTIONS.get(kind, _ROTARY), "vocab_size": _VOCAB, **more}
    loader = AutoModelForSeq2SeqLM if kind in SEQ2SEQ else AutoModelForCausalLM
    if kind in ENCODERS and not more.get("is_decoder"):
        loader = AutoModelForMaskedLM
    if kind in VISION:
        loader, parts = AutoModelForImageTextToText, {"vision_config": VISION[kind]}
        options = {"text_config": options, **parts, "image_token_id": 1, "video_token_id": 2}
    if kind == "gemma3":
        loader = AutoModelForImageTextToText
        options = {"text_config": options, "vision_config": _SIGLIP, "mm_tokens_per_image": 4}
        options |= {"image_token_id": 1, "boi_token_index": 2, "eoi_token_index": 2}
    config = AutoConfig.for_model(kind, **options)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # for the vectors, such as gpt-oss's logits of sinks
        model: PreTrainedModel = loader.from_config(config).eval()
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1 and weight.requires_grad:
                weight.normal_(std=std, generator=source)
    return model


def build_inputs(kind: str, length: int, padding: str = "none") -> dict[str, Tensor]:
    """Tokens of two rows, the first of which has a tenth of padding at one end, or in between."""
    source = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, _VOCAB, (2, length), generator=source)
    inputs = {"input_ids": tokens}
    if padding != "none":
        mask, tenth = torch.ones_like(tokens), length // 10
        start = {"left": 0, "right": length - tenth, "middle": length // 3}[padding]
        mask[0, start : start + tenth] = 0
        inputs["attention_mask"] = mask
    if kind in SEQ2SEQ:
        inputs["decoder_input_ids"] = tokens[:, : length // 2].contiguous()
    return inputs


def compute_logits(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Logits of the tokens that are not padding, which have none that mean anything."""
    logits: Tensor = model(**inputs).logits
    mask = inputs.get("attention_mask")
    return logits if mask is None or mask.shape != logits.shape[:2] else logits[mask.bool()]


def add_labels(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Inputs for training: no token is predicted from padding, or is padding."""
    inputs = dict(inputs)
    labels = inputs.pop("decoder_input_ids", inputs["input_ids"]).clone()
    mask = inputs.get("attention_mask")
    if mask is not None and mask.shape == labels.shape:
        labels[mask == 0] = -100
        labels[:, 1:][mask[:, :-1] == 0] = -100
    return {**inputs, "labels": labels}


def list_gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def find_gradients(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of all parameters, which have none afterwards."""
    model(**inputs).loss.backward()
    found = list_gradients(model)
    model.zero_grad()
    return found


def compare(one: Tensor, other: Tensor, most: float = 1e-4) -> None:
    """Equal within ``most`` of the largest number."""
    assert one.shape == other.shape
    one, other = one.detach(), other.detach()
    assert one.isfinite().all()
    assert float((one - other).abs().max()) <= most * max(1.0, float(one.abs().max()))
