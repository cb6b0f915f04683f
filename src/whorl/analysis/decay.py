"""How scores of RoPE fall with distance: the envelope, Abel's bound, and measured scores.

    S_j(m) = sum_(i<j) exp(i m theta_i)             f(m) = mean_j |S_j(m)|,  j = 1 .. R/2
    |score(m)| <= max_i |h_(i+1) - h_i| (R/2) f(m)          h_i = q_i conj(k_i),  h_(R/2) = 0

where the two channels of a pair are one complex number. The bound follows by summation by parts
(Abel); Su et al. 2021, RoFormer, section 3.4.3, https://arxiv.org/abs/2104.09864, plots f. It is an
upper bound only, with another factor for each q and k: scores lie far below it, and scores of
unrelated q and k do not fall at all. Other encodings add a bias by distance instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding, RoPE
from whorl.scaling.envelope import envelope

from .record import (
    Record,
    check_int,
    convert_to_rows,
    find_rope,
    make_generator,
    sample_normal,
    sample_positions,
)
from .scores import copy_in_float64

__all__ = [
    "Bases",
    "BiasCurves",
    "ScoreCurves",
    "ScoreDecay",
    "bases",
    "bias_curves",
    "convert_to_complex",
    "decay",
    "envelope",
]

_DISTANCE_COUNT = 513
_NORM_LIMIT = 1e100  # of a vector; products of several must not overflow


@dataclass(frozen=True)
class ScoreCurves(Record):
    """Scores by distance, divided by |q| |k|: means over many pairs of q and k."""

    name: str
    count: int
    mean: tuple[float, ...]
    mean_size: tuple[float, ...]  # of |score|
    bound: tuple[float, ...]


@dataclass(frozen=True)
class ScoreDecay(Record):
    """The envelope f(m) at some distances, and scores of queries at m with keys at 0."""

    encoding: str
    distances: tuple[int, ...]
    envelope: tuple[float, ...]
    scores: tuple[ScoreCurves, ...]
    #: The same without the scaling; None if there is none.
    unscaled: "ScoreDecay | None" = None


@dataclass(frozen=True)
class Bases(Record):
    """For each base: the envelope f(m), mean_i cos(m theta_i), and the longest wavelength."""

    head_dim: int
    bases: tuple[float, ...]
    distances: tuple[int, ...]
    envelopes: tuple[tuple[float, ...], ...]
    similarities: tuple[tuple[float, ...], ...]
    longest: tuple[float, ...]


@dataclass(frozen=True)
class BiasCurves(Record):
    """curves[h][n]: the bias of head h for a query and a key that is distances[n] before it."""

    encoding: str
    distances: tuple[int, ...]
    curves: tuple[tuple[float, ...], ...]
    #: Number of trained parameters; the curves show their current values.
    trained_parameters: int


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
) -> ScoreDecay:
    """The envelope up to a distance, with scores of random and of given queries and keys.

    q, k: vectors [..., D] before the rotation, in the same shape; q[n] is scored with k[n].
    name: a label for them. If there are more than some hundred distances, a sample of them, ever
    further apart.

    >>> import whorl
    >>> found = decay(whorl.RoPE(128))
    >>> found.envelope[0], found.envelope[-1] < 8
    (32.5, True)
    """
    inner = find_rope(rope, "decay")
    check_int(length, "length", "decay", 1, 2**24)
    check_int(samples, "samples", "decay", 1, 4096)
    source, D = make_generator(seed, "decay"), inner.config.head_dim
    random = [sample_normal(source, samples, D) for _ in range(2)]
    cases = [("random, q = k", random[0], random[0]), ("random q and k", random[0], random[1])]
    if (q is None) != (k is None):
        raise ValueError("decay: q and k must be given together; got one. Pass both, or none.")
    if q is not None and k is not None:
        cases.append((name, *_check_vectors(q, k, D)))
    at = sample_positions(length + 1, _DISTANCE_COUNT)
    inv_freq = inner.frequencies(length + 1).inv_freq
    fall = envelope(inv_freq.detach(), torch.tensor(at))
    found = tuple(_measure_scores(inner, case, at, fall, length) for case in cases)
    return ScoreDecay(repr(inner), at, tuple(fall.tolist()), found)


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
    check_int(length, "length", "bases", 1, 2**24)
    if not isinstance(values, Sequence) or not len(values):
        raise ValueError(f"bases: values must be a list of bases; got {quote(values)}.")
    at = sample_positions(length + 1, _DISTANCE_COUNT)
    distances = torch.tensor(at)
    ropes = [RoPE(head_dim, base=base) for base in values]
    freqs = [rope.frequencies().inv_freq for rope in ropes]
    falls = [envelope(f, distances) for f in freqs]
    alike = [(distances.double().unsqueeze(-1) * f).cos().mean(-1) for f in freqs]
    return Bases(
        head_dim=head_dim,
        bases=tuple(float(base) for base in values),
        distances=at,
        envelopes=convert_to_rows(torch.stack(falls)),
        similarities=convert_to_rows(torch.stack(alike)),
        longest=tuple(float(2 * torch.pi / f.min()) for f in freqs),
    )


@torch.no_grad()
def bias_curves(
    encoding: Encoding, length: int = 128, *, past: bool = True, future: bool = False
) -> BiasCurves:
    """Bias of each head by distance i - j; negative distances are future keys.

    If there are more than some hundred distances, a sample of them, ever further apart.

    >>> import whorl
    >>> bias_curves(whorl.ALiBi(2), 3).curves
    ((0.0, -0.0625, -0.125), (0.0, -0.00390625, -0.0078125))
    """
    wide = copy_in_float64(encoding, "bias_curves")
    if not past and not future:
        raise ValueError("bias_curves: past or future must be True, or both; got neither.")
    at = sample_positions(check_int(length, "length", "bias_curves", 2, 2**53), _DISTANCE_COUNT)
    before = [-d for d in reversed(at) if d] if future else []
    distances = torch.tensor([*before, *(at if past else [0])])
    found = wide.distance_bias(distances)
    if found is None:
        raise ValueError(
            f"bias_curves: encoding must have a bias by distance; got {quote(encoding)}. Use"
            " term_maps or similarity to see what it does."
        )
    count = sum(p.numel() for p in encoding.parameters())
    return BiasCurves(
        repr(encoding), tuple(distances.tolist()), convert_to_rows(found.double()), count
    )


def convert_to_complex(x: Tensor, rope: RoPE) -> Tensor:
    """The rotated channels of x [..., D] as complex numbers, one for each pair: [..., R/2]."""
    config = rope.config
    part = x[..., config.rotary_start : config.rotary_start + config.width].double()
    if config.layout == "half":
        a, b = part.chunk(2, -1)
    else:
        a, b = part[..., ::2], part[..., 1::2]
    return torch.complex(a.contiguous(), b.contiguous())


def _measure_scores(
    rope: RoPE, case: tuple[str, Tensor, Tensor], at: tuple[int, ...], fall: Tensor, length: int
) -> ScoreCurves:
    """Mean scores of queries that the module rotates to every distance, with keys at 0."""
    name, q, k = case
    inside = _keep_rotated_channels(q, rope), _keep_rotated_channels(k, rope)
    norm = inside[0].norm(dim=-1) * inside[1].norm(dim=-1)
    positions, now = torch.tensor(at), length + 1
    keys = rope.rotate(inside[1][None, None], torch.zeros_like(positions[:1]).expand(len(q)),
                       context_length=now)[0, 0]  # fmt: skip
    size = torch.zeros(len(at), dtype=torch.float64)
    mean = torch.zeros_like(size)
    for n in range(len(q)):
        rotated = rope.rotate(inside[0][n].expand(1, 1, len(at), -1), positions, context_length=now)
        score = rotated[0, 0] @ keys[n] / norm[n]
        mean, size = mean + score / len(q), size + score.abs() / len(q)
    scale = float(rope.frequencies(now).attention_scale)
    if not bool(size.isfinite().all()) or not math.isfinite(scale * scale):
        raise ValueError(
            "decay: scores must be finite, so the attention scale of the encoding must be smaller;"
            f" got {scale:.6g}."
        )
    h = convert_to_complex(q, rope) * convert_to_complex(k, rope).conj()
    steps = torch.diff(h, append=torch.zeros_like(h[..., :1])).abs().amax(-1)
    bound = float((steps * scale * scale / norm).mean()) * h.shape[-1] * fall
    return ScoreCurves(
        name, len(q), tuple(mean.tolist()), tuple(size.tolist()), tuple(bound.tolist())
    )


def _keep_rotated_channels(x: Tensor, rope: RoPE) -> Tensor:
    """x with 0 in the channels that are not rotated, because those do not decay."""
    rotated = torch.zeros_like(x)
    part = slice(rope.config.rotary_start, rope.config.rotary_start + rope.config.width)
    rotated[..., part] = x[..., part]
    return rotated


def _check_vectors(q: Tensor, k: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    for label, x in (("q", q), ("k", k)):
        if not isinstance(x, Tensor) or not x.dim() or x.shape[-1] != head_dim or not x.numel():
            came = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                f"decay: {label} must be a tensor of vectors [..., {head_dim}], the head width; got"
                f" {came}."
            )
    if q.shape != k.shape:
        raise ValueError(
            f"decay: q and k must have the same shape; got {list(q.shape)} and {list(k.shape)}."
        )
    flat = [x.detach().double().reshape(-1, head_dim) for x in (q, k)]
    for label, x in zip("qk", flat, strict=True):
        norms = x.norm(dim=-1)
        if len(bad := norms[~((norms > 0) & (norms < _NORM_LIMIT))]):
            raise ValueError(
                f"decay: each vector of {label} must be finite and not 0, with a length below"
                f" {_NORM_LIMIT:g}, because scores are divided by |q| |k|; got one of length"
                f" {bad[0]:g}."
            )
    apart = max(1, len(flat[0]) // 1024)  # enough for a mean
    return flat[0][::apart], flat[1][::apart]
