"""params.json of Mistral's releases: interleaved layout, YaRN with other keys, latent attention.

    dim, n_layers, n_heads, head_dim     head_dim, or else dim / n_heads, is the width of a head
    rope_theta                           if missing, 10000 with a sliding window, 1e6 without
    yarn                                 factor, original_max_position_embeddings, beta and alpha
                                         (beta_fast, beta_slow), apply_scale (false: scale 1)
    llama_4_scaling                      beta, original_max_position_embeddings: scales queries
    sliding_window                       one number for all layers, a list that repeats, or null
    qk_rope_head_dim, kv_lora_rank       latent attention (Mistral Large 3)

Sources: mistralai/mistral-inference, transformer.py (bases), and vLLM 0.32,
transformers_utils/configs/mistral.py (names) and model_executor/layers/rotary_embedding (scales).
"""

from typing import Any

from whorl.scaling import YaRN

from ._notes import get_note
from ._rope_parameters import write_parameters
from ._values import MOST_CHANNELS, MOST_LAYERS, Keys, check_rotation
from .meta import read_head_dim
from .model import ConfigError, LayerGroup, ModelPositions, Note, Parity, QueryScale, Rotation
from .source import Document

__all__ = ["read"]

_ORIGINAL = "original_max_position_embeddings"
_VISION = Note("vision-encoder", "The vision encoder has its own rotation, which is not read.")
_ASSUMED = "rope_theta is missing: Mistral's code uses {:.0f} {} a sliding window."


def read(document: Document, parity: Parity | None = None) -> ModelPositions:
    """What Mistral's code does with positions for this params.json."""
    keys = Keys(document.data)
    windows = _read_windows(keys)
    notes: list[Note] = []
    base = keys.read_number("rope_theta", above=0.0)
    if base is None:
        slides = any(window is not None for window in windows)
        base = 10_000.0 if slides else 1e6
        notes.append(Note("base-assumed", _ASSUMED.format(base, "with" if slides else "without")))
    latent = keys.read_int("qk_rope_head_dim", most=MOST_CHANNELS)
    head_dim = latent or read_head_dim(keys)
    options: dict[str, Any] = {"head_dim": head_dim, "base": base, "layout": "interleaved"}
    yarn = keys.read_object("yarn")
    if yarn is not None:
        options["scaling"] = _read_yarn(yarn)
    rotation, known = check_rotation(Rotation("rope", options)), write_parameters(options)
    scale = _read_query_scale(keys.read_object("llama_4_scaling"))
    own = (get_note("mla"),) if latent else ()
    count = keys.read_int("n_layers", most=MOST_LAYERS)
    groups = []
    for window in dict.fromkeys(windows):
        layers = tuple(i for i in range(count or 0) if windows[i % len(windows)] == window)
        name = None
        if len(set(windows)) > 1:
            name = "full_attention" if window is None else "sliding_attention"
        groups.append(LayerGroup(name, layers, rotation, scale, 1.0, window, own, known))
    if "vision_encoder" in keys or "multimodal" in keys:
        notes.append(_VISION)
    context = keys.read_int("max_position_embeddings") or keys.read_int("max_seq_len")
    trained = context if yarn is None else yarn.read_int(_ORIGINAL)
    return ModelPositions(
        "mistral", "mistral", context, trained, tuple(groups), tuple(notes), parity=parity
    )


def _read_windows(keys: Keys) -> list[int | None]:
    """The windows of the layers, a pattern that repeats; None for full attention."""
    name = "sliding_window" if "sliding_window" in keys else "_sliding_window"
    given = keys.data.get(name)
    if not isinstance(given, (list, tuple)):
        return [keys.read_int(name)]
    if not given or len(given) > MOST_LAYERS:
        raise keys.wrong_value(name, "an int, null, or a list of them")
    return [None if w is None else Keys({name: w}).read_int(name) for w in given]


def _read_yarn(yarn: Keys) -> YaRN:
    factor = yarn.require("factor", yarn.read_number("factor", above=0.0), "YaRN needs it")
    trained = yarn.require(_ORIGINAL, yarn.read_int(_ORIGINAL), "YaRN needs it")
    try:
        return YaRN(
            factor,
            trained,
            beta_fast=yarn.read_number("beta") or 32.0,
            beta_slow=yarn.read_number("alpha") or 1.0,
            attention_factor=None if yarn.read_flag("apply_scale", default=True) else 1.0,
        )
    except ValueError as error:
        raise ConfigError(f"yarn: {error}") from None


def _read_query_scale(keys: Keys | None) -> QueryScale | None:
    if keys is None:
        return None
    beta = keys.require("beta", keys.read_number("beta"), "queries are scaled by it")
    length = keys.require(_ORIGINAL, keys.read_int(_ORIGINAL), "queries are scaled by it")
    return QueryScale("log", beta, float(length))
