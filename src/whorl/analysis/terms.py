"""The attention score as a sum of terms: which come from content, and which from position.

For inputs with absolute positions the score is (x_i + p_i) W_q ((x_j + p_j) W_k)^T, four terms:

    content-content     x_i W_q (x_j W_k)^T      content-position     x_i W_q (p_j W_k)^T
    position-content    p_i W_q (x_j W_k)^T      position-position    p_i W_q (p_j W_k)^T

A relative encoding drops or replaces the last three; a bias by distance is the fourth. A rotation
is no such sum: the change that it makes, (R q) . (R k) - q . k, is its "interaction".
He et al. 2020, DeBERTa, section 3.1, https://arxiv.org/abs/2006.03654, compares encodings this way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from whorl._support.words import quote
from whorl.encodings import Encoding
from whorl.positions import resolve

from .record import (
    Record,
    check_int,
    check_memory,
    convert_to_rows,
    make_generator,
    sample_normal,
)
from .scores import copy_in_float64, multiply_heads, repeat_on_axes
from .sizes import get_sizes

__all__ = ["TermMaps", "Terms", "term_maps", "terms"]

CONTENT_TERM = "content-content"
_POSITION_TERMS = ("content-position", "position-content", "position-position")

Projection = Tensor | nn.Linear


@dataclass(frozen=True)
class Terms:
    """Terms by name, each float64 [B, H, T, S], and the score, which is their sum.

    All are logits: they include the softmax scale and the scale of the queries.
    """

    terms: dict[str, Tensor]
    score: Tensor

    def __getitem__(self, name: str) -> Tensor:
        return self.terms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def total(self) -> Tensor:
        """The sum of all terms: ``score``, up to rounding in float64."""
        return torch.stack(list(self.terms.values())).sum(0)

    def sizes(self) -> dict[str, float]:
        """Root mean square of each term: how large its part in the score is."""
        return {name: float(term.square().mean().sqrt()) for name, term in self.terms.items()}


@torch.no_grad()
def terms(
    encoding: Encoding,
    q: Tensor | None = None,
    k: Tensor | None = None,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    *,
    x: Tensor | None = None,
    query_proj: Projection | None = None,
    key_proj: Projection | None = None,
    num_heads: int | None = None,
) -> Terms:
    """The terms of the attention score of ``encoding``, computed in float64.

    q [B, H, T, D], k [B, G, S, D]; or, for encodings of the input, embeddings x [B, T, E] with the
    projections to queries and keys (nn.Linear, or weights [H D, E]) and num_heads. Without
    positions, T queries and S > T keys mean the last T tokens. In a composition, the name of the
    part precedes each term.
    """
    encoding = copy_in_float64(encoding, "terms")
    if x is None:
        inputs = _check_queries_and_keys(encoding, q, k, query_proj, key_proj, num_heads)
    elif q is not None or k is not None or key_positions is not None:
        raise ValueError(
            "terms: pass q and k, or x with its projections, not both; with x, positions are those"
            " of the keys too."
        )
    else:
        inputs = _project(encoding, x, positions, query_proj, key_proj, num_heads)
    return _split_score(encoding, inputs, positions, key_positions)


@dataclass(frozen=True)
class TermMaps(Record):
    """terms[name][m][n]: that term of the score of query m and key n, for one head, in logits."""

    encoding: str
    head: int
    positions: tuple[int, ...]
    terms: dict[str, tuple[tuple[float, ...], ...]]
    sizes: dict[str, float]
    score: tuple[tuple[float, ...], ...]


@torch.no_grad()
def term_maps(encoding: Encoding, length: int = 32, *, head: int = 0, seed: int = 0) -> TermMaps:
    """The terms of the scores of random tokens with each other, as ``analysis.terms`` splits them.

    >>> import whorl
    >>> sorted(term_maps(whorl.RoPE(16) + whorl.ALiBi(4), 8).terms)
    ['alibi: position-position', 'content-content', 'rope: interaction']
    """
    copy_in_float64(encoding, "term_maps")
    check_int(length, "length", "term_maps", 2)
    sizes = get_sizes(encoding)
    check_int(head, "head", "term_maps", 0, sizes.num_heads - 1)
    check_memory(400 * sizes.num_heads * length**2, length, "term_maps")
    source = make_generator(seed, "term_maps")
    H, D = sizes.num_heads, sizes.head_dim
    places = repeat_on_axes(encoding, torch.arange(length))
    if "input" in encoding.hooks:
        x = sample_normal(source, 1, length, sizes.width)
        query, key = (
            sample_normal(source, H * D, sizes.width) * sizes.width**-0.5 for _ in range(2)
        )
        found = terms(encoding, x=x, query_proj=query, key_proj=key, num_heads=H, positions=places)
    else:
        q, k = (sample_normal(source, 1, heads, length, D) for heads in (H, sizes.key_heads))
        found = terms(encoding, q, k, places)
    return TermMaps(
        encoding=repr(encoding),
        head=head,
        positions=tuple(range(length)),
        terms={name: convert_to_rows(term[0, head]) for name, term in found.terms.items()},
        sizes=found.sizes(),
        score=convert_to_rows(found.score[0, head]),
    )


@dataclass(frozen=True)
class _Inputs:
    """Queries and keys from content alone, and the part that each input encoding adds; float64."""

    q: Tensor
    k: Tensor
    added: dict[str, tuple[Tensor, Tensor]]

    def sum(self) -> tuple[Tensor, Tensor]:
        """Queries and keys with all that input encodings add."""
        q, k = self.q, self.k
        for more_q, more_k in self.added.values():
            q, k = q + more_q, k + more_k
        return q, k

    def multiply(self) -> dict[str, Tensor]:
        """The terms of q k^T, without the softmax scale."""
        found = {CONTENT_TERM: multiply_heads(self.q, self.k)}
        for label, (more_q, more_k) in self.added.items():
            found[f"{label}content-position"] = multiply_heads(self.q, more_k)
            found[f"{label}position-content"] = multiply_heads(more_q, self.k)
        if self.added:
            pairs = [(a, b) for a in self.added.values() for b in self.added.values()]
            label = next(iter(self.added)) if len(self.added) == 1 else ""
            total = sum((multiply_heads(a[0], b[1]) for a, b in pairs), torch.zeros(()))
            found[f"{label}position-position"] = total
        return found


def _check_queries_and_keys(
    encoding: Encoding, q: Tensor | None, k: Tensor | None, *projections: object
) -> _Inputs:
    if "input" in encoding.hooks:
        raise ValueError(
            f"terms: {quote(encoding)} acts on embeddings, so its terms need x=, query_proj=,"
            " key_proj= and num_heads= instead of q and k."
        )
    if q is None or k is None or any(p is not None for p in projections):
        raise ValueError(
            "terms: pass q [B, H, T, D] and k [B, G, S, D]; or x=, query_proj=, key_proj= and"
            " num_heads=."
        )
    for name, given in (("q", q), ("k", k)):
        if not isinstance(given, Tensor) or given.dim() != 4:
            came = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise ValueError(f"terms: {name} must be a tensor [B, H, T, D]; got {came}.")
    if q.shape[1] % max(k.shape[1], 1):
        raise ValueError(
            f"terms: the heads of k must divide those of q; got {k.shape[1]} and {q.shape[1]}."
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            "terms: q and k must have the same batch size and head width; got"
            f" {list(q.shape)} and {list(k.shape)}."
        )
    for part in encoding.parts:
        heads = getattr(part.config, "num_heads", None)
        if heads is not None and heads != q.shape[1]:
            raise ValueError(f"terms: {quote(part)} is for {heads} heads but q has {q.shape[1]}.")
    return _Inputs(q.detach().double(), k.detach().double(), {})


def _project(
    encoding: Encoding,
    x: Tensor,
    positions: Tensor | None,
    query_proj: Projection | None,
    key_proj: Projection | None,
    num_heads: int | None,
) -> _Inputs:
    if query_proj is None or key_proj is None or type(num_heads) is not int or num_heads < 1:
        raise ValueError(
            "terms: x= needs query_proj= and key_proj= (nn.Linear, or weights [H D, E]) and"
            f" num_heads=, a positive int; got {quote(query_proj)}, {quote(key_proj)},"
            f" {quote(num_heads)}."
        )
    if not isinstance(x, Tensor) or x.dim() != 3:
        came = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        error = ValueError if isinstance(x, Tensor) else TypeError
        raise error(f"terms: x must be a tensor of embeddings [B, T, E]; got {came}.")
    x = x.detach().double()
    asked, keyed = (
        _convert_projection(query_proj, x, "query_proj"),
        _convert_projection(key_proj, x, "key_proj"),
    )
    head_dim, rest = divmod(asked(x).shape[-1], num_heads)
    if rest or keyed(x).shape[-1] % head_dim:
        raise ValueError(
            f"terms: query_proj must give {num_heads} heads of equal width and key_proj heads of"
            f" the same; got {asked(x).shape[-1]} and {keyed(x).shape[-1]} channels."
        )

    def heads(t: Tensor) -> Tensor:
        return torch.unflatten(t, -1, (-1, head_dim)).transpose(1, 2)

    bias_q, bias_k = asked(torch.zeros_like(x)), keyed(torch.zeros_like(x))
    added, nothing = {}, torch.zeros_like(x)
    positions = None if encoding.position_axes > 1 else positions
    for label, part in _label_parts(encoding):
        if "input" not in part.hooks:
            continue
        more = part.embed(nothing, positions)
        if not torch.allclose(part.embed(x, positions), x + more, rtol=1e-9, atol=1e-9):
            raise ValueError(
                f"terms: {quote(part)} does more to embeddings than add positions, so the score is"
                " not a sum of terms."
            )
        added[label] = heads(asked(more) - bias_q), heads(keyed(more) - bias_k)
    return _Inputs(heads(asked(x)), heads(keyed(x)), added)


def _convert_projection(proj: Projection, x: Tensor, name: str) -> Callable[[Tensor], Tensor]:
    weight, bias = (proj.weight, proj.bias) if isinstance(proj, nn.Linear) else (proj, None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or weight.shape[1] != x.shape[-1]:
        came = list(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(
            f"terms: {name} must be nn.Linear or weights [H D, E] with E = {x.shape[-1]}, the"
            f" width of x; got {came}."
        )
    wide, shift = weight.detach().double(), None if bias is None else bias.detach().double()
    return lambda t: nn.functional.linear(t, wide, shift)


def _split_score(
    encoding: Encoding, inputs: _Inputs, positions: Tensor | None, key_positions: Tensor | None
) -> Terms:
    q, k = inputs.sum()
    at, keys_at = _resolve_positions(q, k, positions, key_positions, encoding)
    scale = encoding.softmax_scale(q.shape[3])
    factor = torch.as_tensor(q.shape[3] ** -0.5 if scale is None else scale, dtype=q.dtype)
    if (by_query := encoding.query_scale(at)) is not None:
        by_query = by_query.double().unsqueeze(-1)  # [T, 1] or [B, T, 1]
        factor = factor * (by_query.unsqueeze(1) if by_query.dim() == 3 else by_query)
    found = inputs.multiply()
    if positions is None and encoding.position_axes == 1:
        positions, key_positions = at, keys_at
    raw = multiply_heads(*encoding(q, k, positions, key_positions))
    for label, part in _label_parts(encoding):
        if "rotation" in part.hooks:
            found[f"{label}interaction"] = raw - multiply_heads(q, k)
        found |= {
            f"{label}{name}": term
            for name, term in _split_content_score(part, q, k, at, keys_at).items()
        }
    if (content := encoding.content_score(q, k, at, keys_at)) is not None:
        raw = raw + content
    found = {name: term * factor for name, term in found.items()}
    score = raw * factor
    distance = at.unsqueeze(-1) - keys_at.unsqueeze(-2)
    for label, part in _label_parts(encoding):
        # Integer distances would give a float32 bias where fractions are possible.
        exact = distance.double() if part.fractional else distance
        if (bias := part.distance_bias(exact)) is not None:
            name, bias = f"{label}position-position", bias.double()
            bias = bias.transpose(0, 1) if bias.dim() == 4 else bias  # from [H, B, T, S]
            found[name] = found.get(name, torch.zeros(())) + bias
            score = score + bias
    return Terms({name: term.expand_as(score) for name, term in found.items()}, score)


def _split_content_score(
    part: Encoding, q: Tensor, k: Tensor, at: Tensor, keys_at: Tensor
) -> dict[str, Tensor]:
    """The terms of a content score, which is linear in q and in k: found by setting each to 0."""
    whole = part.content_score(q, k, at, keys_at)
    if whole is None:
        return {}
    no_q, no_k = torch.zeros_like(q), torch.zeros_like(k)
    alone, of_q, of_k = (
        part.content_score(a, b, at, keys_at) for a, b in ((no_q, no_k), (q, no_k), (no_q, k))
    )
    assert alone is not None
    assert of_q is not None
    assert of_k is not None
    split = dict(zip(_POSITION_TERMS, (of_q - alone, of_k - alone, alone), strict=True))
    split["interaction"] = whole - (of_q + of_k - alone)
    size = float(whole.abs().max()) if whole.numel() else 0.0
    return {n: t for n, t in split.items() if t.numel() and float(t.abs().max()) > 1e-12 * size}


def _label_parts(encoding: Encoding) -> list[tuple[str, Encoding]]:
    """The parts of a composition, each with the prefix of its terms."""
    if len(encoding.parts) == 1:
        return [("", encoding.parts[0])]
    labels: list[tuple[str, Encoding]] = []
    for part in encoding.parts:
        again = sum(other.name == part.name for _, other in labels)
        labels.append((f"{part.name}{f' {again + 1}' if again else ''}: ", part))
    return labels


def _resolve_positions(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    key_positions: Tensor | None,
    encoding: Encoding,
) -> tuple[Tensor, Tensor]:
    """Positions for the score hooks, which have one axis; token indices if there are several."""
    T, S, device = q.shape[2], k.shape[2], q.device
    several = encoding.position_axes > 1
    both = positions is not None and key_positions is not None
    if T != S and (
        several or (not both and (T > S or positions is not None or key_positions is not None))
    ):
        raise ValueError(
            f"terms: {T} queries and {S} keys do not determine the positions; pass positions and"
            " key_positions, or as many queries as keys if positions have several axes."
        )
    if positions is None or several:
        return torch.arange(S - T, S, device=device), torch.arange(S, device=device)
    at, _ = resolve(positions, 0, q.shape[0], T, device, "terms")
    keys_at, _ = (at, 0)
    if key_positions is not None:
        keys_at, _ = resolve(key_positions, 0, k.shape[0], S, device, "terms")
    assert at is not None
    assert keys_at is not None
    return at, keys_at
