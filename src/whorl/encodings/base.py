"""The one interface of all position encodings, and their registry.

An encoding acts at one or more of five places, each a method that does nothing by default:

    input      embed(x)                    token embeddings before the first layer
    rotation   forward(q, k)               queries and keys before their product
    score      content_score(q, k)         added to q k^T before the softmax scale
               distance_bias(distance)     added after it, from distance alone
    value      value_term(weights)         added to the attention output
    scale      softmax_scale(head_dim)     instead of 1 / sqrt(D)
               query_scale(positions)      a factor per query position

embed, forward, content_score and value_term keep the dtype of their input; distance_bias and
query_scale are float32 or wider. content_score gets q and k as the model made them: an encoding
with a content score does not go together with one that rotates. One whose content score needs
preparing, such as projected vectors of distances, may also override ``scorer``, which prepares once
for all blocks of a call, or ``score_vectors``, whose products attention reads in C.

An attention asks an encoding what else it needs, never for its class: whether positions must be
given (``needs_positions``), how far from a reference position its rotation is exact (``span``), and
whether its bias decays linearly with distance (``decay_slopes``).

Axes: B batch, H heads, G key heads (G divides H), T queries, S keys, D head width. To add an
encoding, write one file with a frozen ``Config`` and a subclass under ``@register("name")``, and
import it in ``__init__.py``. Its sizes are options called num_heads, head_dim and dim (of
embeddings): the conformance suite reads them.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_type_hints,
)

import torch
from torch import Tensor, nn

from whorl._support.options import check_options
from whorl._support.words import quote, suggest_name

from ._head_shards import build_head_shard

if TYPE_CHECKING:
    from .composition import Composition

__all__ = [
    "Card",
    "Config",
    "Encoding",
    "ScoreVectors",
    "Scorer",
    "from_dict",
    "get_classes",
    "make",
    "names",
    "register",
    "take_options",
]

Hook = Literal["input", "rotation", "score", "value", "scale"]
#: Called as ``content_score`` is.
Scorer = Callable[..., Tensor | None]


class ScoreVectors(NamedTuple):
    """Vectors of distances: content_score_ij = q_i . keys[a] + k_j . queries[b], of each head.

    keys, queries: [H, R, D]; None for a term that is left out. find_rows: a and b of distances
    i - j [N], int32 [N] each.
    """

    keys: Tensor | None
    queries: Tensor | None
    find_rows: Callable[[Tensor], tuple[Tensor, Tensor]]


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

    def __post_init__(self) -> None:
        """Refuse options that are not what their types say; a subclass checks all else."""
        check_options(self, self._owner)

    @property
    def _owner(self) -> str:
        """The name of the encoding, for error messages."""
        return type(self).__name__.removesuffix("Config")

    def to_dict(self) -> dict[str, Any]:
        """Every option as numbers, strings, lists and dicts."""
        return {f.name: _convert_to_json(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults, in order: what a repr should show."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default
        }


def _convert_to_json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_convert_to_json(item) for item in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


@dataclass(frozen=True)
class Card:
    """What people choose an encoding by; docs/encodings/README.md is made from these.

    Costs are those of one attention call beyond q k^T itself, in axis letters.
    """

    formula: str
    paper: str  # authors and year
    url: str
    #: Scores depend on differences of positions only.
    relative: bool
    #: Trained short, does a model still work when run longer, as published and ``whorl compare``
    #: finds? What the formula alone does there is "extrapolates" of the report card, measured.
    longer: Literal["yes", "partly", "with scaling", "no"]
    #: Works in attention that never forms the T x S scores, perhaps under a causal mask only.
    linear_attention: Literal["yes", "causal", "no"]
    #: Positions may have several axes, such as rows and columns of an image.
    many_axes: bool
    memory: str
    compute: str


Made = TypeVar("Made", bound="Encoding")


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
    #: Only for attention under a causal mask: a key after its query is never scored.
    causal: ClassVar[bool] = False
    #: Positions are [T] or [B, T] for 1, [n, T] or [n, B, T] for n.
    position_axes: int = 1
    #: Tokens have no order to rotate them by: every call must pass positions on each axis.
    needs_positions: bool = False
    #: Trained parameters that have an entry, or several, for each head, with the axis of these;
    #: None: not declared, so that ``shard_heads`` refuses. Other parameters belong to all heads.
    head_axes: ClassVar[Mapping[str, int] | None] = None
    #: What the table of encodings says of this one.
    card: ClassVar[Card | None] = None
    #: Checks of ``whorl.testing.check_encoding`` that cannot hold here, each with its reason.
    exempt: ClassVar[Mapping[str, str]] = {}

    config: Config

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)

        def depth(name: str) -> int:
            return next(n for n, base in enumerate(cls.__mro__) if name in vars(base))

        # What is overridden further down must not be bypassed.
        if depth("content_score") < depth("scorer"):
            cls.scorer = Encoding.scorer  # type: ignore[method-assign]
        if min(depth("content_score"), depth("scorer")) < depth("score_vectors"):
            cls.score_vectors = Encoding.score_vectors  # type: ignore[method-assign]

    @property
    def parts(self) -> list["Encoding"]:
        """The encodings that this one is made of, left to right: itself, unless composed."""
        return [self]

    @property
    def rotating_part(self) -> "Encoding | None":
        """The part that rotates queries and keys, of which there is at most one; else None."""
        return next((part for part in self.parts if part.acts("forward")), None)

    def check_coordinates(self, positions: Tensor | None, where: str) -> None:
        """Refuse positions that do not place tokens on every axis; only if ``needs_positions``."""

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

    # Rotations by factors that grow with the position are exact only near a reference position. An
    # encoding of that kind overrides the five methods below, takes ``reference=`` in ``forward``
    # and ``role=`` and ``reference=`` in ``rotate``. Attention then rotates each block of queries
    # together with the keys that they see, where one reference cannot serve the whole call. A
    # rotation that differs between near and far keys can be asked in the same place.

    def span(self, dtype: torch.dtype) -> int | None:
        """How far from the reference position tokens of ``dtype`` may be; None for any distance."""
        return None

    def call_span(self, dtype: torch.dtype) -> int | None:
        """How far apart tokens may be that share one ``reference_near``; None for any distance."""
        return None

    def reference_for(self, position: int) -> int:
        """The reference position for a token at ``position``."""
        return 0

    def reference_near(self, positions: Tensor) -> int | Tensor:
        """The reference position for tokens at [T] or [B, T]: an int, or one per row, [B]."""
        return 0

    def rescale(self, k: Tensor, *, old: int | Tensor, new: int | Tensor) -> Tensor:
        """Rotated keys [B, G, S, D] as with the reference position ``new`` instead of ``old``."""
        return k

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """Score hook, before the softmax scale: [B, H, T, S] from content and distance.

        q [B, H, T, D], k [B, G, S, D]; positions [T] or [B, T], key_positions [S] or [B, S]. What
        is known of each token besides its position comes as a pair of options: ``segments`` of the
        queries and ``key_segments`` of the keys, if the encoding takes them.
        """
        return None

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        """``content_score`` for the blocks of a call, with what they share prepared once.

        q, k: all queries and keys of the call, [B, H, T, D] and [B, G, S, D]; key_positions
        [S] or [B, S].
        distance_range: the lowest and highest distance i - j of any visible pair, if queries
        and keys of each block have consecutive positions; scores of pairs outside it are masked
        later, and may be any finite number. None: positions may be anything.
        scale: what the scores are multiplied by.
        """

        def score(*args: Any, **options: Any) -> Tensor | None:
            content = self.content_score(*args, **options)
            return None if content is None else content * scale

        return self.content_score if scale == 1 else score

    def score_vectors(
        self, dtype: torch.dtype, distance_range: tuple[int, int] | None
    ) -> "ScoreVectors | None":
        """Vectors from which ``content_score`` can be read by distance, or None if it cannot.

        In ``dtype``, and those of distances in ``distance_range`` at least; None for all distances.
        """
        return None

    def distance_bias(self, distance: Tensor) -> Tensor | None:
        """Score hook, after the softmax scale: [H, ...] for distances i - j of any shape [...].

        On consecutive positions all of it is in one vector per head: ``torch.arange(1 - S, T)``.
        """
        return None

    def decay_slopes(self) -> Tensor | None:
        """Slopes m [H], if ``distance_bias`` is -m distance for every distance >= 0; else None.

        Linear attention can apply such a bias, and no other, because exp(-m (i - j)) is a factor of
        the query times a factor of the key.
        """
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

    def acts(self, method: str) -> bool:
        """Whether a method of a hook does anything: its class overrides it.

        A class whose options switch a method off says so here.
        """
        return getattr(type(self), method) is not getattr(Encoding, method)

    @property
    def hooks(self) -> frozenset[Hook]:
        """Where this encoding acts."""
        return frozenset(
            hook
            for hook, methods in _HOOK_METHODS.items()
            if any(self.acts(method) for method in methods)
        )

    def with_parameters(self: Made, **tensors: Tensor) -> Made:
        """This encoding with other tensors in place of some of its parameters, by name.

        Everything else is shared with it. The tensors may have gradients to whatever made them.
        """
        for name, tensor in tensors.items():
            own = self._parameters.get(name)
            if own is None or own.shape != tensor.shape:
                known = {n: list(p.shape) for n, p in self._parameters.items() if p is not None}
                raise ValueError(
                    f"{type(self).__name__}.with_parameters: {name} must be one of {known}, of the"
                    f" same shape; got {list(tensor.shape)}."
                )
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__["_parameters"] = {**self._parameters, **tensors}
        return other

    def shard_heads(self, rank: int, world: int) -> "Encoding":
        """This encoding for the heads of one process, if heads are split over ``world`` of them.

        Process r has the r-th of equal shares of the heads. Trained parameters are slices of those
        of this encoding, to which their gradients go; one that all heads share is the same tensor.
        An encoding that is the same for every head is returned as it is.
        """
        return build_head_shard(self, rank, world)

    def derive_shard_options(self, rank: int, world: int) -> dict[str, Any]:
        """Options of a share of the heads that are not those of all, besides their number."""
        return {}

    def list_outer_parameters(self) -> list[nn.Parameter]:
        """Trained parameters that the encoding uses and that belong to another module."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Name and options, ready for JSON; ``whorl.from_dict`` reads it back."""
        return {"name": self.name, **self.config.to_dict()}

    def __add__(self, other: "Encoding") -> "Composition":
        from .composition import Composition  # which is itself an Encoding

        return Composition(self, other) if isinstance(other, Encoding) else NotImplemented

    def __repr__(self) -> str:
        options = self.config.changed()
        first = next(iter(inspect.signature(type(self)).parameters), None)
        words = [repr(v) if n == first else f"{n}={v!r}" for n, v in options.items()]
        return f"{type(self).__name__}({', '.join(words)})"


