"""params.json of Mistral's own releases: interleaved pairs, YaRN by other names, latent attention.

    dim, n_layers, n_heads, head_dim     a head has dim / n_heads channels unless head_dim says it
    rope_theta                           missing: 10000 with a sliding window, 1e6 without
    yarn                                 factor, original_max_position_embeddings, beta and alpha
                                         (beta_fast, beta_slow), apply_scale (false: scale 1)
    llama_4_scaling                      beta, original_max_position_embeddings: scales queries
    sliding_window                       for all layers, or a list that repeats; null: none
    qk_rope_head_dim, kv_lora_rank       latent attention (Mistral Large 3)

Read off mistralai/mistral-inference, transformer.py (bases), and vLLM 0.32,
transformers_utils/configs/mistral.py (names) and model_executor/layers/rotary_embedding (scales).
"""

from typing import Any

from whorl.scaling import YaRN

from ._notes import note
from ._values import MOST_CHANNELS, MOST_LAYERS, Keys, sound
from ._written import parameters
from .meta import heads_width
from .model import ConfigError, LayerGroup, ModelPositions, Note, Parity, QueryScale, Rotation
from .source import Document

__all__ = ["read"]

_VISION = Note("vision-encoder", "The vision encoder has a rotation of its own, which is not read.")
_ASSUMED = "rope_theta is missing: {:.0f} is what Mistral's code takes {} a sliding window."


def read(document: Document, parity: Parity | None = None) -> ModelPositions:
    """What Mistral's code does with positions for this params.json."""
    keys = Keys(document.data)
    windows = _windows(keys)
    notes: list[Note] = []
    base = keys.number("rope_theta", above=0.0)
    if base is None:
        slides = any(window is not None for window in windows)
        base = 10_000.0 if slides else 1e6
        notes.append(Note("base-assumed", _ASSUMED.format(base, "with" if slides else "without")))
    latent = keys.whole("qk_rope_head_dim", most=MOST_CHANNELS)
    head_dim = latent or heads_width(keys)
    options: dict[str, Any] = {"head_dim": head_dim, "base": base, "layout": "interleaved"}
    yarn = keys.under("yarn")
    if yarn is not None:
        options["scaling"] = _yarn(yarn)
    rotation, known = sound(Rotation("rope", options)), parameters(options)
    scale = _query_scale(keys.under("llama_4_scaling"))
    own = (note("mla"),) if latent else ()
    count = keys.whole("n_layers", most=MOST_LAYERS)
    groups = []
    for window in dict.fromkeys(windows):
        layers = tuple(i for i in range(count or 0) if windows[i % len(windows)] == window)
        name = None
        if len(set(windows)) > 1:
            name = "full_attention" if window is None else "sliding_attention"
        groups.append(LayerGroup(name, layers, rotation, scale, 1.0, window, own, known))
    if "vision_encoder" in keys or "multimodal" in keys:
        notes.append(_VISION)
    context = keys.whole("max_position_embeddings") or keys.whole("max_seq_len")
    trained = context if yarn is None else yarn.whole("original_max_position_embeddings")
    return ModelPositions(
        "mistral", "mistral", context, trained, tuple(groups), tuple(notes), parity=parity
    )


def _windows(keys: Keys) -> list[int | None]:
    """The window of each layer, repeating; None sees everything."""
    name = "sliding_window" if "sliding_window" in keys else "_sliding_window"
    given = keys.data.get(name)
    if not isinstance(given, (list, tuple)):
        return [keys.whole(name)]
    if not given or len(given) > MOST_LAYERS:
        raise keys.refused(name, "an int, null, or a list of them")
    return [None if w is None else Keys({name: w}).whole(name) for w in given]


def _yarn(yarn: Keys) -> YaRN:
    factor = yarn.number("factor", above=0.0)
    trained = yarn.whole("original_max_position_embeddings")
    if factor is None or trained is None:
        missing = "factor" if factor is None else "original_max_position_embeddings"
        raise yarn.missing(missing, "YaRN needs it")
    try:
        return YaRN(
            factor,
            trained,
            beta_fast=yarn.number("beta") or 32.0,
            beta_slow=yarn.number("alpha") or 1.0,
            attention_factor=None if yarn.flag("apply_scale", default=True) else 1.0,
        )
    except ValueError as error:
        raise ConfigError(f"read_config: yarn: {error}") from None


def _query_scale(keys: Keys | None) -> QueryScale | None:
    if keys is None:
        return None
    beta = keys.number("beta")
    length = keys.whole("original_max_position_embeddings")
    if beta is None or length is None:
        missing = "beta" if beta is None else "original_max_position_embeddings"
        raise keys.missing(missing, "queries are scaled by it")
    return QueryScale("log", beta, float(length))
