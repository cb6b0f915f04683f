"""defaults.json is what the pinned transformers has, and nothing that rotates there is left out."""

import json
import re
from pathlib import Path

import transformers

from tests.peers import needs_transformers_5
from whorl.configs.huggingface import defaults
from whorl.configs.huggingface.families import FAMILIES

from .census import ROTARY
from .defaults_document import document

pytestmark = needs_transformers_5

#: Classes beside those of the census, by module: several coordinates at once, which the tests of
#: whorl.configs.huggingface.nd compare.
_ND = """
cohere_compass CohereCompassRotaryEmbedding CohereCompassVisionRotaryEmbedding
cosmos3_edge Cosmos3EdgeTextRotaryEmbedding
dinov3_vit DINOv3ViTRopePositionEmbedding
edgetam_video EdgeTamVideoRoPECrossAttention EdgeTamVideoRoPESelfAttention
edgetam_video EdgeTamVideoVisionRotaryEmbedding
efficientloftr EfficientLoFTRRotaryEmbedding
eomt_dinov3 EomtDinov3RotaryEmbedding
ernie4_5_vl_moe Ernie4_5_VLMoeTextRotaryEmbedding Ernie4_5_VLMoeVisionRotaryEmbedding
esmfold2 EsmFold2RotaryEmbedding
exaone4_5 Exaone4_5_VisionRotaryEmbedding
gemma4 Gemma4VisionRotaryEmbedding
glm4v Glm4vTextRotaryEmbedding Glm4vVisionRotaryEmbedding
glm4v_moe Glm4vMoeTextRotaryEmbedding Glm4vMoeVisionRotaryEmbedding
glm5_next Glm5NextVisionRotaryEmbedding
glm_image GlmImageTextRotaryEmbedding
glm_ocr GlmOcrTextRotaryEmbedding GlmOcrVisionRotaryEmbedding
hunyuan_vl HunYuanVLRotaryEmbedding
kimi_k25 Kimi_K25VisionRotaryEmbedding
llama4 Llama4VisionRotaryEmbedding
minimax_m3_vl MiniMaxM3VLVisionRotaryEmbedding
mlcd MLCDRotaryEmbedding
muse_glimmer MuseGlimmerVisionRotaryEmbedding
muse_spark MuseSparkVisionRotaryEmbedding
musicflamingo MusicFlamingoRotaryEmbedding
neomme NeoMMERotaryEmbedding
paddleocr_vl PaddleOCRRotaryEmbedding PaddleOCRVisionRotaryEmbedding
pixtral PixtralVisionRotaryEmbedding
qwen2_5_omni Qwen2_5OmniRotaryEmbedding Qwen2_5OmniVisionRotaryEmbedding
qwen2_5_vl Qwen2_5_VLRotaryEmbedding Qwen2_5_VLVisionRotaryEmbedding
qwen2_vl Qwen2VLRotaryEmbedding Qwen2VLVisionRotaryEmbedding
qwen3_5 Qwen3_5TextRotaryEmbedding Qwen3_5VisionRotaryEmbedding
qwen3_5_moe Qwen3_5MoeTextRotaryEmbedding Qwen3_5MoeVisionRotaryEmbedding
qwen3_omni_moe Qwen3OmniMoeTalkerRotaryEmbedding Qwen3OmniMoeThinkerTextRotaryEmbedding
qwen3_omni_moe Qwen3OmniMoeVisionRotaryEmbedding
qwen3_vl Qwen3VLTextRotaryEmbedding Qwen3VLVisionRotaryEmbedding
qwen3_vl_moe Qwen3VLMoeTextRotaryEmbedding Qwen3VLMoeVisionRotaryEmbedding
qwen4_exp Qwen4ExpTextRotaryEmbedding Qwen4ExpVisionRotaryEmbedding
sam2_video Sam2VideoRoPEAttention Sam2VideoVisionRotaryEmbedding
sam3 Sam3ViTRoPEAttention Sam3ViTRotaryEmbedding
sam3_tracker_video Sam3TrackerVideoRoPEAttention Sam3TrackerVideoVisionRotaryEmbedding
sapiens2 Sapiens2RopePositionEmbedding
step3p7 Step3p7VisionRotaryEmbedding
video_llama_3 VideoLlama3VisionRotaryEmbedding
vjepa2 VJEPA2RopeAttention
"""
ND = {(line.split()[0], name) for line in _ND.strip().splitlines() for name in line.split()[1:]}
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def rotary_classes() -> set[tuple[str, str]]:
    """Module and name of every class in transformers' models that is called rotary, or RoPE."""
    models = Path(transformers.__file__).parent / "models"
    return {
        (file.parent.name, name)
        for file in models.glob("*/modeling_*.py")
        for name in re.findall(
            r"^class (\w*(?:Rotary|RoPE|Rope)\w*)", file.read_text("utf-8"), re.MULTILINE
        )
    }


def test_every_rotary_class_of_transformers_is_known() -> None:
    found = rotary_classes()
    census = {(rotary.module, rotary.maker) for rotary in ROTARY.values()}
    assert len(found) > 200
    assert sorted(found - census - ND) == []
    assert sorted(ND - found) == []
    assert ND.isdisjoint(census)


def test_types_whose_layers_all_have_the_window_are_known() -> None:
    rule = "config.sliding_window is None else create_sliding_window_causal_mask"
    models = Path(transformers.__file__).parent / "models"
    found = {f.parent.name for f in models.glob("*/modeling_*.py") if rule in f.read_text("utf-8")}
    sliding = [name for name, family in FAMILIES.items() if family.window is not None]
    assert {"mistral", "phi3", "qwen3_moe"} <= found
    assert [m for m in sorted(found) if not any(name.startswith(m) for name in sliding)] == []


def test_the_tests_run_on_the_transformers_that_the_defaults_are_of() -> None:
    """On another one, run scripts/transformers-defaults and look at what the test above says."""
    assert transformers.__version__ == defaults.get_version()
    assert f'"transformers=={defaults.get_version()}"' in PYPROJECT.read_text()


def test_defaults_are_those_of_the_installed_transformers() -> None:
    made = json.loads(json.dumps(document()))
    assert made["types"] == defaults._load_document()["types"]
    assert made == defaults._load_document()
