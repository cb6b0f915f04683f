"""The model types of transformers 5.22.2 with one-dimensional rotary embeddings, and their code.

A line for each: its model type (or the class of a config that has none), the module of its model,
and the class or function there that makes the angles.
"""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

__all__ = ["ROTARY", "Rotary", "config_class", "without_timm"]


@dataclass(frozen=True)
class Rotary:
    """Where the code of one model type is."""

    model_type: str
    module: str
    maker: str

    @property
    def modeling(self) -> ModuleType:
        return _module(self.module, "modeling")

    @property
    def config_class(self) -> Any:
        return config_class(self.model_type, self.module)


def config_class(model_type: str, module: str) -> Any:
    """The class of a model type's config."""
    found = _module(module, "configuration")
    for name, value in vars(found).items():
        if not inspect.isclass(value) or value.__module__ != found.__name__:
            continue
        if getattr(value, "model_type", None) == model_type or name == model_type:
            return value
    raise LookupError(f"no config of {model_type} in {found.__name__}")


@contextmanager
def without_timm() -> Iterator[None]:
    """Some configs import timm if there is one, and timm may lack what it needs itself."""
    pytest.importorskip("transformers")
    with mock.patch("transformers.utils.is_timm_available", return_value=False):
        yield


def _module(name: str, kind: str) -> ModuleType:
    with without_timm():
        return importlib.import_module(f"transformers.models.{name}.{kind}_{name}")


