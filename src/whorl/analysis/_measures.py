"""The measurements of the report card: each returns a verdict, a few words, and numbers."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from whorl.attention import linear_attention
from whorl.encodings import Encoding
from whorl.scaling import YaRN
from whorl.testing.inputs import set_random_parameters

from .record import sample_normal
from .scores import (
    compute_embedding,
    compute_scores,
    copy_in_float64,
    map_to_heads,
    repeat_on_axes,
    scale_queries,
)
from .sizes import get_sizes, make_for_sizes

__all__ = [
    "HEADS",
    "HEAD_DIM",
    "LENGTH",
    "RULES",
    "PropertyVerdict",
    "make_sized",
    "measure_axes",
    "measure_decay",
    "measure_determinism",
    "measure_extrapolation",
    "measure_linear_attention",
    "measure_norm",
    "measure_relativity",
    "measure_uniqueness",
]

HEADS, HEAD_DIM = 4, 32
LENGTH, LENGTH_FACTOR = 256, 16
_TOLERANCE = 1e-9
_TOKEN_COUNT = 32
_NEW_LIMIT = 0.01  # share of numbers that may leave their range
_EVEN_SHARE = 1 - 1 / LENGTH_FACTOR  # what goes past the length if attention is spread evenly
_FAR_LIMIT = _EVEN_SHARE / 3
_RANK_LIMIT, _FALL_LIMIT = -0.5, 1e-6

#: The condition for "yes", by property.
RULES = {
    "unique": f"all {LENGTH} differ; partly: some do",
    "deterministic": "no change between two seeds, and nothing is trained",
    "extrapolates": f"new <= {_NEW_LIMIT:.0%} or far <= {_FAR_LIMIT:.0%}, at {LENGTH_FACTOR} times"
    f" the length; with scaling: new <= {_NEW_LIMIT:.0%} under YaRN",
    "relative": f"change < {_TOLERANCE:.0e} of the largest score, moved by 1, 37 and 150",
    "decays": f"rank < {_RANK_LIMIT}, by > {_FALL_LIMIT:.0e} logits",
    "n-D": f"several axes, and scores follow each by > {_TOLERANCE:.0e}",
    "norm": f"change < {_TOLERANCE:.0e} of the length of a vector",
    "linear": "linear_attention takes it; causal: under a causal mask only",
}

PropertyVerdict = Literal["yes", "partly", "no", "with scaling", "trained", "causal", "untouched"]
Measurement = tuple[PropertyVerdict, str, dict[str, float]]


def make_sized(name: str, **options: Any) -> Encoding:
    """An encoding by name, for the sizes of the report card."""
    return make_for_sizes(name, num_heads=HEADS, head_dim=HEAD_DIM, max_length=LENGTH, **options)


def _compute_signature(encoding: Encoding, at: Tensor) -> Tensor:
    """All effects of the encoding on a query at positions [N] with a key at 0: [N, C]."""
    sizes, source = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM), torch.Generator()
    source.manual_seed(0)
    H, G, D, width = sizes
    q, k = (sample_normal(source, 1, h, 1, D) for h in (H, G))
    zero, parts = torch.zeros(1, dtype=torch.long), [torch.zeros(len(at), 1, dtype=torch.float64)]
    if "input" in encoding.hooks:
        parts.append(compute_embedding(encoding, width, at))
    if "rotation" in encoding.hooks:
        unit = torch.ones(1, H, len(at), D, dtype=torch.float64)
        places = (repeat_on_axes(encoding, x) for x in (at, zero))
        rotated, _ = encoding(unit, unit[:, :G, :1], *places)
        parts.append(rotated[0].transpose(0, 1).flatten(1))
    if encoding.acts("content_score"):
        whole_q = q.expand(1, H, len(at), D)
        content = encoding.content_score(whole_q, k, at, zero)
        assert content is not None
        parts.append(content[0, :, :, 0].T)
    if (bias := encoding.distance_bias(at)) is not None:
        parts.append(bias.double().T)
    return torch.cat(parts, -1)


def measure_uniqueness(encoding: Encoding) -> Measurement:
    """How many positions or distances the encoding distinguishes."""
    signature = _compute_signature(encoding, torch.arange(LENGTH))
    apart = torch.cdist(signature, signature, p=math.inf)
    widest = float(apart.max()) or 1.0
    alike = (apart < _TOLERANCE * widest).tril(-1).any(-1)
    distinct = LENGTH - int(alike.sum())
    closest = float((apart + widest * torch.eye(LENGTH)).min()) / widest
    verdict: PropertyVerdict = "yes" if distinct == LENGTH else "no" if distinct == 1 else "partly"
    what = "positions" if "input" in encoding.hooks else "distances"
    return verdict, f"{distinct} of {LENGTH} {what}", {"distinct": distinct, "closest": closest}


def measure_determinism(name: str) -> Measurement:
    """Whether instances made under two seeds agree, and how many parameters are trained."""
    found = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = make_sized(name)
            torch.manual_seed(seed)
            for part in fresh.parts:
                getattr(part, "reset_parameters", lambda: None)()
        found.append(_compute_signature(copy_in_float64(fresh, "properties"), torch.arange(LENGTH)))
    change = float((found[0] - found[1]).abs().max())
    count = sum(p.numel() for p in fresh.parameters())
    numbers = {"seed_change": change, "parameters": float(count)}
    if count:
        return "trained", f"{count:,} trained", numbers
    return ("yes" if change == 0 else "no"), f"change {change:.1g}", numbers


def measure_extrapolation(encoding: Encoding, name: str) -> Measurement:
    """Whether numbers stay in their range past the length, or attention stays within it."""
    new = _measure_new_share(encoding)
    if new is None:
        return "no", f"refuses {LENGTH + 1}", {}
    far = _measure_far_share(encoding)
    words = f"{new:.0%} new, {far:.0%} far"
    numbers = {"new": new, "far": far}
    if new <= _NEW_LIMIT or far <= _FAR_LIMIT:
        return "yes", words, numbers
    if any("scaling" in part.config.to_dict() for part in encoding.parts):
        longer = YaRN(factor=float(LENGTH_FACTOR), original_context=LENGTH, attention_factor=1.0)
        extended = copy_in_float64(make_sized(name, scaling=longer), "properties")
        new_with_yarn = _measure_new_share(encoding, extended)
        if new_with_yarn is not None and new_with_yarn <= _NEW_LIMIT:
            return "with scaling", words, numbers | {"new_with_yarn": new_with_yarn}
    return "no", words, numbers


def _measure_new_share(encoding: Encoding, longer: Encoding | None = None) -> float | None:
    """The share of numbers that leave their range past the length; None if it refuses that length.

    longer: the same encoding with a scaling, to use past the length.
    """
    near = _compute_signature(encoding, torch.arange(LENGTH))
    try:
        past = _compute_signature(
            longer or encoding, torch.arange(LENGTH, LENGTH_FACTOR * LENGTH, 7)
        )
    except (ValueError, IndexError):
        return None
    if near.shape[1] == 1:  # the encoding has no effect
        return 0.0
    low, high = near[:, 1:].amin(0), near[:, 1:].amax(0)
    room = 0.01 * (high - low) + _TOLERANCE
    outside = (past[:, 1:] < low - room) | (past[:, 1:] > high + room)
    return float(outside.any(0).double().mean())


def _measure_far_share(encoding: Encoding) -> float:
    """The attention weight past the length, of a query after 16 times as many tokens."""
    at = torch.arange(LENGTH_FACTOR * LENGTH)
    q, k = _make_queries_and_keys(encoding, at, 1, seed=0)
    weights = compute_scores(encoding, scale_queries(encoding, q), k, at[-1:], at).softmax(-1)
    return float(weights[..., : (LENGTH_FACTOR - 1) * LENGTH].sum(-1).mean())


def _make_queries_and_keys(
    encoding: Encoding, at: Tensor, queries: int, seed: int
) -> tuple[Tensor, Tensor]:
    """The last ``queries`` queries and all keys of random tokens at positions [N]."""
    H, G, D, width = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(seed)

    if "input" not in encoding.hooks:
        return sample_normal(source, 1, H, queries, D), sample_normal(source, 1, G, len(at), D)
    x = encoding.embed(sample_normal(source, 1, len(at), width), at) * width**-0.5
    return map_to_heads(x[:, -queries:], source, H, D), map_to_heads(x, source, H, D)


def measure_relativity(encoding: Encoding) -> Measurement:
    """Whether the scores of random tokens change if all positions are shifted."""
    length = LENGTH // 4

    def score(shift: int) -> Tensor:
        at = torch.arange(shift, shift + length)
        q, k = _make_queries_and_keys(encoding, at, length, seed=1)
        return compute_scores(encoding, q, k, at, at)

    plain = score(0)
    visible = torch.ones(length, length).tril().bool() if encoding.causal else slice(None)
    size = float(plain[..., visible].abs().max())
    moved = [score(shift) for shift in (1, 37, 150)]
    change = max(float((m - plain)[..., visible].abs().max()) for m in moved) / size
    verdict: PropertyVerdict = "yes" if change < _TOLERANCE else "no"
    return verdict, f"change {change:.1g}", {"shift_change": change}


def measure_decay(name: str, encoding: Encoding) -> Measurement:
    """Whether scores fall with distance, in the worst of five draws of the trained parameters."""
    found = [_measure_fall(encoding)]
    if any(True for _ in encoding.parameters()):
        draws = [
            copy_in_float64(set_random_parameters(make_sized(name), seed), "properties")
            for seed in (2, 3, 4, 5)
        ]
        found += [_measure_fall(draw) for draw in draws]
    rank, fall = max(found)
    verdict: PropertyVerdict = "yes" if rank < _RANK_LIMIT and fall > _FALL_LIMIT else "no"
    numbers = {"decay_rank": rank, "decay_fall": fall}
    return verdict, f"rank {rank:+.2f}, by {fall:.2g}", numbers


def _measure_fall(encoding: Encoding) -> tuple[float, float]:
    """Rank correlation with distance, and fall, of the score of a token with the same token.

    Scores are means over many tokens. The fall, in logits, is from distances 1 to 4 to the last
    quarter of all distances.
    """
    H, G, D, width = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(2)
    at, zero = torch.arange(LENGTH), torch.zeros(1, dtype=torch.long)
    total = torch.zeros(LENGTH, dtype=torch.float64)
    for _ in range(_TOKEN_COUNT):
        if "input" in encoding.hooks:
            same = sample_normal(source, 1, 1, width)
            x = encoding.embed(same.expand(1, LENGTH, width).clone(), at)
            y = encoding.embed(same, zero)
            q, k = (torch.unflatten(t, -1, (H, D)).transpose(1, 2) for t in (x, y))
        else:
            k = sample_normal(source, 1, G, 1, D)
            q = k.repeat_interleave(H // G, 1).expand(1, H, LENGTH, D)
        total += compute_scores(encoding, q, k, at, zero)[0].mean(0)[:, 0] / _TOKEN_COUNT
    fall = float(total[1:5].mean() - total[-LENGTH // 4 :].mean())
    return _compute_rank_correlation(total[1:]), fall


def _compute_rank_correlation(values: Tensor) -> float:
    """Spearman's rank correlation of values with their indices; 0 if all are equal."""
    if float(values.max() - values.min()) < _TOLERANCE:
        return 0.0
    ranks = values.argsort().argsort().double()
    steps = torch.arange(len(values), dtype=torch.float64)
    return float(torch.corrcoef(torch.stack([ranks, steps]))[0, 1])


