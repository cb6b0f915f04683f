"""The one interface of all position encodings, their registry, and composition by ``+``.

An encoding acts at one or more of five places, each a method that does nothing by default:

    input      embed(x)                    token embeddings before the first layer
    rotation   forward(q, k)               queries and keys before their product
    score      content_score(q, k)         added to q k^T before the softmax scale
               distance_bias(distance)     added after it, from distance alone
    value      value_term(weights)         added to the attention output
    scale      softmax_scale(head_dim)     instead of 1 / sqrt(D)
               query_scale(positions)      a factor per query position

embed, forward, content_score and value_term keep the dtype of their input; distance_bias and
query_scale are float32 or wider. content_score gets q and k as they come from ``forward``.

Axes: B batch, H heads, T queries, S keys, D head width. To add an encoding, write one file with a
frozen ``Config`` and a subclass under ``@register("name")``, and import it in ``__init__.py``. Its
sizes are options called num_heads, head_dim and dim (of embeddings): the exam reads them.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor, nn

__all__ = ["Composition", "Config", "Encoding", "from_dict", "make", "names", "register"]

Hook = Literal["input", "rotation", "score", "value", "scale"]

_HOOK_METHODS: dict[Hook, tuple[str, ...]] = {
    "input": ("embed",),
    "rotation": ("forward",),
    "score": ("content_score", "distance_bias"),
    "value": ("value_term",),
    "scale": ("softmax_scale", "query_scale"),
}


@dataclass(frozen=True)
class Config:
    """Options of an encoding: frozen, validated in ``__post_init__``, and plain enough for JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Every option as numbers, strings, lists and dicts."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults, in order: what a repr should show."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default
        }


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


class Encoding(nn.Module):
    """Base class of every position encoding; override the hooks it acts at.

    Everything but trained parameters derives from ``config``: constants are not buffers, so they
    survive ``.half()``, ``.to_empty()`` and are absent from ``state_dict``.
    """

    name: ClassVar[str]
    #: What a permutation of the tokens does without a causal mask, once parameters are random.
    permutation: ClassVar[Literal["equivariant", "sensitive"]] = "sensitive"
    #: Positions may be fractions. False: integers only; fractions raise ValueError or TypeError.
    fractional: ClassVar[bool] = True
    #: Checks of ``whorl.testing.check_encoding`` that cannot hold here, each with its reason.
    exempt: ClassVar[Mapping[str, str]] = {}

    config: Config

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        """Input hook: token embeddings [B, T, E] with positions mixed in."""
        return x

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rotation hook: queries [B, H, T, D] and keys [B, G, S, D], transformed."""
        return q, k

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """Score hook, before the softmax scale: [B, H, T, S] from content and distance."""
        return None

    def distance_bias(self, distance: Tensor) -> Tensor | None:
        """Score hook, after the softmax scale: [H, ...] for distances i - j of any shape [...]."""
        return None

    def value_term(
        self, weights: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """Value hook: [B, H, T, D] added to the output, from attention weights [B, H, T, S]."""
        return None

    def softmax_scale(self, head_dim: int) -> float | None:
        """Scale hook: the softmax scale instead of 1 / sqrt(D)."""
        return None

    def query_scale(self, positions: Tensor) -> Tensor | None:
        """Scale hook: a factor for each query position, shaped as ``positions``."""
        return None

    @property
    def hooks(self) -> frozenset[Hook]:
        """Where this encoding acts: the hooks that its class overrides."""
        return frozenset(
            hook
            for hook, methods in _HOOK_METHODS.items()
            if any(getattr(type(self), m) is not getattr(Encoding, m) for m in methods)
        )

    def to_dict(self) -> dict[str, Any]:
        """Name and options, ready for JSON; ``whorl.from_dict`` and ``whorl.make`` read it back."""
        return {"name": self.name, **self.config.to_dict()}

    def __add__(self, other: "Encoding") -> "Composition":
        if not isinstance(other, Encoding):
            return NotImplemented
        return Composition(self, other)

    def __repr__(self) -> str:
        options = self.config.changed()
        first = next(iter(inspect.signature(type(self)).parameters), None)
        words = [repr(v) if n == first else f"{n}={v!r}" for n, v in options.items()]
        return f"{type(self).__name__}({', '.join(words)})"


#: Methods that two parts of a composition cannot both have, with what both would do.
_ONE_PART_ONLY = {
    "forward": "rotate the same channels",
    "softmax_scale": "set the softmax scale",
    "query_scale": "scale the queries",
}


class Composition(Encoding):
    """Several encodings at once, made by ``a + b``; every hook goes through its parts in order."""

    name = "composition"

    def __init__(self, *parts: Encoding) -> None:
        super().__init__()
        flat: list[Encoding] = []
        for part in parts:
            flat += part.parts if isinstance(part, Composition) else [part]
        for method, why in _ONE_PART_ONLY.items():
            both = [p for p in flat if getattr(type(p), method) is not getattr(Encoding, method)]
            if len(both) > 1:
                raise ValueError(
                    f"cannot compose {both[0]!r} with {both[1]!r}, because both would {why};"
                    " keep one of them."
                )
        self._parts = nn.ModuleList(flat)
        self.config = CompositionConfig(tuple(part.config for part in flat))

    @property
    def parts(self) -> list[Encoding]:
        """The encodings this one is made of, left to right."""
        return list(self._parts)  # type: ignore[arg-type]  # ModuleList forgets its element type

    @property
    def hooks(self) -> frozenset[Hook]:
        return frozenset(hook for part in self.parts for hook in part.hooks)

    # A class declares these three; a composition asks its parts, hence properties over ClassVars.

    @property
    def permutation(self) -> Literal["equivariant", "sensitive"]:  # type: ignore[override]
        blind = all(part.permutation == "equivariant" for part in self.parts)
        return "equivariant" if blind else "sensitive"

    @property
    def fractional(self) -> bool:  # type: ignore[override]
        return all(part.fractional for part in self.parts)

    @property
    def exempt(self) -> Mapping[str, str]:  # type: ignore[override]
        reasons: dict[str, list[str]] = {}
        for part in self.parts:
            for check, reason in part.exempt.items():
                if reason not in reasons.setdefault(check, []):
                    reasons[check].append(reason)
        return {check: "; ".join(several) for check, several in reasons.items()}

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        for part in self.parts:
            x = part.embed(x, positions, offset=offset)
        return x

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        for part in self.parts:
            q, k = part(
                q, k, positions, key_positions, offset=offset, context_length=context_length
            )
        return q, k

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        return _total([p.content_score(q, k, positions, key_positions) for p in self.parts])

    def distance_bias(self, distance: Tensor) -> Tensor | None:
        return _total([part.distance_bias(distance) for part in self.parts])

    def value_term(
        self, weights: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        return _total([p.value_term(weights, positions, key_positions) for p in self.parts])

    def softmax_scale(self, head_dim: int) -> float | None:
        scales = [part.softmax_scale(head_dim) for part in self.parts]
        return next((scale for scale in scales if scale is not None), None)

    def query_scale(self, positions: Tensor) -> Tensor | None:
        scales = [part.query_scale(positions) for part in self.parts]
        return next((scale for scale in scales if scale is not None), None)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "parts": [part.to_dict() for part in self.parts]}

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@dataclass(frozen=True)
class CompositionConfig(Config):
    """The configurations of a composition's parts, left to right."""

    parts: tuple[Config, ...]


