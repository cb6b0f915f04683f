"""Presets that differ in how they rotate, for tests that would only repeat themselves on others."""

from typing import Any

from whorl.configs import presets

__all__ = ["VARIED_PRESETS"]


def _describe_rotation(config: dict[str, Any]) -> tuple[object, ...]:
    inner = config.get("text_config", config)
    scaling = inner.get("rope_scaling") or inner.get("rope_parameters") or {}
    return (inner["model_type"], scaling.get("rope_type") or scaling.get("type"))


def _choose() -> list[str]:
    """The earliest preset of each model type and scaling."""
    found: dict[tuple[object, ...], str] = {}
    for name in sorted(presets.names(), key=lambda name: presets.load(name)["_recorded"]):
        found.setdefault(_describe_rotation(presets.load(name)), name)
    return sorted(found.values())


VARIED_PRESETS = _choose()
