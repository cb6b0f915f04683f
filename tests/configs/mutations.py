"""Configs of every dialect, damaged in ways that a number decides: ``case(n)`` is always the same.

A seed is a config as models have it; one to four changes put wrong types, NaN, infinities, huge and
negative numbers, deep nesting, other keys, unicode and lists of wrong length into it. Some are then
written as text or as a GGUF file and damaged byte by byte.
"""

import copy
import json
import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from .gguf_files import gguf_bytes, metadata
from .test_meta import LLAMA2, LLAMA31, SCOUT
from .test_mistral import LARGE3, MINISTRAL3, V01

__all__ = ["Case", "case", "seeds"]

_SIZES: dict[str, Any] = {
    "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4,
    "max_position_embeddings": 32768,
}  # fmt: skip

ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0, "alpha": 1000.0},
    {"type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    {
        "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "truncate": False,
        "attention_factor": 1.1,
    },
    {
        "type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.5] * 32,
        "original_max_position_embeddings": 4096, "short_mscale": 1.1, "long_mscale": 1.2,
    },
    {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
    },
    {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    {"type": "mrope", "mrope_section": [8, 12, 12]},
    {"rope_type": "default", "mrope_section": [12, 10, 10], "mrope_interleaved": True},
    {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}},
]  # fmt: skip

_GGUF: list[dict[str, Any]] = [
    metadata("llama", rope__freq_base=500000.0, rope__dimension_count=64),
    metadata(
        "qwen3", rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=2048, rope__scaling__attn_factor=1.2,
    ),
    metadata(
        "gemma3", block_count=7, attention__sliding_window=512, rope__scaling__factor=8.0,
        rope__freq_base_swa=10000.0, attention__sliding_window_pattern=[True, False] * 4,
    ),
    metadata(
        "deepseek2", attention__kv_lora_rank=512, rope__dimension_count=64,
        rope__scaling__type="yarn", rope__scaling__factor=40.0,
        rope__scaling__yarn_log_multiplier=0.0707,
    ),
    metadata("qwen2vl", rope__dimension_sections=[8, 12, 12, 0]),
    metadata("llama4", block_count=8, attention__temperature_scale=0.1),
    metadata("lfm2", attention__head_count_kv=[0, 2, 0, 2], attention__head_count=[0, 4, 0, 4]),
]  # fmt: skip


@cache
def seeds() -> tuple[dict[str, Any], ...]:
    """Configs that can all be read: one of every model type that rotates, and every dialect."""
    defaults = resources.files("whorl.configs.huggingface").joinpath("defaults.json")
    known: dict[str, Any] = json.loads(defaults.read_text("utf-8"))
    found: list[dict[str, Any]] = [
        {**_SIZES, "model_type": "llama", "rope_scaling": rope} for rope in ROPES[:8]
    ]
    for name, entry in known["types"].items():
        keys = {key: v for key, v in entry.get("keys", {}).items() if not key.startswith("default")}
        found.append({"model_type": name, **keys})
    found += [{"model_type": name} for name in ("bert", "gpt2", "jamba", "rwkv", "t5")]
    found += [LLAMA2, LLAMA31, SCOUT, V01, MINISTRAL3, LARGE3, *_GGUF]
    found.append({**found[0], "quantization": {"bits": 4, "group_size": 64}})
    found.append({**found[5], "rope_traditional": True})
    return tuple(found)


@dataclass(frozen=True)
class Case:
    """What is read: an object, or the bytes of a file."""

    number: int
    given: Any
    content: bytes | None = None


def case(number: int) -> Case:
    """The damaged config of this number."""
    rng = random.Random(number)
    config = copy.deepcopy(rng.choice(seeds()))
    kind = rng.random()
    if kind < 0.08:
        pairs = rng.choice(_GGUF)
        factors = [1.0 + n for n in range(rng.choice((32, 32, 32, 16)))]
        names = rng.choice((["rope_freqs"], ["rope_factors_long", "rope_factors_short"], []))
        whole = gguf_bytes(pairs, {f"{name}.weight": factors for name in names})
        return Case(number, None, _damaged_bytes(whole, rng))
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        rng.choice(_CHANGES)(config, rng)
    if kind < 0.16:
        text = json.dumps(config, default=repr).encode()
        return Case(number, None, _damaged_bytes(text, rng) if rng.random() < 0.7 else text)
    if kind < 0.17:
        return Case(number, rng.choice(_ODD))
    return Case(number, config)


def _deep(depth: int) -> Any:
    inner: Any = 1
    for level in range(depth):
        inner = [inner] if level % 2 else {"rope_scaling": inner}
    return inner


_ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 63, 64, 4096, -(2**31), 2**31, 2**63, 10**18, 10**200,
    10**400, 0.0, -0.0, 0.5, -1.5, 64.0, 1e-320, 1e-30, 1e16, 1e308, -1e308, math.nan, math.inf,
    -math.inf, "", "x", "nan", "10000", "yarn", "full_attention", "\ud800", "\u0000",
    "\u2028\U0001f40d" * 3, "a" * 5000, [], [[]], {}, {"a": 1}, [math.nan] * 32, [0.0] * 32,
    ["a", 1], [1.0] * 31, [-1] * 64, [None] * 4, [2**40] * 4, list(range(3000)), (1, 2), b"bytes",
    1 + 2j, {1, 2}, object, _deep(10), _deep(70), _deep(300),
]  # fmt: skip