P = ParamSpec("P")


def take_options(
    config: Callable[P, Config],
) -> Callable[[Callable[[Made], None]], Callable[Concatenate[Made, P], None]]:
    """Decorator of ``__init__``: its arguments are those of ``config``, which is set before.

    The options, their types and their defaults are then written once, in the config.
    """

    def decorate(prepare: Callable[[Made], None]) -> Callable[Concatenate[Made, P], None]:
        @functools.wraps(prepare)
        def initialize(self: Made, /, *values: P.args, **options: P.kwargs) -> None:
            try:
                signature.bind(self, *values, **options)
            except TypeError as error:  # of Python, which would name the config's class
                raise TypeError(f"{type(self).__name__}: {error}.") from None
            Encoding.__init__(self)
            self.config = config(*values, **options)
            prepare(self)

        hints = get_type_hints(config)
        parameters = [
            parameter.replace(annotation=hints[name])
            for name, parameter in inspect.signature(config).parameters.items()
        ]
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.Signature([this, *parameters], return_annotation=None)
        initialize.__signature__ = signature  # type: ignore[attr-defined]
        return initialize

    return decorate


_REGISTRY: dict[str, type[Encoding]] = {}
E_ = TypeVar("E_", bound=type[Encoding])


def register(name: str) -> Callable[[E_], E_]:
    """Class decorator: make an encoding known by ``name`` to ``make``, ``names`` and the suite."""

    if not isinstance(name, str):
        raise TypeError(
            f"register needs the name of the encoding: @register('my_encoding'); got {quote(name)}."
        )

    def add(cls: E_) -> E_:
        if name in _REGISTRY:
            raise ValueError(
                f"encoding {quote(name)} is registered already, as {_REGISTRY[name].__qualname__};"
                " choose another name."
            )
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return add


