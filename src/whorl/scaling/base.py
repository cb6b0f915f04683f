"""What every frequency scaling is: a frozen rule from a ladder of frequencies to another.

A scaling answers *where the angles come from*; how channels pair up is the encoding's affair.
"""

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

__all__ = ["Frequencies", "Ladder", "Scaling", "from_dict", "ladder", "names", "register"]


@dataclass(frozen=True)
class Frequencies:
    """What a rotation turns by: radians per position and a factor on the rotated channels.

    inv_freq: float64 [P], or [B, P] where they differ between batch rows.
    attention_scale: a number, or float64 [B].
    """

    inv_freq: Tensor
    attention_scale: float | Tensor = 1.0


@dataclass(frozen=True)
class Ladder:
    """Unscaled frequencies: theta_i = base ** (-2 i / R), or any given ones (then base is None)."""

    inv_freq: Tensor  # [P], float64, or float32 in the float32 mode
    base: float | None

    @property
    def rotary_dim(self) -> int:
        return 2 * self.inv_freq.shape[0]

    def stretched(self, factor: float | Tensor) -> Tensor:
        """Frequencies of the base multiplied by ``factor``; [P], or [B, P] for a factor per row."""
        if self.base is not None:
            return ladder(self.rotary_dim, factor * self.base, self.inv_freq.dtype)
        steps = torch.arange(0, self.rotary_dim, 2, dtype=torch.float64, device="cpu")
        exponent = (steps / self.rotary_dim).to(self.inv_freq.device)
        if isinstance(factor, Tensor):
            factor = factor.unsqueeze(-1)
        return self.inv_freq / factor**exponent


def ladder(rotary_dim: int, base: float | Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """base ** (-2 i / R) in ``dtype``; in float32 by the steps of Hugging Face, bit for bit."""
    exponent = torch.arange(0, rotary_dim, 2, dtype=dtype, device="cpu") / rotary_dim
    if isinstance(base, Tensor):
        base = base.to(dtype).unsqueeze(-1)  # [..., 1]
        exponent = exponent.to(base.device)
    inverse: Tensor = 1.0 / base**exponent
    return inverse


@dataclass(frozen=True)
class Scaling:
    """Base class: subclass it as a frozen dataclass, validate in ``__post_init__``, register it."""

    name: ClassVar[str]

    @property
    def follows_length(self) -> bool:
        """Whether the result depends on the current length, not on the options alone."""
        return False

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        """Scaled frequencies of ``ladder``; context_length is an int or one per row, [B]."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Options and name, ready for JSON; ``from_dict`` reads it back."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def _positive(self, option: str, at_least: float = 0.0) -> None:
        value = getattr(self, option)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not at_least <= value < float("inf") or value <= 0:
            wanted = f"a finite number >= {at_least:g}" if at_least else "a finite number above 0"
            raise ValueError(f"{type(self).__name__}: {option} must be {wanted}; got {value!r}.")


_REGISTRY: dict[str, type[Scaling]] = {}


def names() -> list[str]:
    """Every registered scaling, sorted."""
    return sorted(_REGISTRY)


def register(name: str) -> Any:
    """Class decorator: make a scaling known by ``name``."""

    def add(cls: type[Scaling]) -> type[Scaling]:
        if name in _REGISTRY:
            raise ValueError(f"scaling {name!r} is registered already, as {_REGISTRY[name]!r}.")
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return add


def from_dict(options: dict[str, Any]) -> Scaling:
    """A scaling from what ``to_dict`` gave."""
    rest = dict(options)
    name = rest.pop("name", None)
    if name is None:
        raise ValueError(
            f"a scaling as a dict needs a 'name', one of {', '.join(names())}; got {options!r}."
        )
    if name not in _REGISTRY:
        near = difflib.get_close_matches(str(name), _REGISTRY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"unknown scaling {name!r}{hint} Known: {', '.join(names())}.")
    known = {field.name for field in dataclasses.fields(_REGISTRY[name])}
    if unknown := sorted(set(rest) - known):
        raise TypeError(
            f"scaling {name!r} has no option {unknown[0]!r}; it has: {', '.join(sorted(known))}."
        )
    return _REGISTRY[name](**rest)
