"""What a family of models is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

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
            f" {options.scaling!r}."
        )
    refuse_unrotated_keys(options, family, "which does not rotate them")


def refuse_unrotated_keys(options: InstallOptions, family: str, reason: str) -> None:
    """Refuse to cache unrotated keys, in a family that has none, or whose own code rotates."""
    if options.keys != "rotated":
        raise ValueError(
            f"whorl.hf.install: keys must be 'rotated' for {family}, {reason}; got"
            f" {options.keys!r}. Leave keys out."
        )


def read_length(cache: Any, layer: int) -> int | Tensor:
    """Tokens in a cache before it is updated; a copy, because static caches count in place."""
    length = cache.get_seq_length(layer)
    return length.clone() if isinstance(length, Tensor) else length