def get_classes() -> dict[str, type[Encoding]]:
    """Every registered encoding by its name."""
    return dict(_REGISTRY)


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
        raise ValueError(
            f"unknown encoding {quote(name)}{suggest_name(name, _REGISTRY)} Known:"
            f" {', '.join(names())}."
        )
    cls = _REGISTRY[name]
    known = list(inspect.signature(cls).parameters)
    for option in options:
        if option not in known:
            raise TypeError(
                f"encoding {quote(name)} has no option {quote(option)}{suggest_name(option, known)}"
                f" It has: {', '.join(known)}."
            )
    return cls(**options)


def from_dict(options: Mapping[str, Any]) -> Encoding:
    """The encoding, or composition, that ``to_dict`` described; trained parameters start afresh."""
    from .composition import Composition

    if not isinstance(options, Mapping):
        raise TypeError(
            f"from_dict: an encoding must be a dictionary, as to_dict gives; got {quote(options)}."
        )
    rest = dict(options)
    name = rest.pop("name", None)
    if name is None:
        raise ValueError(
            f"from_dict: an encoding as a dict needs a 'name', one of {', '.join(names())} or"
            f" {Composition.name!r}; got {quote(dict(options))}. Take it from encoding.to_dict()."
        )
    return Composition.of(rest) if name == Composition.name else make(str(name), **rest)
