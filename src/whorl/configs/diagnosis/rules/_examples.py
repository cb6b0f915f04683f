"""Keys that several examples of rules have."""

from typing import Any

__all__ = ["LAYER_TYPES", "build_extended", "build_yarn"]

LAYER_TYPES = ["sliding_attention", "full_attention"]


def build_yarn(factor: float | None = 4.0, original: int = 1024, **more: object) -> dict[str, Any]:
    """Rope parameters of YaRN."""
    both = {"factor": factor, "original_max_position_embeddings": original}
    return {"rope_type": "yarn", **both, **more}


def build_extended(context: int, original: int, factor: float | None = 4.0) -> dict[str, Any]:
    """The keys of a model that YaRN extends from ``original`` tokens."""
    return {
        "max_position_embeddings": context,
        "rope_scaling": build_yarn(factor, original),
    }
