"""Export of a model to Hugging Face format: with RoPE, the lab's model is a Llama or a Qwen3.

    config.json                              shape, base and scaling
    model.safetensors                        q, k and v as separate matrices
    tokenizer.json, tokenizer_config.json    a copy of the given file, or every byte a token

``transformers.AutoModelForCausalLM.from_pretrained(folder)`` then returns a LlamaForCausalLM with
the same logits: Touvron et al. 2023, Llama, https://arxiv.org/abs/2302.13971. With qk_norm =
"before" it is a Qwen3ForCausalLM: Yang et al. 2025, https://arxiv.org/abs/2505.09388.

The logits differ by rounding of the angles: whorl computes them in float64, transformers in
float32, so that cos and sin differ by 1e-5 at 64 positions and by 8e-4 at 4096. The layout
"interleaved" becomes "half" by a permutation of the rows of q and k, which is exact. With a dynamic
scaling, whole sequences give the same logits; in decoding, transformers uses the longest length so
far and does not rotate cached keys again.

There is no generation_config.json, because the lab has no token that ends a text.
"""

from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from whorl._support.bounded_json import JsonLimits, parse_json
from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.encodings import RoPE
from whorl.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Scaling, YaRN

from ._checks import check_count
from .architectures import build_model
from .config import RunConfig
from .files import format_json, resolve_free_folder, write_folder
from .model import NORM_EPS, Model, TransformerLayer
from .roformer import RoFormerMaskedLM
from .roformer_weights import check_saving, save_roformer
from .runs import Run

__all__ = ["check_export", "export", "export_run"]

_BYTES = 256
#: Known files have up to 260,000 tokens and 510,000 merges of two tokens, in 33 MB.
_TOKENIZER_LIMITS = JsonLimits("tokenizers file", bytes=256 * 2**20, values=4 * 10**6, depth=64)


def export(
    model: Model, folder: str | Path, *, tokenizer: str | Path | None = None, length: int
) -> Path:
    """Write ``model`` to ``folder`` for transformers, atomically; returns the folder.

    Args:
        model: a decoder with softmax attention and RoPE over the whole head, without a scaling or
            with one that transformers has. Llama has nothing else, so other models are refused.
        folder: must not exist or be empty. If the process is killed, a hidden folder that ends in
            ".part" remains beside it; the next export to the same folder replaces it.
        tokenizer: the tokenizer.json that the model was trained with; None for bytes.
        length: the trained length. It becomes ``max_position_embeddings``; with YaRN, Llama3 and
            LongRoPE, which have a separate field for it, that is the extended length.

    Raises:
        ValueError: the model cannot be written as one of these, or the folder is not empty.
        OSError: the folder cannot be written.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a whorl.lab Model; got {type(model).__name__}.")
    check_count("length", length)
    target = resolve_free_folder(Path(folder))
    safetensors = import_extra("safetensors.torch", by="whorl.lab", extra="lab")
    rope = _require_rope(model)
    contents = {
        "config.json": format_json(_build_config(model, *_build_rope_parameters(rope, length))),
        "tokenizer.json": _read_tokenizer(tokenizer, model.vocab),
        "tokenizer_config.json": format_json(
            # Without a class transformers uses that of Llama, which splits text differently.
            {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        ),
        "model.safetensors": safetensors.save(
            _collect_weights(model, rope), metadata={"format": "pt"}
        ),
    }
    write_folder(target, contents)
    return Path(folder)


def check_export(config: RunConfig, folder: str | Path) -> None:
    """Raise before training what ``export`` would raise after it."""
    model = build_model(config.model, vocab=_BYTES, longest=config.training.length)
    if isinstance(model, Model):
        _build_rope_parameters(_require_rope(model), config.training.length)
    elif isinstance(model, RoFormerMaskedLM):
        check_saving(model)
    resolve_free_folder(Path(folder))


def export_run(run: Run, folder: str | Path) -> Path:
    """Export the model of a run's last checkpoint; returns the folder.

    A run with architecture "roformer" is written by ``save_roformer``, without a tokenizer.
    """
    config = run.load_config()
    model = run.load_model()
    if isinstance(model, RoFormerMaskedLM):
        return save_roformer(model, folder)
    assert isinstance(model, Model)
    tokenizer = config.data.tokenizer
    return export(model, folder, tokenizer=tokenizer, length=config.training.length)


def _require_rope(model: Model) -> RoPE:
    """The model's RoPE; ValueError if the model cannot be written as a Llama."""
    config, encoding = model.config, model.encoding
    if config.kind != "decoder":
        _refuse(f"kind = {config.kind!r}", "in Llama a token does not attend to later ones")
    if config.attention != "softmax":
        _refuse(f"attention = {config.attention!r}", "Llama's attention is softmax attention")
    if config.qk_norm == "after":
        why = "Qwen3 normalizes queries and keys before their rotation, Llama not at all"
        _refuse("qk_norm = 'after'", why)
    if type(encoding) is not RoPE:
        _refuse(f"the encoding {quote(encoding)}", "Llama has no other position encoding than RoPE")
    options = encoding.config
    if options.width != options.head_dim:
        why = f"Llama rotates all {options.head_dim} channels of a head"
        _refuse(f"RoPE with rotary_dim={options.width}", why)
    if options.inv_freq is not None:
        _refuse("RoPE with inv_freq=", "Llama computes its frequencies from a base")
    if options.frequencies != "fixed":
        _refuse("RoPE with frequencies='trained'", "Llama's frequencies are constants")
    if options.precision != "float64":
        why = "config.json has no field for it, so it would be lost; leave the option out"
        _refuse(f"RoPE with precision={options.precision!r}", why)
    return encoding


