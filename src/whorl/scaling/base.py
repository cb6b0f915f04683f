"""What every frequency scaling is: a frozen rule from a ladder of frequencies to another.

A scaling answers *where the angles come from*; how channels pair up is the encoding's affair.
To add one, write one file with a frozen dataclass under ``@register("name")``, check its options in
``__post_init__``, and import it in ``__init__.py``.
"""

import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from whorl._support.words import quote, suggest_name

from .describe import Description, describe, known_context

__all__ = [
    "Frequencies",
    "Ladder",
    "Scaling",
    "from_dict",
    "growth",
    "ladder",
    "names",
    "register",
    "slowed",
]


@dataclass(frozen=True)
class Frequencies:
    """What a rotation turns by: radians per position and a factor on the rotated channels.

    inv_freq: float64 [P], or [B, P] where they differ between batch rows.
    attention_scale: a number, or float64 [B] (0-d for a 0-d length).
    """

    inv_freq: Tensor
    attention_scale: float | Tensor = 1.0


@dataclass(frozen=True)
class Ladder:
    """Unscaled frequencies: theta_i = base ** (-2 i / R), or any given ones (then base is None).

    Those of pairs that turn "backward" are negative.
    """

    inv_freq: Tensor  # [P], float64, or float32 in the float32 mode
    base: float | None
    direction: Literal["forward", "backward"] = "forward"

    @classmethod
    def of(cls, rotary_dim: int, base: float = 10_000.0) -> "Ladder":
        """The ladder of R rotated channels in float64.

        >>> Ladder.of(8).inv_freq.tolist()
        [1.0, 0.1, 0.01, 0.001]
        """
        return cls(ladder(rotary_dim, base), base)

    @property
    def rotary_dim(self) -> int:
        return 2 * self.inv_freq.shape[0]

    @property
    def wavelengths(self) -> Tensor:
        """Positions in a full turn of each pair, [P]; infinite for a pair that never turns."""
        return 2 * math.pi / self.inv_freq.abs()

    def divided(self, divisors: Tensor) -> Tensor:
        """Frequencies over one divisor for each pair; in float32 by the steps of Hugging Face."""
        if self.base is None or self.inv_freq.dtype == torch.float64:
            return self.inv_freq / divisors
        powers = _powers(self.rotary_dim, self.base, self.inv_freq.dtype).to(divisors.device)
        slower = 1.0 / (divisors * powers)
        return slower if self.direction == "forward" else -slower

    def stretched(self, factor: float | Tensor) -> Tensor:
        """Frequencies of the base multiplied by ``factor``; [P], or [B, P] for a factor per row."""
        if self.base is not None:
            raised = ladder(self.rotary_dim, factor * self.base, self.inv_freq.dtype)
            return raised if self.direction == "forward" else -raised
        steps = torch.arange(0, self.rotary_dim, 2, dtype=torch.float64, device="cpu")
        exponent = (steps / self.rotary_dim).to(self.inv_freq.device)
        if not isinstance(factor, Tensor):
            return self.inv_freq / (factor**exponent).to(self.inv_freq.dtype)
        power = factor.unsqueeze(-1) ** exponent.to(factor.device)
        return self.inv_freq.to(factor.device) / power.to(self.inv_freq.dtype)


