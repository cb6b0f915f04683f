"""What llama.cpp does with positions for each architecture, where the GGUF file does not say it.

Which layers have a sliding window, which rotate and which are recurrent follows from both. Found by
reading llama.cpp of mid-2026, not by running it: src/llama-model.cpp for the layouts
(llama_model_rope_type), load_arch_hparams in src/models/*.cpp for periods and bases of sliding
layers, the graphs there for layers that are not rotated, and LlamaModel.permute of the converter
for permuted weights. Architecture names are those of gguf 0.19. llama.cpp does not run gptj; the
layout given here is that of GPT-J itself.

    norm      pairs of neighbours ("interleaved")         neox     pairs i, i + R/2 ("half")
    mrope     neox with sections for (t, h, w)             imrope   the same, sections interleaved
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from whorl._support.words import quote

from ._values import MOST_LAYERS, Keys
from .model import ConfigError, QueryScale

__all__ = [
    "DEEPSEEK",
    "HALVED",
    "LATENT",
    "PERMUTED",
    "SLIDING",
    "GGUFLayers",
    "RopeStyle",
    "SlidingRule",
    "get_rope_style",
    "group_layers",
]

RopeStyle = Literal["none", "norm", "neox", "mrope", "imrope"]

_NONE = """
    clip gpt2 mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6
    rwkv6qwen2 rwkv7 arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear kimi-k3 starcoder
    bert
"""
_NORM = """
    llama llada llama4 deci baichuan internlm2 minicpm xverse command-r cohere2 cohere2moe olmo
    arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 plm chatglm glm4 granite granitemoe
    granitehybrid granite_swa chameleon bailingmoe bailingmoe3 neo-bert smollm3 arcee ernie4_5
    ernie4_5-moe mistral3 mistral4 eagle3 llama-embed maincoder glm-dsa nanbeige gptj
"""
_NEOX = """
    falcon falcon-h1 grok dbrx jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert stablelm
    bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe phi2 phi3 phimoe
    plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 openelm
    gptneox codeshell orion nemotron exaone exaone4 exaone-moe minicpm3 bailingmoe2 dots1
    hunyuan-moe jais2 gpt-oss hunyuan-dense hunyuan_vl lfm2 lfm2moe smallthinker seed_oss
    grovemoe apertus minimax-m2 cogvlm pangu-embedded afmoe laguna qwen3next mimo2 step35 mellum
    glm4moe
"""
_MROPE = "qwen2vl paddleocr"
_IMROPE = "qwen3vl qwen3vlmoe qwen35 qwen35moe"

_STYLES: dict[str, RopeStyle] = {
    **dict.fromkeys(_NONE.split(), "none"),
    **dict.fromkeys(_NORM.split(), "norm"),
    **dict.fromkeys(_NEOX.split(), "neox"),
    **dict.fromkeys(_MROPE.split(), "mrope"),
    **dict.fromkeys(_IMROPE.split(), "imrope"),
}
#: Architectures that use M-RoPE when the file has sections.
_BY_SECTIONS = ("glm4", "glm4moe", "hunyuan_vl")

#: The converter permutes q and k of these from the half layout to "norm".
_PERMUTED = """
    llama llada deci baichuan internlm2 minicpm xverse olmo arctic granite granitemoe granitehybrid
    granite_swa chameleon bailingmoe smollm3 arcee mistral3 llama-embed maincoder