def _refuse(what: str, why: str) -> NoReturn:
    """Raise ValueError: ``what`` cannot be exported."""
    raise ValueError(
        f"{what} cannot be written as a Llama: {why}. What can be: a decoder with softmax"
        " attention and RoPE over the whole head, in any layout and base, with no scaling or one of"
        " linear, ntk, dynamic_ntk, yarn (ramp='index'), llama3, longrope; with qk_norm = 'before'"
        " it is a Qwen3."
    )


def _build_config(model: Model, rope_parameters: dict[str, Any], longest: int) -> dict[str, Any]:
    shape = model.config
    normed = shape.qk_norm == "before"
    return {
        "architectures": ["Qwen3ForCausalLM" if normed else "LlamaForCausalLM"],
        "model_type": "qwen3" if normed else "llama",
        "vocab_size": model.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": longest,
        "rope_parameters": rope_parameters,
        "rms_norm_eps": NORM_EPS,
        "attention_bias": False,
        **({} if normed else {"mlp_bias": False}),  # Qwen3 has none, and no option for it
        "attention_dropout": shape.dropout,
        "tie_word_embeddings": shape.tied,
        # Llama's defaults, 1 and 2, are ordinary bytes here.
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
    }


def _build_rope_parameters(rope: RoPE, length: int) -> tuple[dict[str, Any], int]:
    """``rope_parameters`` and ``max_position_embeddings`` of config.json."""
    scaling, width = rope.config.scaling, rope.config.width
    base = float(rope.config.base)
    if isinstance(scaling, NTK) or (isinstance(scaling, DynamicNTK) and scaling.alpha is not None):
        factor = scaling.factor if isinstance(scaling, NTK) else scaling.alpha
        assert factor is not None
        # NTK only raises the base; a single pair does not depend on the base.
        base *= factor ** (width / (width - 2)) if width > 2 else 1.0
        scaling = None
    if scaling is None:
        kind, options, longest = "default", {}, length
    elif isinstance(scaling, Linear):
        kind, options, longest = "linear", {"factor": scaling.factor}, length
    elif isinstance(scaling, DynamicNTK):
        kind, options, longest = "dynamic", _build_dynamic_options(scaling, width, length), length
    else:
        kind, options = _build_extended_options(scaling, rope, length)
        original = options["original_max_position_embeddings"]
        longest = max(length, round(options["factor"] * original))
    return {"rope_type": kind, "rope_theta": base, **options}, longest


def _build_dynamic_options(scaling: DynamicNTK, width: int, length: int) -> dict[str, Any]:
    if scaling.original_context != length:
        raise ValueError(
            f"length must be {scaling.original_context}, the original_context of DynamicNTK,"
            f" because transformers extends from max_position_embeddings on; got {length}. Pass"
            " that length, or build the model with another original_context."
        )
    if width == 2:
        _refuse("DynamicNTK on a head of 2 channels", "transformers divides by their number - 2")
    return {"factor": scaling.factor}


def _build_extended_options(
    scaling: Scaling, rope: RoPE, length: int
) -> tuple[str, dict[str, Any]]:
    """``rope_type`` and options of the scalings that have an original context."""
    if isinstance(scaling, YaRN) and scaling.ramp == "index":
        names = ["factor", "beta_fast", "beta_slow", "truncate"]
        given = ["attention_factor", "mscale", "mscale_all_dim"]
        options = {name: getattr(scaling, name) for name in names}
        options |= {n: float(getattr(scaling, n)) for n in given if getattr(scaling, n) is not None}
        if scaling.mscale_rule == "each":  # transformers has only the other rule
            options["attention_factor"] = float(rope.frequencies().attention_scale)
        kind = "yarn"
    elif isinstance(scaling, Llama3):
        names = ["factor", "low_freq_factor", "high_freq_factor"]
        kind, options = "llama3", {name: getattr(scaling, name) for name in names}
    elif isinstance(scaling, LongRoPE) and scaling.long_attention_factor in (
        None,
        scaling.attention_factor,
    ):
        factor = scaling.factor or max(1.0, length / scaling.original_context)
        lists = {"short_factor": scaling.short_factors, "long_factor": scaling.long_factors}
        kind, options = "longrope", {"factor": factor, **{n: list(v) for n, v in lists.items()}}
        if scaling.attention_factor is not None:
            options["attention_factor"] = float(scaling.attention_factor)
    else:
        _refuse(f"the scaling {quote(scaling)}", "transformers has none that gives the same angles")
    return kind, {**options, "original_max_position_embeddings": scaling.original_context}