def _total(terms: list[Tensor | None]) -> Tensor | None:
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


_REGISTRY: dict[str, type[Encoding]] = {}
E_ = TypeVar("E_", bound=type[Encoding])


def register(name: str) -> Callable[[E_], E_]:
    """Class decorator: make an encoding known by ``name`` to ``make``, ``names`` and the exam."""

    def add(cls: E_) -> E_:
        if name in _REGISTRY:
            raise ValueError(
                f"encoding {name!r} is registered already, as {_REGISTRY[name].__qualname__};"
                " choose another name."
            )
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return add


def names() -> list[str]:
    """Every registered encoding, sorted."""
    return sorted(_REGISTRY)


def make(name: str, **options: Any) -> Encoding:
    """Build any encoding by name; an option it does not have is an error.

    >>> import whorl
    >>> whorl.make("rope", head_dim=64, layout="interleaved")
    RoPE(64, layout='interleaved')
    """
    if name not in _REGISTRY:
        near = difflib.get_close_matches(str(name), _REGISTRY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"unknown encoding {name!r}{hint} Known: {', '.join(names())}.")
    cls = _REGISTRY[name]
    known = list(inspect.signature(cls).parameters)
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise TypeError(
                f"encoding {name!r} has no option {option!r}{hint} It has: {', '.join(known)}."
            )
    return cls(**options)


def from_dict(options: Mapping[str, Any]) -> Encoding:
    """The encoding, or composition, that ``to_dict`` described; trained parameters start afresh."""
    rest = dict(options)
    name = rest.pop("name", None)
    if name == Composition.name:
        return Composition(*(from_dict(part) for part in _parts(rest)))
    return make(str(name), **rest)


def _parts(options: dict[str, Any]) -> list[Mapping[str, Any]]:
    """What a composition is made of; refuse anything beside it."""
    unknown = [repr(option) for option in options if option != "parts"]
    if unknown:
        raise TypeError(f"a composition has no option {', '.join(unknown)}. It has: parts.")
    parts = options.get("parts")
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, Mapping) for p in parts):
        raise ValueError(
            "from_dict: a composition must have 'parts', a list with the dictionary of each;"
            f" got {parts!r}. Take it from composition.to_dict()."
        )
    return list(parts)
