"""The options that every rotation has, and their checks."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from whorl import scaling as scalings
from whorl._support.storage import check_storage
from whorl._support.words import quote
from whorl.encodings._options import check_allocated, check_choices
from whorl.encodings.base import Config
from whorl.scaling import Scaling
from whorl.types import Impl, Layout, Precision

__all__ = [
    "LENGTHS",
    "Lengths",
    "RotaryConfig",
    "TableStrategy",
    "check_base",
    "check_inv_freq",
    "resolve_scaling",
]

Lengths = Literal["rows", "batch"]
LENGTHS = ("rows", "batch")
TableStrategy = Literal["hybrid", "precomputed", "on_the_fly"]

_CHOICES = {
    "layout": ("half", "interleaved"),
    "out_layout": ("half", "interleaved", None),
    "precision": ("float64", "float32"),
    "table": ("hybrid", "precomputed", "on_the_fly"),
    "impl": ("auto", "native", "reference"),
}


@dataclass(frozen=True)
class RotaryConfig(Config):
    """Sizes, layouts and tables of a rotation; ``RoPE`` says what they mean."""

    head_dim: int
    base: float | tuple[float, ...] = 10_000.0
    layout: Layout = "half"
    out_layout: Layout | None = None
    rotary_dim: int | None = None
    rotary_start: int = 0
    precision: Precision = "float64"
    table: TableStrategy = "hybrid"
    table_length: int = 4096
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        self._check_sizes()
        for base in self._bases:
            check_base(base, self._owner)
        check_choices(self, _CHOICES, self._owner)

    @property
    def scaling(self) -> Scaling | None:
        """The frequency scaling: None, unless a subclass has it as an option."""
        return None

    @property
    def width(self) -> int:
        """R, the number of rotated channels."""
        return self.head_dim - self.rotary_start if self.rotary_dim is None else self.rotary_dim

    @property
    def _bases(self) -> tuple[Any, ...]:
        return (self.base,)

    @property
    def _owner(self) -> str:
        """The name of the encoding, for error messages."""
        return type(self).__name__.removesuffix("Config")

    def _check_sizes(self) -> None:
        owner = self._owner
        for option in ("head_dim", "rotary_start", "table_length"):
            value = getattr(self, option)
            if type(value) is not int or value < (1 if option == "head_dim" else 0):
                kind = "a positive int" if option == "head_dim" else "an int >= 0"
                raise ValueError(f"{owner}: {option} must be {kind}; got {quote(value)}.")
            check_allocated(value, option, owner)
        what = "head_dim" if self.rotary_dim is None and not self.rotary_start else "rotary_dim"
        if type(self.width) is not int or self.width % 2 or self.width < 2:
            raise ValueError(
                f"{owner}: {what} must be even and at least 2, because channels rotate in pairs;"
                f" got {quote(self.width)}. Pass rotary_dim= to rotate an even part of the head."
            )
        if self.rotary_start + self.width > self.head_dim:
            raise ValueError(
                f"{owner}: rotary_start + rotary_dim must be at most head_dim; got"
                f" {self.rotary_start} + {self.width} > {self.head_dim}. Lower one of them."
            )


def check_base(base: Any, owner: str) -> None:
    """Refuse a base that gives no frequencies."""
    number = isinstance(base, (int, float)) and not isinstance(base, bool)
    if not number or not 0 < base <= sys.float_info.max:
        raise ValueError(f"{owner}: base must be a finite number above 0; got {quote(base)}.")


def resolve_scaling(config: RotaryConfig, owner: str) -> None:
    """Replace a dictionary, as JSON has it, by its scaling; refuse anything else."""
    given: object = config.scaling
    if isinstance(given, dict):
        object.__setattr__(config, "scaling", scalings.from_dict(given))
    elif given is not None and not isinstance(given, Scaling):
        raise TypeError(
            f"{owner}: scaling must be a whorl scaling such as Linear(factor=4.0), or None;"
            f" got {quote(given)}."
        )


def check_inv_freq(given: Sequence[float] | Tensor, pairs: int, owner: str) -> tuple[float, ...]:
    """Frequencies that a user passes, as floats, one for each pair."""
    if isinstance(given, Tensor):
        check_storage(given, owner, "inv_freq")
    listed = given.tolist() if isinstance(given, Tensor) else given
    try:
        values = tuple(float(v) for v in listed)
    except (TypeError, ValueError):
        raise ValueError(
            f"{owner}: inv_freq must be numbers, one for each pair; got {quote(listed)}."
        ) from None
    if len(values) != pairs or not all(map(math.isfinite, values)):
        raise ValueError(
            f"{owner}: inv_freq must hold {pairs} finite frequencies, one for each pair;"
            f" got {len(values)}: {list(values[:4])}."
        )
    return values
