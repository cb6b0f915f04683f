"""Texts of the notes, by id: what models do that is not part of their rotation."""

from .model import Note

__all__ = ["TEXTS", "get_note"]

TEXTS: dict[str, str] = {
    "alibi-instead": "The config asks for ALiBi, so queries and keys are not rotated.",
    "backward-ramp": (
        "beta_fast is below beta_slow, and transformers lets that pass: YaRN's ramp runs backwards,"
        " so fast pairs are slowed and slow pairs are not. Most likely the two are swapped."
    ),
    "before-projection": (
        "The input of the attention layer is rotated, before the projections to queries and keys;"
        " values are computed from the input before rotation."
    ),
    "chunked-attention": (
        "A token attends to earlier tokens of its own chunk; the window is the length of a chunk."
    ),
    "cross-attention-unrotated": "Cross-attention layers leave queries and keys unrotated.",
    "fewer-queries": "Queries are the last tokens only: they take the last rows of the table.",
    "float64-angles": "Angles are computed in float64, as whorl does by default.",
    "fp32-rotation": "Queries and keys are rotated in float32 and rounded afterwards.",
    "fp32-tables": "cos and sin stay float32 in half-precision models.",
    "head-index-positions": (
        "The position is the index of the HEAD, not of the token: heads and tokens are"
        " transposed when the rotation is applied."
    ),
    "indexer-front": "The sparse indexer rotates the first channels of its own, narrower heads.",
    "indexer-half": "The sparse indexer rotates in the half layout, unlike attention.",
    "indexer-interleaved": "The sparse indexer rotates its heads too, interleaved as attention.",
    "indexer-tail": "The sparse indexer keeps its rotated channels last.",
    "key-multiplier": "Keys are multiplied by key_multiplier before they are rotated.",
    "learned-gains": (
        "Frequencies are multiplied by exp(alpha), where alpha is a tensor of the checkpoint; what"
        " is read holds for alpha = 0."
    ),
    "learned-query-scale": (
        "Queries are multiplied by scale ln(p + 1) + bias, trained for each head, which no config"
        " holds."
    ),
    "mla": (
        "Multi-head latent attention: a separate part of each query, and one key part shared by"
        " all heads, of qk_rope_head_dim channels, is rotated."
    ),
    "negative-positions": "Padding tokens on the left have negative positions.",
    "no-attention": "Layers of this type have no queries and keys.",
    "no-rotary": "This model has no rotary embedding.",
    "no-sign": "The model type is not known, and no key mentions a rotary embedding.",
    "nope-layers": "These layers leave queries and keys unrotated.",
    "odd-rotary-width": (
        "The rotated width is odd; transformers rounds the number of pairs up and keeps the odd"
        " width in the exponent."
    ),
    "one-head": "Only the first head is rotated.",
    "output-unrotated": "The attention output is rotated back by the position of its query.",
    "partial-ignored": (
        "transformers ignores partial_rotary_factor here, because rope_type is 'default', and"
        " rotates the whole head; parity='transformers' does so too."
    ),
    "per-layer-head-dim": "The width of a head depends on the type of the layer.",
    "qk-norm-after": "Queries and keys are normalised after they are rotated.",
    "query-scaled-before": "Queries are scaled by 1/sqrt(D) before they are rotated.",
    "rope-off": "The config switches its rotary embedding off.",
    "shared-keys": "Layers that share the keys of an earlier layer rotate queries only.",
    "sign-reversed": "Pairs rotate by minus the angle.",
    "table-dropout": "During training dropout acts on cos and sin.",
    "unknown-family": (
        "The model type is not known, or not as one that rotates; it is read by its keys:"
        " like DeepSeek-V3 with qk_rope_head_dim, else with the half layout in every layer,"
        " over the whole head unless a key says which part rotates."
    ),
    "unscaled-layers": "Layers that are not in rope_scaling_layers have unscaled frequencies.",
    "values-rotated": "Values are rotated like queries and keys.",
    "values-rotated-optional": "Values are rotated too if rotary_value is set.",
    "window-start-positions": (
        "Compressed keys are rotated by the position at which their window starts."
    ),
}


def get_note(name: str) -> Note:
    """The note with this id."""
    return Note(name, TEXTS[name])