def measure_axes(encoding: Encoding) -> Measurement:
    """Whether scores change if a query moves along any one axis."""
    axes = encoding.position_axes
    if not encoding.hooks:
        return "untouched", "no positions", {}
    if axes == 1:
        return "no", "1 axis", {"axes": 1.0}
    H, G, D, _ = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    ones = torch.ones(1, H, 1, D, dtype=torch.float64)
    start = torch.zeros(axes, 1, dtype=torch.long)
    k = encoding(ones, ones[:, :G], start)[1]
    changes = []
    for axis in range(axes):
        moved = start.clone()
        moved[axis] = 64
        q, _ = encoding(ones, ones[:, :G], moved)
        changes.append(float(((q - ones) @ k.repeat_interleave(H // G, 1).mT).abs().max()))
    verdict: PropertyVerdict = "yes" if min(changes) > _TOLERANCE else "no"
    return verdict, f"{axes} axes", {"axes": float(axes), "least_axis_change": min(changes)}


def measure_norm(encoding: Encoding) -> Measurement:
    """By how much the norm of a query or an embedding changes at most."""
    H, G, D, width = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(3)
    at = torch.arange(LENGTH)
    if "input" in encoding.hooks:
        x = sample_normal(source, 1, LENGTH, width)
        after = encoding.embed(x, at)
    elif "rotation" in encoding.hooks:
        x = sample_normal(source, 1, H, LENGTH, D)
        after, _ = encoding(x, x[:, :G], repeat_on_axes(encoding, at))
    else:
        return "untouched", "acts on scores" if encoding.hooks else "does nothing", {}
    change = float((after.norm(dim=-1) / x.norm(dim=-1) - 1).abs().max())
    return ("yes" if change < _TOLERANCE else "no"), f"change {change:.1g}", {"norm_change": change}


def measure_linear_attention(encoding: Encoding) -> Measurement:
    """Whether linear attention supports the encoding, with and without a causal mask."""
    H, G, D, _ = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    q, k = torch.ones(1, H, 4, D), torch.ones(1, G, 4, D)
    at = repeat_on_axes(encoding, torch.arange(4))
    supported = []
    for causal in (False, True):
        try:
            linear_attention(q, k, k, encoding, causal=causal, positions=at)
        except (ValueError, TypeError, NotImplementedError):
            continue
        supported.append(causal)
    if not supported:
        return "no", "refused", {}
    return ("yes", "takes it", {}) if False in supported else ("causal", "causal only", {})
