"""The rules, a file for each subject; importing a file registers its rules."""

from . import (
    attention_scale,
    bases,
    families,
    heads,
    keys,
    layouts,
    lengths,
    loading,
    nested,
    scalings,
    shares,
    spelling,
    stored,
    target,
)

__all__ = [
    "attention_scale",
    "bases",
    "families",
    "heads",
    "keys",
    "layouts",
    "lengths",
    "loading",
    "nested",
    "scalings",
    "shares",
    "spelling",
    "stored",
    "target",
]
