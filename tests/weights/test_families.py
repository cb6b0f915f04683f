"""Every model type of transformers with one-dimensional rotary embeddings: converted or refused.

Names and shapes of a model without memory, its config, and nothing else. What is converted must
have q and k in exactly the layers that rotate; what is not must be refused with a reason.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from tests.configs.census import ROTARY, without_timm
from tests.configs.own_code import GATES, config_of
from tests.peers import needs_transformers_5
from whorl.weights.completeness import check_key_heads, check_known, check_layers, check_pairs
from whorl.weights.plan import RowMove, plan_moves
from whorl.weights.safetensors_file import FileHeader, TensorEntry
from whorl.weights.shards import WeightFiles
from whorl.weights.sizes import Stated, find_key_sharing, find_sizes

pytestmark = needs_transformers_5

#: What a config needs besides its defaults for a model to be made of it.
NEEDS: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 2},
    "nemotron": {"num_key_value_heads": 8},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "lfm2_moe": {"layer_types": ["full_attention"] * 4},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "moonshine_streaming": {"num_key_value_heads": 8},
    **{name: {"dropout_rate": 0.0} for name in ("t5gemma2_text", "t5gemma2_decoder")},
    **{n: {"head_dim": 128} for n in ("ministral", "hunyuan_v1_dense", "hunyuan_v1_moe")},
}
#: Model types whose classes take a larger model's config, or a package that may be missing.
NOT_MADE = {
    "Qwen3OmniMoeCode2WavConfig", "chameleon", "dbrx", "deepseek_ocr2_encoder",
    "deepseek_ocr2_text", "dia_decoder", "dia_encoder", "mistral_large4_text",
    "pe_audio_video_encoder", "pe_video_encoder", "t5_gemma_module",
}  # fmt: skip
REFUSED = {
    "bailing_hybrid": "is not supported: layers of latent and of linear attention",
    "clvp_encoder": "Values are rotated",
    "deepseek_v4": "The attention output is rotated back",
    "evolla": "must have the channels of 32 heads",
    "jetmoe": "is not supported: queries are made by experts",
    "neucodec": "The position is the index of the HEAD",
    "qwen2_5_omni_dit": "Only the first head is rotated",
    "seamless_m4t": "before the projections",
    "wav2vec2-bert": "before the projections",
    "wav2vec2-conformer": "before the projections",
    "xcodec2": "The position is the index of the HEAD",
    "zaya": "is not supported: q and k pass through convolutions",
}
#: Names unlike Llama's, or layers unlike each other.
VARIED = [
    *("axk2", "blt_local_decoder", "codegen", "cohere2", "deepseek_v32", "diffllama", "esm"),
    *("falcon", "gemma3n_text", "gpt_neox_japanese", "lfm2", "llama4_text", "mimo_v2_flash"),
    *("minimax", "mllama_text_model", "modernbert", "moshi", "olmo_hybrid", "persimmon", "phi3"),
    *("phi4_multimodal", "qwen3_next", "recurrent_gemma", "roformer", "timesfm2_5", "zamba2"),
]


def classes(model_type: str) -> Iterator[Any]:
    """The model classes of a config, those with a head for text first."""
    rotary = ROTARY[model_type]
    found = [
        value
        for name, value in vars(rotary.modeling).items()
        if inspect.isclass(value)
        and value.__module__ == rotary.modeling.__name__
        and not name.endswith("PreTrainedModel")
        and inspect.isclass(getattr(value, "config_class", None))
        and issubclass(rotary.config_class, getattr(value, "config_class"))  # noqa: B009
        and hasattr(value, "_from_config")
    ]
    return iter(sorted(found, key=lambda one: not one.__name__.endswith("ForCausalLM")))


def model_of(model_type: str) -> tuple[Any, Any]:
    """A config and its model, with four layers if that goes, without memory."""
    more = {**GATES.get(model_type, {}), **NEEDS.get(model_type, {})}
    for shortened in ({"num_hidden_layers": 4}, {"num_hidden_layers": 8}, {}):
        try:
            with without_timm(), torch.device("meta"):
                config = config_of(model_type, **{**shortened, **more})
                return config, next(classes(model_type))._from_config(config)
        except Exception:  # every family refuses in its own way
            if not shortened:
                raise
    raise AssertionError


def made(model_type: str, folder: Path) -> WeightFiles:
    """Names and shapes of a small model, its config beside them."""
    config, model = model_of(model_type)
    data = config.to_dict()
    data["model_type"] = data.get("model_type") or model_type
    (folder / "config.json").write_text(json.dumps(data, default=str))
    at, entries = 100, {}
    for name, tensor in model.state_dict().items():
        end = at + tensor.nbytes
        entries[name] = TensorEntry(name, "F32", tuple(tensor.shape), at, end)
        at = end
    return WeightFiles(
        folder, folder, (FileHeader(folder / "model.safetensors", entries, 100, at),)
    )


def planned(checkpoint: WeightFiles) -> list[RowMove]:
    sizes = find_sizes(checkpoint.config, Stated())
    moves = plan_moves(checkpoint, sizes)
    check_known(checkpoint, sizes, moves, ())
    check_key_heads(moves, sizes)
    check_pairs(moves, find_key_sharing(checkpoint.config))
    assert checkpoint.config is not None
    check_layers(checkpoint, whorl.read_config(checkpoint.config).num_layers)
    return moves


def judge(model_type: str, folder: Path) -> None:
    checkpoint = made(model_type, folder)
    assert checkpoint.config is not None
    if model_type in REFUSED:
        with pytest.raises(ValueError, match=re.escape(REFUSED[model_type])):
            planned(checkpoint)
        return
    moves = planned(checkpoint)
    found = whorl.read_config(checkpoint.config)
    rotated = {n for group in found.groups if group.rotation is not None for n in group.layers}
    if model_type not in ("longcat_flash", "moonshine"):  # other keys for the number of layers
        assert {move.named.layer for move in moves} == rotated
    assert any(head.moves for move in moves for head in move.heads)


@pytest.mark.parametrize("model_type", [*VARIED, *REFUSED])
def test_varied_families(model_type: str, tmp_path: Path) -> None:
    judge(model_type, tmp_path)


def test_special_parts(tmp_path: Path) -> None:
    """What only one family has."""
    moved = {}
    for model_type in ("timesfm2_5", "axk2", "blt_local_decoder"):
        folder = tmp_path / model_type
        folder.mkdir()
        moved[model_type] = planned(made(model_type, folder))
    assert any(move.named.module == "scaling" for move in moved["timesfm2_5"])
    assert any(move.named.module == "q_gate_proj" for move in moved["axk2"])
    assert not any("cross" in move.entry.name for move in moved["blt_local_decoder"])


@pytest.mark.slow
def test_all_families(tmp_path: Path) -> None:
    """154 are converted, 12 refused with a reason, 11 not made; none is converted in part."""
    counts = {"converted": 0, "refused": 0, "not made": len(NOT_MADE)}
    for model_type in ROTARY:
        if model_type not in NOT_MADE:
            folder = tmp_path / model_type
            folder.mkdir()
            judge(model_type, folder)
            counts["refused" if model_type in REFUSED else "converted"] += 1
    print(counts)
    assert counts == {"converted": 154, "refused": 12, "not made": 11}