_LINES = """
Qwen3OmniMoeCode2WavConfig qwen3_omni_moe Qwen3OmniMoeRotaryEmbedding
SaProtConfig evolla EvollaSaProtRotaryEmbedding
afmoe afmoe AfmoeRotaryEmbedding
apertus apertus ApertusRotaryEmbedding
arcee arcee ArceeRotaryEmbedding
aria_text aria AriaTextRotaryEmbedding
axk1 axk1 AXK1RotaryEmbedding
axk2 axk2 AXK2RotaryEmbedding
bailing_hybrid bailing_hybrid BailingHybridRotaryEmbedding
bamba bamba BambaRotaryEmbedding
beam beam BeamRotaryEmbedding
bitnet bitnet BitNetRotaryEmbedding
blt_global_transformer blt BltRotaryEmbedding
blt_local_decoder blt BltRotaryEmbedding
blt_local_encoder blt BltRotaryEmbedding
blt_patcher blt BltRotaryEmbedding
chameleon chameleon ChameleonRotaryEmbedding
clvp_encoder clvp ClvpRotaryPositionalEmbedding
codegen codegen create_sinusoidal_positions
cohere cohere CohereRotaryEmbedding
cohere2 cohere2 Cohere2RotaryEmbedding
cohere2_moe cohere2_moe Cohere2MoeRotaryEmbedding
csm csm CsmRotaryEmbedding
csm_depth_decoder_model csm CsmRotaryEmbedding
cwm cwm CwmRotaryEmbedding
dbrx dbrx DbrxRotaryEmbedding
deepseek_ocr2_encoder deepseek_ocr2 DeepseekOcr2VisionRotaryEmbedding
deepseek_ocr2_text deepseek_ocr2 DeepseekOcr2TextRotaryEmbedding
deepseek_v2 deepseek_v2 DeepseekV2RotaryEmbedding
deepseek_v3 deepseek_v3 DeepseekV3RotaryEmbedding
deepseek_v32 deepseek_v32 DeepseekV32RotaryEmbedding
deepseek_v4 deepseek_v4 DeepseekV4RotaryEmbedding
dia_decoder dia DiaRotaryEmbedding
dia_encoder dia DiaRotaryEmbedding
diffllama diffllama DiffLlamaRotaryEmbedding
diffusion_gemma_text diffusion_gemma DiffusionGemmaTextRotaryEmbedding
doge doge DogeRotaryEmbedding
dots1 dots1 Dots1RotaryEmbedding
embedding_gemma2_text embedding_gemma2 EmbeddingGemma2RotaryEmbedding
emu3_text_model emu3 Emu3RotaryEmbedding
ernie4_5 ernie4_5 Ernie4_5RotaryEmbedding
ernie4_5_moe ernie4_5_moe Ernie4_5_MoeRotaryEmbedding
esm esm EsmRotaryEmbedding
esmc esmc EsmcRotaryEmbedding
eurobert eurobert EuroBertRotaryEmbedding
evolla evolla EvollaRotaryEmbedding
exaone4 exaone4 Exaone4RotaryEmbedding
exaone_moe exaone_moe ExaoneMoeRotaryEmbedding
falcon falcon FalconRotaryEmbedding
falcon_h1 falcon_h1 FalconH1RotaryEmbedding
flex_olmo flex_olmo FlexOlmoRotaryEmbedding
flint flint FlintRotaryEmbedding
gemma gemma GemmaRotaryEmbedding
gemma2 gemma2 Gemma2RotaryEmbedding
gemma3_text gemma3 Gemma3RotaryEmbedding
gemma3n_text gemma3n Gemma3nRotaryEmbedding
gemma4_text gemma4 Gemma4TextRotaryEmbedding
gemma4_unified_text gemma4_unified Gemma4UnifiedTextRotaryEmbedding
glm glm GlmRotaryEmbedding
glm4 glm4 Glm4RotaryEmbedding
glm4_moe glm4_moe Glm4MoeRotaryEmbedding
glm4_moe_lite glm4_moe_lite Glm4MoeLiteRotaryEmbedding
glm_moe_dsa glm_moe_dsa GlmMoeDsaRotaryEmbedding
glmasr_encoder glmasr GlmAsrRotaryEmbedding
gpt_neox gpt_neox GPTNeoXRotaryEmbedding
gpt_neox_japanese gpt_neox_japanese GPTNeoXJapaneseRotaryEmbedding
gpt_oss gpt_oss GptOssRotaryEmbedding
gptj gptj create_sinusoidal_positions
gradium_phonon_tts gradium_phonon_tts GradiumPhononTTSRotaryEmbedding
granite granite GraniteRotaryEmbedding
granite4_vision_text granite4_vision Granite4VisionTextRotaryEmbedding
granite_swa granite_swa GraniteSWARotaryEmbedding
granitemoe granitemoe GraniteMoeRotaryEmbedding
granitemoe_swa granitemoe_swa GraniteMoeSWARotaryEmbedding
granitemoehybrid granitemoehybrid GraniteMoeHybridRotaryEmbedding
granitemoeshared granitemoeshared GraniteMoeSharedRotaryEmbedding
gte gte GteRotaryEmbedding
helium helium HeliumRotaryEmbedding
higgs_audio_v2 higgs_audio_v2 HiggsAudioV2RotaryEmbedding
hrm_text hrm_text HrmTextRotaryEmbedding
hunyuan_v1_dense hunyuan_v1_dense HunYuanDenseV1RotaryEmbedding
hunyuan_v1_moe hunyuan_v1_moe HunYuanMoEV1RotaryEmbedding
hy_v3 hy_v3 HYV3RotaryEmbedding
hy_v4 hy_v4 HYV4RotaryEmbedding
hyperclovax hyperclovax HyperCLOVAXRotaryEmbedding
idefics idefics IdeficsRotaryEmbedding
jais2 jais2 Jais2RotaryEmbedding
jetmoe jetmoe JetMoeRotaryEmbedding
jina_embeddings_v3 jina_embeddings_v3 JinaEmbeddingsV3RotaryEmbedding
kolibri1 kolibri1 Kolibri1RotaryEmbedding
kyutai_speech_to_text kyutai_speech_to_text KyutaiSpeechToTextRotaryEmbedding
laguna laguna LagunaRotaryEmbedding
lasr_encoder lasr LasrEncoderRotaryEmbedding
lfm2 lfm2 Lfm2RotaryEmbedding
lfm2_moe lfm2_moe Lfm2MoeRotaryEmbedding
llama llama LlamaRotaryEmbedding
llama4_text llama4 Llama4TextRotaryEmbedding
longcat_flash longcat_flash LongcatFlashRotaryEmbedding
mellum mellum MellumRotaryEmbedding
mimi_decoder mimi MimiRotaryEmbedding
mimi_encoder mimi MimiRotaryEmbedding
mimo_v2_flash mimo_v2_flash MiMoV2FlashRotaryEmbedding
minicpm3 minicpm3 MiniCPM3RotaryEmbedding
minimax minimax MiniMaxRotaryEmbedding
minimax_m2 minimax_m2 MiniMaxM2RotaryEmbedding
minimax_m3_vl_text minimax_m3_vl MiniMaxM3VLRotaryEmbedding
ministral ministral MinistralRotaryEmbedding
ministral3 ministral3 Ministral3RotaryEmbedding
mistral mistral MistralRotaryEmbedding
mistral4 mistral4 Mistral4RotaryEmbedding
mistral_large4_text mistral_large4 MistralLarge4TextRotaryEmbedding
mixtral mixtral MixtralRotaryEmbedding
mllama_text_model mllama MllamaRotaryEmbedding
modernbert modernbert ModernBertRotaryEmbedding
modernbert-decoder modernbert_decoder ModernBertDecoderRotaryEmbedding
molmo2_text molmo2 Molmo2RotaryEmbedding
moonshine moonshine MoonshineRotaryEmbedding
moonshine_streaming moonshine_streaming MoonshineStreamingRotaryEmbedding
moshi moshi MoshiRotaryEmbedding
muse_glimmer_assistant muse_glimmer_assistant MuseGlimmerAssistantRotaryEmbedding
muse_glimmer_text muse_glimmer MuseGlimmerTextRotaryEmbedding
muse_spark_text muse_spark MuseSparkTextRotaryEmbedding
nanochat nanochat NanoChatRotaryEmbedding
nemotron nemotron NemotronRotaryEmbedding
nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe Nemotron3_5TranscribeRotaryEmbedding
nemotron3_5_transcribe_word_timestamp nemotron3_5_transcribe Nemotron3_5TranscribeRotaryEmbedding
nemotron3_diarization_audio nemotron3_diarization Nemotron3DiarizationRotaryEmbedding
neucodec neucodec NeuCodecRotaryEmbedding
nomic_bert nomic_bert NomicBertRotaryEmbedding
olmo olmo OlmoRotaryEmbedding
olmo2 olmo2 Olmo2RotaryEmbedding
olmo3 olmo3 Olmo3RotaryEmbedding
olmo_hybrid olmo_hybrid OlmoHybridRotaryEmbedding
olmoe olmoe OlmoeRotaryEmbedding
openai_privacy_filter openai_privacy_filter OpenAIPrivacyFilterRotaryEmbedding
pe_audio_encoder pe_audio PeAudioEncoderRotaryEmbedding
pe_audio_video_encoder pe_audio_video PeAudioVideoEncoderRotaryEmbedding
pe_video_encoder pe_video PeVideoEncoderRotaryEmbedding
persimmon persimmon PersimmonRotaryEmbedding
phi phi PhiRotaryEmbedding
phi3 phi3 Phi3RotaryEmbedding
phi4_multimodal phi4_multimodal Phi4MultimodalRotaryEmbedding
phimoe phimoe PhimoeRotaryEmbedding
pocket_tts pocket_tts PocketTTSRotaryEmbedding
pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer PocketTTSAudioTokenizerRotaryEmbedding
pocket_tts_audio_tokenizer_encoder pocket_tts_audio_tokenizer PocketTTSAudioTokenizerRotaryEmbedding
qwen2 qwen2 Qwen2RotaryEmbedding
qwen2_5_omni_dit qwen2_5_omni Qwen2_5OmniDiTRotaryEmbedding
qwen2_moe qwen2_moe Qwen2MoeRotaryEmbedding
qwen3 qwen3 Qwen3RotaryEmbedding
qwen3_moe qwen3_moe Qwen3MoeRotaryEmbedding
qwen3_next qwen3_next Qwen3NextRotaryEmbedding
qwen3_omni_moe_talker_code_predictor qwen3_omni_moe Qwen3OmniMoeRotaryEmbedding
recurrent_gemma recurrent_gemma RecurrentGemmaRotaryEmbedding
roformer roformer RoFormerSinusoidalPositionalEmbedding
seamless_m4t seamless_m4t SeamlessM4TConformerRotaryPositionalEmbedding
seed_oss seed_oss SeedOssRotaryEmbedding
smollm3 smollm3 SmolLM3RotaryEmbedding
solar_open solar_open SolarOpenRotaryEmbedding
stablelm stablelm StableLmRotaryEmbedding
starcoder2 starcoder2 Starcoder2RotaryEmbedding
step3p5 step3p7 Step3p7RotaryEmbedding
t5_gemma_module t5gemma T5GemmaRotaryEmbedding
t5gemma2_decoder t5gemma2 T5Gemma2RotaryEmbedding
t5gemma2_text t5gemma2 T5Gemma2RotaryEmbedding
timesfm2_5 timesfm2_5 TimesFm2_5RotaryEmbedding
ultrabert ultrabert UltrabertRotaryEmbedding
unlimited_ocr_text unlimited_ocr UnlimitedOcrTextRotaryEmbedding
vaultgemma vaultgemma VaultGemmaRotaryEmbedding
voxtral_realtime_encoder voxtral_realtime VoxtralRealtimeRotaryEmbedding
voxtral_realtime_text voxtral_realtime VoxtralRealtimeRotaryEmbedding
wav2vec2-bert wav2vec2_bert Wav2Vec2BertRotaryPositionalEmbedding
wav2vec2-conformer wav2vec2_conformer Wav2Vec2ConformerRotaryPositionalEmbedding
xcodec2 xcodec2 Xcodec2RotaryEmbedding
youtu youtu YoutuRotaryEmbedding
zamba2 zamba2 Zamba2RotaryEmbedding
zaya zaya ZayaRotaryEmbedding
"""

#: By model type.
ROTARY: dict[str, Rotary] = {
    line.split()[0]: Rotary(*line.split()) for line in _LINES.strip().splitlines()
}
