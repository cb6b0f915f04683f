"""The options that every rotation has, and their checks."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from torch import Tensor

from whorl import scaling as scalings
from whorl._support.options import PositiveNumber, PositiveSize, Size
from whorl._support.storage import check_storage
from whorl._support.words import quote
from whorl.encodings.base import Config
from whorl.scaling import Scaling
from whorl.types import Impl, Layout, Precision

__all__ = [
    "Lengths",
    "RotaryConfig",
    "TableStrategy",
    "check_inv_freq",
    "resolve_scaling",
]

Lengths = Literal["rows", "batch"]
TableStrategy = Literal["hybrid", "precomputed", "on_the_fly"]


@dataclass(frozen=True)
class RotaryConfig(Config):
    """Sizes, layouts and tables of a rotation; ``RoPE`` says what they mean."""

    head_dim: PositiveSize
    _: KW_ONLY
    base: PositiveNumber | Sequence[float] | None = 10_000.0
    layout: Layout = "half"
    out_layout: Layout | None = None
    rotary_dim: int | None = None
    rotary_start: Size = 0
    precision: Precision = "float64"
    table: TableStrategy = "hybrid"
    table_length: Size = 4096
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_width()

    @property
    def scaling(self) -> Scaling | None:
        """The frequency scaling: None, unless a subclass has it as an option."""
        return None

    @property
    def width(self) -> int:
        """R, the number of rotated channels."""
        return self.head_dim - self.rotary_start if self.rotary_dim is None else self.rotary_dim

    def _check_width(self) -> None:
        owner = self._owner
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
