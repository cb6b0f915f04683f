"""Presets that differ in how they rotate, for tests that would only repeat themselves on others."""

from typing import Any

from whorl.configs import presets

__all__ = ["KEPT_PRESETS", "VARIED_PRESETS"]

#: The presets whose readings tests/golden.json keeps.
KEPT_PRESETS = (
    "deepseek-v3",
    "gemma-3-4b",
    "glm-4-9b",
    "gpt-neox-20b",
    "gpt-oss-20b",
    "llama-2-7b",
    "llama-3.1-8b",
    "mistral-7b-v0.3",
    "modernbert-base",
    "phi-3.5-mini",
    "qwen2.5-vl-7b",
    "qwen3-8b",
    "qwen3-8b-yarn",
    "smollm3-3b",
)


def _describe_rotation(config: dict[str, Any]) -> tuple[object, ...]:
    inner = config.get("text_config", config)
    scaling = inner.get("rope_scaling") or inner.get("rope_parameters") or {}
    return (inner["model_type"], scaling.get("rope_type") or scaling.get("type"))


def _choose() -> list[str]:
    """A preset of each model type and scaling: one whose readings are kept, else the first."""
    found: dict[tuple[object, ...], str] = {}
    for name in sorted(presets.names(), key=lambda name: name not in KEPT_PRESETS):
        found.setdefault(_describe_rotation(presets.load(name)), name)
    return sorted(found.values())


VARIED_PRESETS = _choose()