def ladder(rotary_dim: int, base: float | Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """base ** (-2 i / R) in ``dtype``; in float32 by the steps of Hugging Face, bit for bit."""
    return 1.0 / _powers(rotary_dim, base, dtype)


def _powers(rotary_dim: int, base: float | Tensor, dtype: torch.dtype) -> Tensor:
    """base ** (2 i / R)"""
    exponent = torch.arange(0, rotary_dim, 2, dtype=dtype, device="cpu") / rotary_dim
    if isinstance(base, Tensor):
        base = base.to(dtype).unsqueeze(-1)  # [..., 1]
        exponent = exponent.to(base.device)
    powers: Tensor = base**exponent
    return powers


def slowed(inv_freq: Tensor, factor: float | Tensor) -> Tensor:
    """inv_freq / factor: [P], or [B, P] for a factor per row."""
    if isinstance(factor, Tensor):
        return inv_freq.to(factor.device) / factor.to(inv_freq.dtype).unsqueeze(-1)
    return inv_freq / float(factor)  # an int beyond 64 bits is no tensor


def growth(context_length: int | Tensor | None, original_context: int) -> float | Tensor:
    """max(1, L_now / L): a number, or float64 in the shape of ``context_length``."""
    if context_length is None:
        return 1.0
    if isinstance(context_length, Tensor):
        return torch.clamp(context_length.to(torch.float64) / original_context, min=1.0)
    return max(1.0, context_length / original_context)


@dataclass(frozen=True)
class Scaling:
    """Base class: subclass it as a frozen dataclass, validate in ``__post_init__``, register it."""

    name: ClassVar[str]

    @property
    def follows_length(self) -> bool:
        """Whether the result depends on the current length, not on the options alone."""
        return False

    @property
    def short_up_to(self) -> int | None:
        """The length up to which frequencies are those of a short context, where there is one."""
        return None

    @property
    def fixed_past_it(self) -> bool:
        """Whether all longer contexts share one set of frequencies too."""
        return False

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        """Scaled frequencies of ``ladder``; context_length is an int or one per row, [B].

        None stands for a short context. Scalings that do not follow the length ignore it.
        """
        raise NotImplementedError

    def full_factor(self, context_length: int | None) -> float | None:
        """By how much the slowest pairs are to slow down; None takes the largest that occurs."""
        return None

    def describe(
        self,
        ladder: Ladder,
        context_length: int | None = None,
        *,
        original_context: int | None = None,
    ) -> Description:
        """Which pairs are kept, blended and interpolated, their wavelengths, and the new reach.

        original_context: for scalings that do not know it themselves, such as ``Linear``.
        """
        if context_length is not None and (type(context_length) is not int or context_length < 1):
            raise ValueError(
                f"{type(self).__name__}.describe: context_length must be a positive int, or None"
                f" for a short context; got {quote(context_length)}."
            )
        own: int | None = getattr(self, "original_context", None)
        return describe(
            repr(self),
            before=ladder.inv_freq,
            after=self.frequencies(ladder, context_length),
            full_factor=self.full_factor(context_length),
            original_context=known_context(original_context, own, type(self).__name__),
            context_length=context_length,
        )

    def to_dict(self) -> dict[str, Any]:
        """Options and name, ready for JSON; ``from_dict`` reads it back."""
        if not hasattr(self, "name"):
            raise ValueError(
                f"{type(self).__name__} has no name to be found by; decorate the class with"
                " @whorl.scaling.register('my_scaling')."
            )
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
        return {"name": self.name, **plain}

    def __repr__(self) -> str:
        """What builds it again: the options that differ from their defaults."""
        fields = sorted(dataclasses.fields(self), key=lambda field: field.kw_only is True)
        words = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields
            if field.default is dataclasses.MISSING or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(words)})"

    def _positive(self, option: str, at_least: float = 0.0) -> None:
        value = getattr(self, option)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not at_least <= value <= sys.float_info.max or value <= 0:
            wanted = f"a finite number >= {at_least:g}" if at_least else "a finite number above 0"
            raise ValueError(
                f"{type(self).__name__}: {option} must be {wanted}; got {quote(value)}."
            )

    def _context_of_training(self, at_least: int = 1) -> None:
        value: object = getattr(self, "original_context", None)
        if type(value) is not int or value < at_least:
            wanted = "a positive int" if at_least == 1 else f"an int >= {at_least}"
            raise ValueError(
                f"{type(self).__name__}: original_context must be {wanted}, the length that the"
                f" model was trained for; got {quote(value)}."
            )

    def _one_of(self, option: str, choices: tuple[object, ...]) -> None:
        value = getattr(self, option)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            words = " or ".join(map(repr, choices))
            raise ValueError(
                f"{type(self).__name__}: {option} must be {words}; got {quote(value)}."
            )


_REGISTRY: dict[str, type[Scaling]] = {}
S_ = TypeVar("S_", bound=type[Scaling])


def names() -> list[str]:
    """Every registered scaling, sorted."""
    return sorted(_REGISTRY)


def register(name: str) -> Callable[[S_], S_]:
    """Class decorator: make a scaling known by ``name``."""

    def add(cls: S_) -> S_:
        if name in _REGISTRY:
            raise ValueError(
                f"scaling {name!r} is registered already, as {_REGISTRY[name].__qualname__};"
                " choose another name."
            )
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
            f"a scaling as a dict needs a 'name', one of {', '.join(names())}; got"
            f" {quote(options)}."
        )
    if name not in _REGISTRY:
        hint = suggest_name(name, _REGISTRY)
        raise ValueError(f"unknown scaling {quote(name)}{hint} Known: {', '.join(names())}.")
    fields = {field.name: field for field in dataclasses.fields(_REGISTRY[name])}
    for option in rest:
        if option not in fields:
            raise TypeError(
                f"scaling {quote(name)} has no option {quote(option)}{suggest_name(option, fields)}"
                f" It has: {', '.join(fields)}."
            )
    for option, field in fields.items():
        if option not in rest and field.default is dataclasses.MISSING:
            raise TypeError(
                f"scaling {quote(name)} needs the option {quote(option)}; got {quote(options)}."
            )
    return _REGISTRY[name](**rest)
