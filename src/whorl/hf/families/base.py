"""What a family of models is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from whorl._support.words import quote
from whorl.hf.changes import Change
from whorl.hf.options import InstallOptions

__all__ = ["ModelFamily", "read_length", "refuse_rotary_options", "refuse_unrotated_keys"]


@dataclass(frozen=True)
class ModelFamily:
    """Models that whorl changes in the same way.

    plan: the changes of a model for the options of ``install``; it changes nothing itself.
    changes_modules: whether there are any, besides the config, whatever the options.
    """

    name: str
    plan: Callable[[PreTrainedModel, InstallOptions], list[Change]]
    changes_modules: bool = True


def refuse_rotary_options(options: InstallOptions, family: str) -> None:
    """Refuse options that are about rotations, in a family that has none."""
    if options.scaling is not None:
        raise ValueError(
            f"whorl.hf.install: scaling must be None for {family}, which does not rotate; got"
            f" {quote(options.scaling)}."
        )
    for name, default in (("precision", "float32"), ("impl", "auto")):
        if getattr(options, name) != default:
            raise ValueError(
                f"whorl.hf.install: {name} must be {default!r} for {family}, which does not rotate"
                f" and so computes no angles; got {quote(getattr(options, name))}. Leave it out."
            )
    refuse_unrotated_keys(options, family, "which does not rotate them")


def refuse_unrotated_keys(options: InstallOptions, family: str, reason: str) -> None:
    """Refuse to cache unrotated keys, in a family that has none, or whose own code rotates."""
    if options.keys != "rotated":
        raise ValueError(
            f"whorl.hf.install: keys must be 'rotated' for {family}, {reason}; got"
            f" {quote(options.keys)}. Leave keys out."
        )


def read_length(cache: Any, layer: int) -> int | Tensor:
    """Tokens in a cache before it is updated; a copy, because static caches count in place."""
    length = cache.get_seq_length(layer)
    return length.clone() if isinstance(length, Tensor) else length
