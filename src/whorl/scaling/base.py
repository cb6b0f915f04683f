"""Base class of frequency scalings: frozen rules that turn unscaled frequencies into scaled ones.

A scaling decides the frequencies, and so the angles; which channels form a pair is decided by the
encoding. To add a scaling, write one file with a frozen dataclass under ``@register("name")``,
check its options in ``__post_init__``, and import it in ``__init__.py``.
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

from .describe import Description, describe_scaling, resolve_original_context

__all__ = [
    "Frequencies",
    "Ladder",
    "Scaling",
    "compute_frequencies",
    "compute_length_ratio",
    "divide_frequencies",
    "from_dict",
    "names",
    "register",
]


@dataclass(frozen=True)
class Frequencies:
    """The radians per position of each pair, and a factor on the rotated channels.

    inv_freq: float64 [P], or [B, P] if batch rows differ.
    attention_scale: a number, or float64 [B] (0-d for a 0-d length).
    """

    inv_freq: Tensor
    attention_scale: float | Tensor = 1.0


@dataclass(frozen=True)
class Ladder:
    """Unscaled frequencies: theta_i = base ** (-2 i / R), or any given ones (then base is None).

    Pairs that rotate "backward" have negative frequencies.
    """

    inv_freq: Tensor  # [P], float64, or float32 in the float32 mode
    base: float | None
    direction: Literal["forward", "backward"] = "forward"

    @classmethod
    def of(cls, rotary_dim: int, base: float = 10_000.0) -> "Ladder":
        """The frequencies of R rotated channels in float64.

        >>> Ladder.of(8).inv_freq.tolist()
        [1.0, 0.1, 0.01, 0.001]
        """
        return cls(compute_frequencies(rotary_dim, base), base)

    @property
    def rotary_dim(self) -> int:
        return 2 * self.inv_freq.shape[0]

    @property
    def wavelengths(self) -> Tensor:
        """Positions in a full rotation of each pair, [P]; infinite where the frequency is 0."""
        return 2 * math.pi / self.inv_freq.abs()

    def divide_by(self, divisors: Tensor) -> Tensor:
        """Frequencies divided by one number per pair; float32 ones in the steps of Hugging Face."""
        if self.base is None or self.inv_freq.dtype == torch.float64:
            return self.inv_freq / divisors
        powers = _compute_powers(self.rotary_dim, self.base, self.inv_freq.dtype).to(
            divisors.device
        )
        divided = 1.0 / (divisors * powers)
        return divided if self.direction == "forward" else -divided

    def multiply_base(self, factor: float | Tensor) -> Tensor:
        """Frequencies of the base multiplied by ``factor``; [P], or [B, P] for a factor per row."""
        if self.base is not None:
            raised = compute_frequencies(self.rotary_dim, factor * self.base, self.inv_freq.dtype)
            return raised if self.direction == "forward" else -raised
        steps = torch.arange(0, self.rotary_dim, 2, dtype=torch.float64, device="cpu")
        exponent = (steps / self.rotary_dim).to(self.inv_freq.device)
        if not isinstance(factor, Tensor):
            return self.inv_freq / (factor**exponent).to(self.inv_freq.dtype)
        power = factor.unsqueeze(-1) ** exponent.to(factor.device)
        return self.inv_freq.to(factor.device) / power.to(self.inv_freq.dtype)


def compute_frequencies(
    rotary_dim: int, base: float | Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Frequencies base ** (-2 i / R) in ``dtype``; in float32 equal to Hugging Face's bits."""
    return 1.0 / _compute_powers(rotary_dim, base, dtype)


