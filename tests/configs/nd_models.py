"""The towers and backbones of transformers: their own rotary modules, positions and functions."""

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whorl.configs import Rotation, read_config

#: model_type -> module, rotary class, config class
TOWER_CLASSES = {
    "cohere_compass_vision": ("cohere_compass", "CohereCompassVision"),
    "edgetam_video": ("edgetam_video", "EdgeTamVideo"),
    "ernie4_5_vl_moe_vision": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeVision"),
    "exaone4_5_vision": ("exaone4_5", "Exaone4_5_Vision"),
    "gemma4_vision": ("gemma4", "Gemma4Vision"),
    "glm4v_moe_vision": ("glm4v_moe", "Glm4vMoeVision"),
    "glm4v_vision": ("glm4v", "Glm4vVision"),
    "glm5_next_vision": ("glm5_next", "Glm5NextVision"),
    "glm_ocr_vision": ("glm_ocr", "GlmOcrVision"),
    "kimi_k25_vision": ("kimi_k25", "Kimi_K25Vision"),
    "minimax_m3_vl_vision": ("minimax_m3_vl", "MiniMaxM3VLVision"),
    "mlcd_vision_model": ("mlcd", "MLCDVision"),
    "muse_glimmer_vision": ("muse_glimmer", "MuseGlimmerVision"),
    "muse_spark_vision": ("muse_spark", "MuseSparkVision"),
    "paddleocr_vl_vision": ("paddleocr_vl", "PaddleOCRVision"),
    "pixtral": ("pixtral", "PixtralVision"),
    "qwen2_5_omni_vision_encoder": ("qwen2_5_omni", "Qwen2_5OmniVision"),
    "qwen2_5_vl_vision": ("qwen2_5_vl", "Qwen2_5_VLVision"),
    "qwen2_vl_vision": ("qwen2_vl", "Qwen2VLVision"),
    "qwen3_5_moe_vision": ("qwen3_5_moe", "Qwen3_5MoeVision"),
    "qwen3_5_vision": ("qwen3_5", "Qwen3_5Vision"),
    "qwen3_omni_moe_vision_encoder": ("qwen3_omni_moe", "Qwen3OmniMoeVision"),
    "qwen3_vl_moe_vision": ("qwen3_vl_moe", "Qwen3VLMoeVision"),
    "qwen3_vl_vision": ("qwen3_vl", "Qwen3VLVision"),
    "qwen4_exp_vision": ("qwen4_exp", "Qwen4ExpVision"),
    "sam2_video": ("sam2_video", "Sam2Video"),
    "sam3_tracker_video": ("sam3_tracker_video", "Sam3TrackerVideo"),
    "sam3_vit_model": ("sam3", "Sam3ViT"),
    "step3p5_vision": ("step3p7", "Step3p7Vision"),
    "video_llama_3_vision": ("video_llama_3", "VideoLlama3Vision"),
}


@dataclass(frozen=True)
class Peer:
    """A tower: its module, its config, the rotary module with the positions that it is fed.

    raw: the row and column (and frame) of each token, from 0 on, int64 [T].
    """

    module: Any
    config: Any
    rotary: Any
    fed: Tensor
    raw: dict[str, Tensor]

    def turned(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q and k [1, H, T, D], rotated by the model's own function."""
        cos, sin = self.rotary(q, self.fed)
        module = self.module
        if hasattr(module, "apply_multidimensional_rope"):
            turn = module.apply_multidimensional_rope
            q, k = (turn(x.transpose(1, 2), cos, sin, self.fed).transpose(1, 2) for x in (q, k))
            return q, k
        if hasattr(module, "apply_rotary_pos_emb_2d_self_attn"):
            return module.apply_rotary_pos_emb_2d_self_attn(q, k, cos, sin)
        if hasattr(module, "apply_rotary_pos_emb_2d"):
            return module.apply_rotary_pos_emb_2d(q, k, cos, sin)
        if not hasattr(module, "apply_rotary_pos_emb_vision"):
            return module.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=0)
        turn = module.apply_rotary_pos_emb_vision
        q, k = turn(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        return q.transpose(1, 2), k.transpose(1, 2)


def rotation(config: Any) -> Rotation:
    """The rotation of the first layers."""
    found = read_config(config).groups[0].rotation
    assert found is not None
    return found


def tower(model_type: str) -> Peer:
    """A tower with its default config, and two grids of patches."""
    name, stem = TOWER_CLASSES[model_type]
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    configs = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    config_class = next(
        getattr(configs, found)
        for found in dir(configs)
        if getattr(getattr(configs, found), "model_type", "") == model_type
        and getattr(configs, found).__module__ == configs.__name__
    )
    config = config_class()
    classes = (f"{stem}RotaryEmbedding", f"{stem}VisionRotaryEmbedding", "MLCDRotaryEmbedding")
    rotary = next(getattr(module, found) for found in classes if hasattr(module, found))(config)
    return Peer(module, config, rotary, *_fed(model_type, module, config))


def _fed(model_type: str, module: Any, config: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Positions as the model builds them, and what they stand for."""
    if model_type in ("sam2_video", "sam3_tracker_video", "edgetam_video"):
        stem = TOWER_CLASSES[model_type][1]
        config.memory_attention_rope_feat_sizes = [6, 4]  # width, height
        fed = getattr(module, f"{stem}MemoryAttention").precompute_positions(config)
        return fed, _raster(4, 6)
    if model_type == "sam3_vit_model":
        config.window_size = 4
        return module.Sam3ViTLayer.precompute_positions(config, 4), _raster(4, 4)
    if model_type in ("mlcd_vision_model", "pixtral", "gemma4_vision"):
        raw = _raster(4, 6)
        fed = torch.stack((raw["row"], raw["column"]), -1)
        return (fed.flip(-1)[None] if model_type == "gemma4_vision" else fed), raw
    return _from_grids(model_type, config)


def _from_grids(model_type: str, config: Any) -> tuple[Tensor, dict[str, Tensor]]:
    from transformers.vision_utils import get_vision_position_ids

    apart = ("kimi_k25_vision", "paddleocr_vl_vision", "step3p5_vision")  # these pass 1
    merge = 1 if model_type in apart else getattr(config, "spatial_merge_size", 2)
    grids = torch.tensor([[2, 8, 6], [1, 4, 10]])
    whole = get_vision_position_ids(grids, merge, include_temporal=True)
    raw = dict(zip(("frame", "row", "column"), whole.unbind(-1), strict=True))
    if model_type == "minimax_m3_vl_vision":
        return whole, raw
    fed = get_vision_position_ids(grids, merge)
    return (fed.flip(-1) + 1 if model_type.startswith("muse") else fed), raw


def _raster(height: int, width: int) -> dict[str, Tensor]:
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return {"row": rows.flatten(), "column": columns.flatten()}
