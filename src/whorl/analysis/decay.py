"""How scores of RoPE fall with distance: the envelope, Abel's bound, and what scores really do.

    S_j(m) = sum_(i<j) exp(i m theta_i)             f(m) = mean_j |S_j(m)|,  j = 1 .. R/2
    |score(m)| <= max_i |h_(i+1) - h_i| (R/2) f(m)          h_i = q_i conj(k_i),  h_(R/2) = 0

with the channels of a pair read as one complex number. The bound is summation by parts (Abel);
Su et al. 2021, RoFormer, section 3.4.3, https://arxiv.org/abs/2104.09864, draws f. It says that
scores *may* not exceed an envelope that falls, for each q and k by another factor; it lies far
above them, and scores of unrelated q and k do not fall at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.encodings import Encoding, RoPE
from whorl.scaling.envelope import envelope

from .record import Record, generator, places, rope_of, whole

__all__ = ["Bases", "Decay", "Scores", "bases", "complex_pairs", "decay", "envelope"]

_PLACES = 513
_LARGEST = 1e100  # of a vector; products of several must not overflow


@dataclass(frozen=True)
class Scores(Record):
    """Of many pairs of q and k, by distance: everything divided by |q| |k|, means over them."""

    name: str
    count: int
    mean: tuple[float, ...]
    mean_size: tuple[float, ...]  # of |score|
    bound: tuple[float, ...]


@dataclass(frozen=True)
class Decay(Record):
    """f(m) at some distances, and scores of queries at m with keys at 0."""

    encoding: str
    distances: tuple[int, ...]
    envelope: tuple[float, ...]
    scores: tuple[Scores, ...]


@dataclass(frozen=True)
class Bases(Record):
    """What the base changes: for each, f(m), mean_i cos(m theta_i), and the slowest wavelength."""

    head_dim: int
    bases: tuple[float, ...]
    distances: tuple[int, ...]
    envelopes: tuple[tuple[float, ...], ...]
    similarities: tuple[tuple[float, ...], ...]
    longest: tuple[float, ...]


@torch.no_grad()
def decay(
    rope: Encoding,
    length: int = 256,
    *,
    q: Tensor | None = None,
    k: Tensor | None = None,
    name: str = "given q, k",
    samples: int = 64,
    seed: int = 0,
) -> Decay:
    """The envelope up to a distance, with scores of random and of given queries and keys.

    q, k: vectors [..., D] before the rotation, as many of both: pairs whose score is followed.
    name: what to call them. Past some hundred distances they are ever further apart.

    >>> import whorl
    >>> found = decay(whorl.RoPE(128))
    >>> found.envelope[0], found.envelope[-1] < 8
    (32.5, True)
    """
    inner = rope_of(rope, "decay")
    whole(length, "length", "decay", 1, 2**24)
    whole(samples, "samples", "decay", 1, 4096)
    source, D = generator(seed, "decay"), inner.config.head_dim
    random = [torch.randn(samples, D, generator=source, dtype=torch.float64) for _ in range(2)]
    cases = [("random, q = k", random[0], random[0]), ("random q and k", random[0], random[1])]
    if (q is None) != (k is None):
        raise ValueError("decay: q and k go together; pass both, or none.")
    if q is not None and k is not None:
        cases.append((name, *_given(q, k, D)))
    at = places(length + 1, _PLACES)
    turns = inner.frequencies(length + 1)
    fall = envelope(turns.inv_freq.detach(), torch.tensor(at))
    found = tuple(_scores(inner, case, at, fall, length) for case in cases)
    return Decay(repr(inner), at, tuple(fall.tolist()), found)


def bases(
    head_dim: int = 128,
    values: Sequence[float] = (100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0),
    *,
    length: int = 4096,
) -> Bases:
    """The envelope and the similarity of positions for several bases.

    >>> [round(w) for w in bases(128, (1e4, 1e6), length=8).longest]
    [54410, 5063256]
    """
    whole(length, "length", "bases", 1, 2**24)
    if not isinstance(values, Sequence) or not len(values):
        raise ValueError(f"bases: values must be a list of bases; got {values!r}.")
    at = places(length + 1, _PLACES)
    distances = torch.tensor(at)
    ropes = [RoPE(head_dim, base=base) for base in values]
    freqs = [rope.frequencies().inv_freq for rope in ropes]
    falls = [envelope(f, distances) for f in freqs]
    alike = [(distances.double().unsqueeze(-1) * f).cos().mean(-1) for f in freqs]
    return Bases(
        head_dim=head_dim,
        bases=tuple(float(base) for base in values),
        distances=at,
        envelopes=tuple(tuple(f.tolist()) for f in falls),
        similarities=tuple(tuple(a.tolist()) for a in alike),
        longest=tuple(float(2 * torch.pi / f.min()) for f in freqs),
    )


def complex_pairs(x: Tensor, rope: RoPE) -> Tensor:
    """The rotated channels of x [..., D] as complex numbers, one for each pair: [..., R/2]."""
    config = rope.config
    part = x[..., config.rotary_start : config.rotary_start + config.width].double()
    if config.layout == "half":
        a, b = part.chunk(2, -1)
    else:
        a, b = part[..., ::2], part[..., 1::2]
    return torch.complex(a.contiguous(), b.contiguous())


def _scores(
    rope: RoPE, case: tuple[str, Tensor, Tensor], at: tuple[int, ...], fall: Tensor, length: int
) -> Scores:
    """Queries rotated to every distance by the module itself, keys to 0."""
    name, q, k = case
    inside = _rotated_channels(q, rope), _rotated_channels(k, rope)
    norm = inside[0].norm(dim=-1) * inside[1].norm(dim=-1)
    positions, now = torch.tensor(at), length + 1
    keys = rope.rotate(inside[1][None, None], torch.zeros_like(positions[:1]).expand(len(q)),
                       context_length=now)[0, 0]  # fmt: skip
    size = torch.zeros(len(at), dtype=torch.float64)
    mean = torch.zeros_like(size)
    for n in range(len(q)):
        turned = rope.rotate(inside[0][n].expand(1, 1, len(at), -1), positions, context_length=now)
        score = turned[0, 0] @ keys[n] / norm[n]
        mean, size = mean + score / len(q), size + score.abs() / len(q)
    scale = float(rope.frequencies(now).attention_scale)
    if not bool(size.isfinite().all()) or not math.isfinite(scale * scale):
        raise ValueError(
            "decay: scores must be finite, and so the attention scale of the encoding small"
            f" enough; got {scale:.6g}."
        )
    h = complex_pairs(q, rope) * complex_pairs(k, rope).conj()
    steps = torch.diff(h, append=torch.zeros_like(h[..., :1])).abs().amax(-1)
    bound = float((steps * scale * scale / norm).mean()) * h.shape[-1] * fall
    return Scores(name, len(q), tuple(mean.tolist()), tuple(size.tolist()), tuple(bound.tolist()))


def _rotated_channels(x: Tensor, rope: RoPE) -> Tensor:
    """x with 0 in the channels that pass through, which have no part in the decay."""
    kept = torch.zeros_like(x)
    part = slice(rope.config.rotary_start, rope.config.rotary_start + rope.config.width)
    kept[..., part] = x[..., part]
    return kept


def _worst(norms: Tensor) -> float:
    """One that is not above 0 and below the largest."""
    return float(norms[~((norms > 0) & (norms < _LARGEST))][0])


def _given(q: Tensor, k: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    for label, x in (("q", q), ("k", k)):
        if not isinstance(x, Tensor) or not x.dim() or x.shape[-1] != head_dim or not x.numel():
            came = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                f"decay: {label} must hold vectors of the head width, [..., {head_dim}]; got"
                f" {came}."
            )
    if q.shape != k.shape:
        raise ValueError(
            f"decay: q and k must be as many; got {list(q.shape)} and {list(k.shape)}."
        )
    flat = [x.detach().double().reshape(-1, head_dim) for x in (q, k)]
    for label, x in zip("qk", flat, strict=True):
        norms = x.norm(dim=-1)
        if not bool(((norms > 0) & (norms < _LARGEST)).all()):
            raise ValueError(
                f"decay: each vector of {label} must be finite and not 0, with a length below"
                f" {_LARGEST:g}, because scores are divided by |q| |k|; got one of length"
                f" {_worst(norms):g}."
            )
    apart = max(1, len(flat[0]) // 1024)  # enough for a mean
    return flat[0][::apart], flat[1][::apart]