def _collect_weights(model: Model, rope: RoPE) -> dict[str, Tensor]:
    """All weights by their names in transformers."""
    weights = {"model.embed_tokens": model.embedding.weight, "model.norm": model.norm.weight}
    if not model.config.tied:
        weights["lm_head"] = model.head.weight
    for n, block in enumerate(model.blocks):
        assert isinstance(block, TransformerLayer)
        layer = _collect_layer_weights(block, interleaved=rope.config.layout == "interleaved")
        weights |= {f"model.layers.{n}.{name}": weight for name, weight in layer.items()}
    # Copies, because safetensors refuses tensors that share memory, as q, k and v do.
    return {f"{n}.weight": w.detach().cpu().clone().contiguous() for n, w in weights.items()}


def _collect_layer_weights(block: TransformerLayer, *, interleaved: bool) -> dict[str, Tensor]:
    D, H, G = block.config.head_dim, block.config.heads, block.config.key_heads
    q, k, v = torch.split(block.qkv.weight, [H * D, G * D, G * D])
    gate, up = block.gate_up.weight.chunk(2)
    norms: dict[str, Tensor] = {}
    if block.config.qk_norm != "none":
        norms = {"q_norm": block.q_norm.weight, "k_norm": block.k_norm.weight}
    if interleaved:
        q, k = _permute_to_half_layout(q, D), _permute_to_half_layout(k, D)
        norms = {name: weight.reshape(-1, 2).mT.flatten() for name, weight in norms.items()}
    return {
        **{f"self_attn.{name}": weight for name, weight in norms.items()},
        "input_layernorm": block.attention_norm.weight,
        "self_attn.q_proj": q,
        "self_attn.k_proj": k,
        "self_attn.v_proj": v,
        "self_attn.o_proj": block.out.weight,
        "post_attention_layernorm": block.mlp_norm.weight,
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": block.down.weight,
    }


def _permute_to_half_layout(weight: Tensor, head_dim: int) -> Tensor:
    """Weights whose rows 2i and 2i + 1 of each head are moved to i and i + D/2."""
    pairs = weight.reshape(-1, head_dim // 2, 2, weight.shape[1])  # [H, D/2, 2, E]
    return pairs.transpose(1, 2).flatten(0, 2)


def _read_tokenizer(source: str | Path | None, vocab: int) -> bytes:
    """The content of tokenizer.json: the file ``source``, or a tokenizer of bytes."""
    if source is None:
        if vocab != _BYTES:
            raise ValueError(
                f"tokenizer must be given, because the model has {vocab} tokens, not {_BYTES}"
                " bytes; pass the tokenizer.json that it was trained with."
            )
        return format_json(_build_byte_tokenizer())
    try:
        data = Path(source).read_bytes()
        size = _count_tokens(parse_json(data, _TOKENIZER_LIMITS))
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"tokenizer {str(source)!r} cannot be read: {why}.") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"tokenizer {str(source)!r} is not a tokenizers file; pass a tokenizer.json."
        ) from None
    if size != vocab:
        raise ValueError(
            f"tokenizer {str(source)!r} has {size} tokens, and the model has {vocab}; pass the one"
            " that the model was trained with."
        )
    return data


def _count_tokens(document: Any) -> int:
    vocab = document["model"]["vocab"]  # {token: id}, or [[token, score], ...]
    tokens = {*vocab} if isinstance(vocab, dict) else {token for token, _ in vocab}
    return len(tokens | {token["content"] for token in document.get("added_tokens") or []})


def _build_byte_tokenizer() -> dict[str, Any]:
    """A byte-level BPE tokenizer without merges, in which the id of a token is its byte.

    Radford et al. 2019, GPT-2, section 2.2: printable bytes are represented by their characters,
    the others by the characters from 256 on.
    """
    itself = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)}
    others = [byte for byte in range(_BYTES) if byte not in itself]
    characters = {
        byte: chr(byte if byte in itself else 256 + others.index(byte)) for byte in range(256)
    }
    # No regular expression is needed to split words, because nothing is merged.
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    bytewise["use_regex"] = False
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": bytewise,
        "post_processor": None,
        "decoder": bytewise,
        "model": {
            "type": "BPE",
            "vocab": {character: byte for byte, character in characters.items()},
            "merges": [],
        },
    }