"""
PERMUTED = frozenset(_PERMUTED.split())

#: Layers with full attention rotate half of the channels that the file says.
HALVED = frozenset({"step35"})

#: The converter multiplies yarn_log_multiplier by 0.1, and the softmax scale includes it.
DEEPSEEK = frozenset({"deepseek2", "deepseek2-ocr", "deepseek32", "glm-dsa", "mistral4"})
#: Architectures with latent attention, also if the file has no attention.kv_lora_rank.
LATENT = DEEPSEEK - {"deepseek2-ocr"}


@dataclass(frozen=True)
class SlidingRule:
    """Which layers of an architecture have sliding windows, and which are not rotated.

    period: one layer in each period has full attention: the last one, or the first one if
        ``full_first``. None if only the file says it (attention.sliding_window_pattern).
    base: of sliding layers if rope.freq_base_swa is missing; None for the base of the others.
    scaled: whether sliding layers have the scaling of the other layers.
    unrotated: layers with "full" attention, or the "last" or "first" of every four layers.
    """

    period: int | None = None
    full_first: bool = False
    base: float | None = None
    scaled: bool = True
    unrotated: Literal["full", "last", "first"] | None = None


_OWN = SlidingRule(base=10_000.0, scaled=False)

SLIDING: dict[str, SlidingRule] = {
    "afmoe": SlidingRule(4, unrotated="last"),
    "cohere2": SlidingRule(4, unrotated="full"),
    "exaone-moe": SlidingRule(4, unrotated="full"),
    "exaone4": SlidingRule(4, unrotated="full"),
    "gemma-embedding": SlidingRule(6, base=10_000.0, scaled=False),
    "gemma2": SlidingRule(2),
    "gemma3": SlidingRule(6, base=10_000.0, scaled=False),
    "gemma3n": SlidingRule(5, base=10_000.0, scaled=False),
    "gemma4": _OWN,
    "gpt-oss": SlidingRule(2),
    "laguna": _OWN,
    "llama4": SlidingRule(4, unrotated="last"),
    "mellum": SlidingRule(4, scaled=False),
    "mimo2": _OWN,
    "modern-bert": SlidingRule(3, full_first=True, base=10_000.0, scaled=False),
    "olmo2": SlidingRule(4, scaled=False),
    "plamo3": SlidingRule(8, base=10_000.0, scaled=False),
    "smallthinker": SlidingRule(4, full_first=True, unrotated="first"),
    "smollm3": SlidingRule(unrotated="last"),
    "step35": _OWN,
}


def get_rope_style(architecture: str, *, sections: bool) -> RopeStyle | None:
    """How llama.cpp pairs channels; None for an architecture that is not known."""
    if sections and architecture in _BY_SECTIONS:
        return "mrope"
    return _STYLES.get(architecture)


_PATTERN = "attention.sliding_window_pattern"
_CHUNK = 8192  # Llama 4 in llama.cpp, independent of the file
_STEP = 4  # n_no_rope_layer_step of llama.cpp, a constant


@dataclass(frozen=True)
class GGUFLayers:
    """Layers that treat positions alike."""

    name: str | None
    layers: tuple[int, ...]
    rotated: bool = True
    attends: bool = True  # False for recurrent layers
    sliding: SlidingRule | None = None  # None for layers with full attention
    window: int | None = None
    query_scale: QueryScale | None = None


def group_layers(keys: Keys) -> tuple[GGUFLayers, ...]:
    """Groups of layers that treat positions alike, in the order of their first layers."""
    count = keys.read_int("block_count", most=MOST_LAYERS)
    family = _choose_rule(keys, count)
    window = keys.read_int("attention.sliding_window", least=0) or None
    if keys.where == "llama4":
        window = _CHUNK
    slides, attends = _make_sliding_test(keys, family, count), _make_attention_test(keys)
    scale = _read_query_scale(keys)
    found: dict[tuple[str, bool], list[int]] = {}
    for layer in range(1 if count is None else count):
        sliding = slides(layer)
        label = "sliding_attention" if sliding else "full_attention"
        if not attends(layer):
            label = "linear_attention"
        rotated = label != "linear_attention" and _is_rotated(family, layer, sliding)
        found.setdefault((label, rotated), []).append(layer)
    return tuple(
        GGUFLayers(
            _name_layers(keys, label) if len(found) > 1 else None,
            () if count is None else tuple(layers),
            rotated,
            label != "linear_attention",
            family if label == "sliding_attention" else None,
            window if label == "sliding_attention" else None,
            scale if keys.where != "llama4" or not rotated else None,
        )
        for (label, rotated), layers in found.items()
    )


def _name_layers(keys: Keys, label: str) -> str:
    """The layer type by its name in transformers; Llama 4 attends within chunks."""
    chunked = keys.where == "llama4" and label == "sliding_attention"
    return "chunked_attention" if chunked else label


def _choose_rule(keys: Keys, count: int | None) -> SlidingRule | None:
    family = SLIDING.get(keys.where)
    window = keys.read_int("attention.sliding_window", least=0)
    if keys.where == "smollm3":
        return family
    if keys.where == "exaone4" and count != 64:  # only the 32B model has sliding windows
        return None
    if keys.where == "llama4":
        return None if window == 0 else family
    return family if window else None


def _make_sliding_test(
    keys: Keys, family: SlidingRule | None, count: int | None
) -> Callable[[int], bool]:
    given = keys.data.get(_PATTERN)
    if family is None or (given is None and family.period is None):
        return lambda layer: False
    if isinstance(given, (list, tuple)):
        flags = list(given)
        if len(flags) < (count or 0) or not all(flag in (0, 1) for flag in flags):
            raise keys.wrong_value(_PATTERN, "a period, or 0 or 1 for each layer")
        return lambda layer: bool(flags[layer]) if layer < len(flags) else False
    period = (
        keys.read_int(_PATTERN, least=0, most=MOST_LAYERS) if given is not None else family.period
    )
    if not period:
        return lambda layer: True
    full = 0 if family.full_first else period - 1
    return lambda layer: layer % period != full


def _is_rotated(family: SlidingRule | None, layer: int, sliding: bool) -> bool:
    if family is None or family.unrotated is None:
        return True
    if family.unrotated == "full":
        return sliding
    return layer % _STEP != (_STEP - 1 if family.unrotated == "last" else 0)


def _make_attention_test(keys: Keys) -> Callable[[int], bool]:
    """Function that says whether a layer has attention; layers without KV heads are recurrent."""
    heads: Any = keys.data.get("attention.head_count_kv")
    if isinstance(heads, (list, tuple)):
        if not all(type(n) is int and n >= 0 for n in heads):
            raise keys.wrong_value("attention.head_count_kv", "a count of heads for each layer")
        return lambda layer: layer >= len(heads) or heads[layer] > 0
    interval = keys.read_int("full_attention_interval", most=MOST_LAYERS)
    if interval is None:
        return lambda layer: True
    return lambda layer: (layer + 1) % interval == 0


def _read_query_scale(keys: Keys) -> QueryScale | None:
    if keys.where == "llama4":
        return QueryScale("log", beta=0.1, length=8192.0, shift=1)
    beta = keys.read_number("attention.temperature_scale")
    if not beta:
        return None
    length = keys.read_int("attention.temperature_length") or keys.read_int(
        "rope.scaling.original_context_length"
    )
    if length is None:
        raise ConfigError(
            f"{keys.path('attention.temperature_scale')} {quote(beta)} needs a length:"
            " attention.temperature_length or rope.scaling.original_context_length."
        )
    return QueryScale("log", beta=beta, length=float(length))
