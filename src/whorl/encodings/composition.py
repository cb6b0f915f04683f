"""Several encodings at once, made by ``a + b``."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from whorl._support.words import list_quoted, quote

from ._head_shards import list_head_counts
from .base import Config, Encoding, Scorer, from_dict

__all__ = ["Composition", "has_option"]

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
        if not parts:
            raise ValueError("a composition needs at least one encoding; got none.")
        for part in parts:
            if not isinstance(part, Encoding):
                raise TypeError(f"a composition is made of encodings; got {quote(part)}.")
            flat += part.parts
        _check_compatible(flat)
        self._parts = nn.ModuleList(flat)
        self.config = CompositionConfig(tuple(part.config for part in flat))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Composition":
        """The composition that ``to_dict`` described by these options."""
        return cls(*(from_dict(part) for part in _check_parts(options)))

    @property
    def parts(self) -> list[Encoding]:
        return list(self._parts)  # type: ignore[arg-type]  # ModuleList forgets its element type

    def acts(self, method: str) -> bool:
        return any(part.acts(method) for part in self.parts)

    # A class declares these; a composition asks its parts, hence properties over ClassVars.

    @property
    def permutation(self) -> Literal["equivariant", "sensitive"]:  # type: ignore[override]
        blind = all(part.permutation == "equivariant" for part in self.parts)
        return "equivariant" if blind else "sensitive"

    @property
    def fractional(self) -> bool:  # type: ignore[override]
        return all(part.fractional for part in self.parts)

    @property
    def causal(self) -> bool:  # type: ignore[override]
        return any(part.causal for part in self.parts)

    @property
    def position_axes(self) -> int:  # type: ignore[override]
        return max(part.position_axes for part in self.parts)

    @property
    def needs_positions(self) -> bool:  # type: ignore[override]
        return any(part.needs_positions for part in self.parts)

    @property
    def exempt(self) -> Mapping[str, str]:  # type: ignore[override]
        reasons: dict[str, list[str]] = {}
        for part in self.parts:
            for check, reason in part.exempt.items():
                if reason not in reasons.setdefault(check, []):
                    reasons[check].append(reason)
        return {check: "; ".join(several) for check, several in reasons.items()}

    @property
    def head_axes(self) -> Mapping[str, int] | None:  # type: ignore[override]
        axes: dict[str, int] = {}
        for number, part in enumerate(self.parts):
            if part.head_axes is None and list_head_counts(part):
                return None
            own = part.head_axes or {}
            axes |= {f"_parts.{number}.{name}": axis for name, axis in own.items()}
        return axes

    def shard_heads(self, rank: int, world: int) -> Encoding:
        parts = [part.shard_heads(rank, world) for part in self.parts]
        return Composition(*parts).train(self.training)

    def list_outer_parameters(self) -> list[nn.Parameter]:
        return [parameter for part in self.parts for parameter in part.list_outer_parameters()]

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        embedding = [part for part in self.parts if part.acts("embed")]
        axes = self.position_axes
        shape: tuple[int, ...] = () if positions is None else tuple(positions.shape)
        if embedding and axes > 1 and len(shape) > 1 and shape[0] == axes:
            raise ValueError(
                f"embed: {quote(embedding[0])} knows one axis, the order of the tokens, but"
                f" positions {list(shape)} may be those of the rotation's {axes} axes; pass [T], or"
                " none."
            )
        dtype = x.dtype
        if len(embedding) > 1 and dtype in (torch.float16, torch.bfloat16):
            x = x.float()  # round once, after the last
        for part in embedding:
            x = part.embed(x, positions, offset=offset)
        return x.to(dtype)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
        reference: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Through the part that rotates; ``reference`` is for one that has it, such as XPos."""
        more: dict[str, Any] = {} if reference is None else {"reference": reference}
        for part in self.parts:
            if part.acts("forward"):
                _check_takes(part, "forward", more)
                q, k = part(
                    q,
                    k,
                    positions,
                    key_positions,
                    offset=offset,
                    context_length=context_length,
                    **more,
                )
        return q, k

    def check_coordinates(self, positions: Tensor | None, where: str) -> None:
        for part in self.parts:
            part.check_coordinates(positions, where)

    def span(self, dtype: torch.dtype) -> int | None:
        return None if self.rotating_part is None else self.rotating_part.span(dtype)

    def call_span(self, dtype: torch.dtype) -> int | None:
        return None if self.rotating_part is None else self.rotating_part.call_span(dtype)

    def reference_for(self, position: int) -> int:
        return 0 if self.rotating_part is None else self.rotating_part.reference_for(position)

    def reference_near(self, positions: Tensor) -> int | Tensor:
        return 0 if self.rotating_part is None else self.rotating_part.reference_near(positions)

    def rescale(self, k: Tensor, *, old: int | Tensor, new: int | Tensor) -> Tensor:
        part = self.rotating_part
        return k if part is None else part.rescale(k, old=old, new=new)

    def content_score(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        key_positions: Tensor,
        *,
        segments: Tensor | None = None,
        key_segments: Tensor | None = None,
    ) -> Tensor | None:
        """The sum over parts; segments are for one that has vectors for them."""
        scores = [part.content_score for part in self.parts]
        return self._score(scores, q, k, positions, key_positions, segments, key_segments)

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        scores = [part.scorer(q, k, key_positions, distance_range, scale) for part in self.parts]

        def score(
            q: Tensor,
            k: Tensor,
            positions: Tensor,
            key_positions: Tensor,
            *,
            segments: Tensor | None = None,
            key_segments: Tensor | None = None,
        ) -> Tensor | None:
            return self._score(scores, q, k, positions, key_positions, segments, key_segments)

        return score

    def _score(
        self,
        scores: list[Scorer],
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        key_positions: Tensor,
        segments: Tensor | None,
        key_segments: Tensor | None,
    ) -> Tensor | None:
        given = {"segments": segments, "key_segments": key_segments}
        more = {name: value for name, value in given.items() if value is not None}
        terms = []
        for part, score in zip(self.parts, scores, strict=True):
            takes = not more or part.acts("content_score")
            if takes:
                _check_takes(part, "content_score", more)
            terms.append(score(q, k, positions, key_positions, **(more if takes else {})))
        return _sum_terms(terms)

    def distance_bias(self, distance: Tensor) -> Tensor | None:
        return _sum_terms([part.distance_bias(distance) for part in self.parts])

    def decay_slopes(self) -> Tensor | None:
        """The sum over parts, where all that have a bias by distance have slopes."""
        biased = [part for part in self.parts if part.acts("distance_bias")]
        slopes = [part.decay_slopes() for part in biased]
        return None if any(each is None for each in slopes) else _sum_terms(slopes)

    def value_term(
        self, weights: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        return _sum_terms([p.value_term(weights, positions, key_positions) for p in self.parts])

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


def _check_compatible(parts: list[Encoding]) -> None:
    """Refuse parts that do not work together."""
    for method, why in _ONE_PART_ONLY.items():
        both = [part for part in parts if part.acts(method)]
        if len(both) > 1:
            raise ValueError(
                f"cannot compose {quote(both[0])} with {quote(both[1])}, because both would {why};"
                " keep one of them."
            )
    rotating = [part for part in parts if part.acts("forward")]
    scoring = [part for part in parts if part.acts("content_score")]
    if rotating and scoring:
        raise ValueError(
            f"cannot compose {quote(rotating[0])} with {quote(scoring[0])}, because the second"
            " scores queries and keys by their content, which the first has rotated; keep one of"
            " them, or take a bias by distance such as ALiBi or T5Bias(scale=None)."
        )
    for size in ("num_heads", "head_dim", "dim"):
        # dim is the width of embeddings where there are any; elsewhere it may be another width.
        sized = [part for part in parts if size != "dim" or part.acts("embed")]
        known = [(part, n) for part in sized if (n := getattr(part.config, size, None)) is not None]
        for part, n in known[1:]:
            if n != known[0][1]:
                raise ValueError(
                    f"cannot compose {quote(known[0][0])} with {quote(part)}, because their {size}"
                    f" differ: {known[0][1]} and {n}; build both for the same model."
                )


def has_option(part: Encoding, method: str, option: str) -> bool:
    """Whether a method of an encoding has an option."""
    return option in inspect.signature(getattr(part, method)).parameters


def _check_takes(part: Encoding, method: str, options: Mapping[str, Any]) -> None:
    for option in options:
        if not has_option(part, method, option):
            raise TypeError(f"{quote(part)} has no {quote(option)} in {method}; leave it out.")


def _sum_terms(terms: list[Tensor | None]) -> Tensor | None:
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


def _check_parts(options: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The dictionaries of the parts; refuse any other option."""
    unknown = [option for option in options if option != "parts"]
    if unknown:
        raise TypeError(f"a composition has no option {list_quoted(unknown)}. It has: parts.")
    parts = options.get("parts")
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, Mapping) for p in parts):
        raise ValueError(
            "from_dict: a composition must have 'parts', a list with the dictionary of each;"
            f" got {quote(parts)}. Take it from composition.to_dict()."
        )
    return list(parts)