_WORDS = """
    model_type architectures text_config vision_config rope_theta rope_scaling rope_parameters type
    rope_type factor head_dim hidden_size num_attention_heads num_hidden_layers layer_types
    max_position_embeddings original_max_position_embeddings partial_rotary_factor rotary_pct
    rotary_dim rotary_emb_base sliding_window no_rope_layers no_rope_layer_interval mrope_section
    qk_rope_head_dim qk_nope_head_dim short_factor long_factor attention_factor beta_fast beta_slow
    mscale mscale_all_dim truncate low_freq_factor high_freq_factor rope_local_base_freq alpha
    global_rope_theta local_rope_theta position_embedding_type use_mem_rope alibi quantization
    rope_traditional dim n_layers n_heads hidden_dim multiple_of use_scaled_rope yarn
    llama_4_scaling general.architecture llama.rope.freq_base sliding_window_pattern
    attn_temperature_tuning floor_scale attn_scale per_layer_config rope_interleave kv_channels
    llama_4_scaling_beta num_kv_shared_layers num_nextn_predict_layers full_attention_interval
"""
_NAMES = _WORDS.split()


def _somewhere(config: dict[str, Any], rng: random.Random) -> tuple[Any, Any]:
    """A container and a key or an index in it, at any depth."""
    place: Any = config
    while True:
        if not place:
            return config, rng.choice(_NAMES)
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.4:
            return place, key
        place = inner


def _replace(config: dict[str, Any], rng: random.Random) -> None:
    place, key = _somewhere(config, rng)
    place[key] = copy.deepcopy(rng.choice(_ODD))


def _remove(config: dict[str, Any], rng: random.Random) -> None:
    place, key = _somewhere(config, rng)
    if isinstance(place, list) or key in place:
        del place[key]


def _swap(config: dict[str, Any], rng: random.Random) -> None:
    (a, at), (b, bt) = _somewhere(config, rng), _somewhere(config, rng)
    if (isinstance(a, list) or at in a) and (isinstance(b, list) or bt in b):
        # Copies, because a container inside itself is another case.
        a[at], b[bt] = copy.deepcopy(b[bt]), copy.deepcopy(a[at])


def _rename(config: dict[str, Any], rng: random.Random) -> None:
    place, key = _somewhere(config, rng)
    if isinstance(place, dict) and key in place:
        place[rng.choice(_NAMES)] = place.pop(key)


def _add(config: dict[str, Any], rng: random.Random) -> None:
    place, _ = _somewhere(config, rng)
    target = place if isinstance(place, dict) else config
    value = rng.choice((*_ODD, *ROPES, *ROPES))
    target[rng.choice(_NAMES)] = copy.deepcopy(value)


def _rope(config: dict[str, Any], rng: random.Random) -> None:
    """Another scaling, often with one of its numbers wrong."""
    rope = copy.deepcopy(rng.choice(ROPES))
    if rng.random() < 0.7:
        _replace(rope, rng)
    config[rng.choice(("rope_scaling", "rope_parameters"))] = rope


def _scale(config: dict[str, Any], rng: random.Random) -> None:
    place, key = _somewhere(config, rng)
    if (isinstance(place, list) or key in place) and type(place[key]) in (int, float):
        by = rng.choice((-1, 0.5, 2, 3, 1000, 10**6, 10**9, 1e300, 1e-300))
        whole = type(by) is int or abs(place[key]) > 1e300
        place[key] = place[key] * int(by) if whole else place[key] * by


def _stretch(config: dict[str, Any], rng: random.Random) -> None:
    place, key = _somewhere(config, rng)
    if (isinstance(place, list) or key in place) and isinstance(place[key], list):
        place[key] = place[key] * rng.choice((0, 2, 1000)) + rng.choice(([], [1], [None]))


def _family(config: dict[str, Any], rng: random.Random) -> None:
    config["model_type"] = rng.choice(seeds()).get("model_type", "zebra")


def _wrap(config: dict[str, Any], rng: random.Random) -> None:
    inner = dict(config)
    config.clear()
    config[rng.choice(("text_config", "vision_config", "thinker_config", "encoder"))] = inner
    if rng.random() < 0.5:
        config["model_type"] = rng.choice(seeds()).get("model_type", "zebra")


_CHANGES: list[Callable[[dict[str, Any], random.Random], None]] = [
    _replace, _replace, _replace, _remove, _swap, _rename, _add, _rope, _rope, _scale, _stretch,
    _family, _wrap,
]  # fmt: skip

_PIECES = [
    b"", b"\0", b"\xff" * 8, b"[" * 100, b"{" * 3, b'"', b"\\", b"NaN", b"1e999", b"-", b",", b":",
    struct.pack("<Q", 2**63), struct.pack("<Q", 2**40), struct.pack("<Q", 2**20),
    struct.pack("<I", 2**31), struct.pack("<IIQ", 9, 9, 3), struct.pack("<IIQ", 9, 8, 2**33),
    "\u2028".encode(), b"\xed\xa0\x80", b"GGUF",
]  # fmt: skip


def _damaged_bytes(whole: bytes, rng: random.Random) -> bytes:
    raw = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(raw) + 1)
        piece = rng.choice(_PIECES)
        how = rng.random()
        if how < 0.4:  # over what is there
            raw[at : at + len(piece)] = piece
        elif how < 0.6:
            raw[at:at] = piece
        elif how < 0.8 and at < len(raw):
            raw[at] ^= 1 << rng.randrange(8)
        elif how < 0.9:
            del raw[at : at + rng.randrange(9)]
        else:
            del raw[at:]
    return bytes(raw)