def _compute_powers(rotary_dim: int, base: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Powers base ** (2 i / R), the reciprocals of the frequencies."""
    exponent = torch.arange(0, rotary_dim, 2, dtype=dtype, device="cpu") / rotary_dim
    if isinstance(base, Tensor):
        base = base.to(dtype).unsqueeze(-1)  # [..., 1]
        exponent = exponent.to(base.device)
    powers: Tensor = base**exponent
    return powers


def divide_frequencies(inv_freq: Tensor, factor: float | Tensor) -> Tensor:
    """Frequencies inv_freq / factor: [P], or [B, P] for a factor per row."""
    if isinstance(factor, Tensor):
        return inv_freq.to(factor.device) / factor.to(inv_freq.dtype).unsqueeze(-1)
    return inv_freq / float(factor)  # torch cannot take an int of more than 64 bits


def compute_length_ratio(
    context_length: int | Tensor | None, original_context: int
) -> float | Tensor:
    """The ratio max(1, L_now / L): a number, or float64 in the shape of ``context_length``."""
    if context_length is None:
        return 1.0
    if isinstance(context_length, Tensor):
        return torch.clamp(context_length.to(torch.float64) / original_context, min=1.0)
    return max(1.0, context_length / original_context)


@dataclass(frozen=True)
class Scaling:
    """Base class of scalings: subclass it as a frozen dataclass, check the options, register it."""

    name: ClassVar[str]

    @property
    def follows_length(self) -> bool:
        """Whether the frequencies depend on the context length, not on the options alone."""
        return False

    @property
    def short_context_limit(self) -> int | None:
        """The longest context length with the frequencies of a short context, or None."""
        return None

    @property
    def fixed_past_limit(self) -> bool:
        """Whether all contexts past ``short_context_limit`` share one set of frequencies."""
        return False

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        """Scaled frequencies for the unscaled ones in ``ladder``.

        context_length: an int, or one per batch row [B]; None stands for a short context. Scalings
        that do not depend on the length ignore it.
        """
        raise NotImplementedError

    def full_factor(self, context_length: int | None) -> float | None:
        """The factor by which interpolated pairs are divided: the option, or None if unknown."""
        return getattr(self, "factor", None)

    def describe(
        self,
        ladder: Ladder,
        context_length: int | None = None,
        *,
        original_context: int | None = None,
    ) -> Description:
        """Which pairs are kept, blended and interpolated, and the effective context that results.

        original_context: for scalings that have no such option, such as ``Linear``.
        """
        if context_length is not None and (type(context_length) is not int or context_length < 1):
            raise ValueError(
                f"{type(self).__name__}.describe: context_length must be a positive int, or None"
                f" for a short context; got {quote(context_length)}."
            )
        own: int | None = getattr(self, "original_context", None)
        return describe_scaling(
            repr(self),
            before=ladder.inv_freq,
            after=self.frequencies(ladder, context_length),
            full_factor=self.full_factor(context_length),
            original_context=resolve_original_context(original_context, own, type(self).__name__),
            context_length=context_length,
        )

    def to_dict(self) -> dict[str, Any]:
        """Name and options as values that JSON can hold; ``from_dict`` reads them back."""
        if not hasattr(self, "name"):
            raise ValueError(
                f"{type(self).__name__} has no registered name, which to_dict writes; decorate the"
                " class with @whorl.scaling.register('my_scaling')."
            )
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
        return {"name": self.name, **plain}

    def __repr__(self) -> str:
        """An expression that builds an equal scaling, with the options that are not defaults."""
        fields = sorted(dataclasses.fields(self), key=lambda field: field.kw_only is True)
        words = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields
            if field.default is dataclasses.MISSING or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(words)})"

    def _check_positive(self, option: str, at_least: float = 0.0) -> None:
        value = getattr(self, option)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not at_least <= value <= sys.float_info.max or value <= 0:
            wanted = f"a finite number >= {at_least:g}" if at_least else "a finite number above 0"
            raise ValueError(
                f"{type(self).__name__}: {option} must be {wanted}; got {quote(value)}."
            )

    def _check_original_context(self, at_least: int = 1) -> None:
        value: object = getattr(self, "original_context", None)
        if type(value) is not int or value < at_least:
            wanted = "a positive int" if at_least == 1 else f"an int >= {at_least}"
            raise ValueError(
                f"{type(self).__name__}: original_context must be {wanted}, the length that the"
                f" model was trained for; got {quote(value)}."
            )

    def _check_choice(self, option: str, choices: tuple[object, ...]) -> None:
        value = getattr(self, option)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            words = " or ".join(map(repr, choices))
            raise ValueError(
                f"{type(self).__name__}: {option} must be {words}; got {quote(value)}."
            )


_REGISTRY: dict[str, type[Scaling]] = {}
_ScalingClass = TypeVar("_ScalingClass", bound=type[Scaling])


def names() -> list[str]:
    """Names of all registered scalings, sorted."""
    return sorted(_REGISTRY)


def register(name: str) -> Callable[[_ScalingClass], _ScalingClass]:
    """Class decorator that registers a scaling under ``name``."""

    def add(cls: _ScalingClass) -> _ScalingClass:
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
    """The scaling that ``to_dict`` wrote as a dict."""
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
