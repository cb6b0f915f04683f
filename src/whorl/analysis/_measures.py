"""The measurements behind the report card: each gives a verdict, a few words, and numbers."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from whorl.attention import linear_attention
from whorl.encodings import Encoding
from whorl.scaling import YaRN
from whorl.testing.probe import randomized

from .scores import as_used, embedded, scores, widened
from .sizes import of_sizes, sizes_of

__all__ = [
    "HEADS",
    "HEAD_DIM",
    "LENGTH",
    "RULES",
    "Verdict",
    "axes",
    "decays",
    "deterministic",
    "extrapolates",
    "linear",
    "make",
    "norm",
    "relative",
    "unique",
]

HEADS, HEAD_DIM = 4, 32
LENGTH, LONG = 256, 16
_EXACT = 1e-9
_TOKENS = 32
_NEW = 0.01  # share of numbers that may leave their range
_EVEN = 1 - 1 / LONG  # what goes past the length if attention is spread evenly
_FAR = _EVEN / 3
_RANK, _FALL = -0.5, 1e-6

#: What "yes" takes, property by property.
RULES = {
    "unique": f"all {LENGTH} differ; partly: some do",
    "deterministic": "no change between two seeds, and nothing is trained",
    "extrapolates": f"new <= {_NEW:.0%} or far <= {_FAR:.0%}, at {LONG} times the length; with"
    f" scaling: new <= {_NEW:.0%} under YaRN",
    "relative": f"change < {_EXACT:.0e} of the largest score, moved by 1, 37 and 150",
    "decays": f"rank < {_RANK}, by > {_FALL:.0e} logits",
    "n-D": f"several axes, and scores follow each by > {_EXACT:.0e}",
    "norm": f"change < {_EXACT:.0e} of the length of a vector",
    "linear": "linear_attention takes it; causal: under a causal mask only",
}

Verdict = Literal["yes", "partly", "no", "with scaling", "trained", "causal", "untouched"]
Finding = tuple[Verdict, str, dict[str, float]]


def make(name: str, **options: Any) -> Encoding:
    return of_sizes(name, num_heads=HEADS, head_dim=HEAD_DIM, max_length=LENGTH, **options)


def _signature(encoding: Encoding, at: Tensor) -> Tensor:
    """All that the encoding does for a query at positions [N] with a key at 0: [N, C]."""
    sizes, source = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM), torch.Generator()
    source.manual_seed(0)
    H, G, D, width = sizes
    q, k = (torch.randn(1, h, 1, D, generator=source, dtype=torch.float64) for h in (H, G))
    zero, seen = torch.zeros(1, dtype=torch.long), [torch.zeros(len(at), 1, dtype=torch.float64)]
    if "input" in encoding.hooks:
        seen.append(embedded(encoding, width, at))
    if "rotation" in encoding.hooks:
        unit = torch.ones(1, H, len(at), D, dtype=torch.float64)
        axes = encoding.position_axes
        places = [x if axes == 1 else x.expand(axes, -1) for x in (at, zero)]
        turned, _ = encoding(unit, unit[:, :G, :1], *places)
        seen.append(turned[0].transpose(0, 1).flatten(1))
    if encoding.acts("content_score"):
        whole_q = q.expand(1, H, len(at), D)
        content = encoding.content_score(whole_q, k, at, zero)
        assert content is not None
        seen.append(content[0, :, :, 0].T)
    if (bias := encoding.distance_bias(at)) is not None:
        seen.append(bias.double().T)
    return torch.cat(seen, -1)


def unique(encoding: Encoding) -> Finding:
    signature = _signature(encoding, torch.arange(LENGTH))
    apart = torch.cdist(signature, signature, p=math.inf)
    widest = float(apart.max()) or 1.0
    alike = (apart < _EXACT * widest).tril(-1).any(-1)
    distinct = LENGTH - int(alike.sum())
    closest = float((apart + widest * torch.eye(LENGTH)).min()) / widest
    verdict: Verdict = "yes" if distinct == LENGTH else "no" if distinct == 1 else "partly"
    what = "positions" if "input" in encoding.hooks else "distances"
    return verdict, f"{distinct} of {LENGTH} {what}", {"distinct": distinct, "closest": closest}


def deterministic(name: str) -> Finding:
    found = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = make(name)
            torch.manual_seed(seed)
            for part in fresh.parts:
                getattr(part, "reset_parameters", lambda: None)()
        found.append(_signature(widened(fresh, "properties"), torch.arange(LENGTH)))
    change = float((found[0] - found[1]).abs().max())
    count = sum(p.numel() for p in fresh.parameters())
    numbers = {"seed_change": change, "parameters": float(count)}
    if count:
        return "trained", f"{count:,} trained", numbers
    return ("yes" if change == 0 else "no"), f"change {change:.1g}", numbers


def extrapolates(encoding: Encoding, name: str) -> Finding:
    """Numbers that leave their range past the length, and weight that goes there."""
    new = _new(encoding)
    if new is None:
        return "no", f"refuses {LENGTH + 1}", {}
    far = _far(encoding)
    words = f"{new:.0%} new, {far:.0%} far"
    numbers = {"new": new, "far": far}
    if new <= _NEW or far <= _FAR:
        return "yes", words, numbers
    if any(hasattr(part.config, "scaling") for part in encoding.parts):
        longer = YaRN(factor=float(LONG), original_context=LENGTH, attention_factor=1.0)
        stretched = _new(encoding, widened(make(name, scaling=longer), "properties"))
        if stretched is not None and stretched <= _NEW:
            return "with scaling", words, numbers | {"new_with_yarn": stretched}
    return "no", words, numbers


def _new(encoding: Encoding, longer: Encoding | None = None) -> float | None:
    """The share of numbers that leave their range past the length, perhaps with a scaling."""
    near = _signature(encoding, torch.arange(LENGTH))
    try:
        past = _signature(longer or encoding, torch.arange(LENGTH, LONG * LENGTH, 7))
    except (ValueError, IndexError):
        return None
    if near.shape[1] == 1:  # it does nothing at all
        return 0.0
    low, high = near[:, 1:].amin(0), near[:, 1:].amax(0)
    room = 0.01 * (high - low) + _EXACT
    outside = (past[:, 1:] < low - room) | (past[:, 1:] > high + room)
    return float(outside.any(0).double().mean())


def _far(encoding: Encoding) -> float:
    """Weight on distances past the length, of a query at the end of 16 times as many tokens."""
    q, k, at = _last(encoding, LONG * LENGTH)
    weights = scores(encoding, as_used(encoding, q), k, at[-1:], at).softmax(-1)
    return float(weights[..., : (LONG - 1) * LENGTH].sum(-1).mean())


def _last(encoding: Encoding, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens through the input hook: a query in the last place, and all keys."""
    H, G, D, width = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    at = torch.arange(length)
    if "input" not in encoding.hooks:
        return random(1, H, 1, D), random(1, G, length, D), at
    x = encoding.embed(random(1, length, width), at) * width**-0.5
    q, k = (
        (t @ random(width, H * D)).unflatten(-1, (H, D)).transpose(1, 2) for t in (x[:, -1:], x)
    )
    return q, k, at


def relative(encoding: Encoding) -> Finding:
    """Scores of the same random tokens, here and after a common shift."""
    length = LENGTH // 4
    still = _grid(encoding, torch.arange(length))
    seen = torch.ones(length, length).tril().bool() if encoding.causal else slice(None)
    size = float(still[..., seen].abs().max())
    moved = [_grid(encoding, torch.arange(shift, shift + length)) for shift in (1, 37, 150)]
    change = max(float((m - still)[..., seen].abs().max()) for m in moved) / size
    return ("yes" if change < _EXACT else "no"), f"change {change:.1g}", {"shift_change": change}


def _grid(encoding: Encoding, at: Tensor) -> Tensor:
    H, G, D, width = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    if "input" not in encoding.hooks:
        return scores(encoding, random(1, H, len(at), D), random(1, G, len(at), D), at, at)
    x = encoding.embed(random(1, len(at), width), at) * width**-0.5
    q, k = ((x @ random(width, H * D)).unflatten(-1, (H, D)).transpose(1, 2) for _ in range(2))
    return scores(encoding, q, k, at, at)


def decays(name: str, encoding: Encoding) -> Finding:
    """The worst of some draws of what is trained: only what always falls falls by its formula."""
    found = [_fall(encoding)]
    if any(True for _ in encoding.parameters()):
        draws = [widened(randomized(make(name), seed), "properties") for seed in (2, 3, 4, 5)]
        found += [_fall(draw) for draw in draws]
    rank, fall = max(found)
    verdict: Verdict = "yes" if rank < _RANK and fall > _FALL else "no"
    numbers = {"decay_rank": rank, "decay_fall": fall}
    return verdict, f"rank {rank:+.2f}, by {fall:.2g}", numbers


def _fall(encoding: Encoding) -> tuple[float, float]:
    """Scores of a token with the same token before it, means over many: rank with distance, fall.

    The fall is from distances 1 - 4 to the last quarter, in logits.
    """
    H, G, D, width = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(2)
    at, zero = torch.arange(LENGTH), torch.zeros(1, dtype=torch.long)
    total = torch.zeros(LENGTH, dtype=torch.float64)
    for _ in range(_TOKENS):
        if "input" in encoding.hooks:
            same = torch.randn(1, 1, width, generator=source, dtype=torch.float64)
            x = encoding.embed(same.expand(1, LENGTH, width).clone(), at)
            y = encoding.embed(same, zero)
            q, k = (torch.unflatten(t, -1, (H, D)).transpose(1, 2) for t in (x, y))
        else:
            k = torch.randn(1, G, 1, D, generator=source, dtype=torch.float64)
            q = k.repeat_interleave(H // G, 1).expand(1, H, LENGTH, D)
        total += scores(encoding, q, k, at, zero)[0].mean(0)[:, 0] / _TOKENS
    fall = float(total[1:5].mean() - total[-LENGTH // 4 :].mean())
    return _rank_correlation(total[1:]), fall


def _rank_correlation(values: Tensor) -> float:
    """Spearman's, of values with their places; 0 if all are equal."""
    if float(values.max() - values.min()) < _EXACT:
        return 0.0
    ranks = values.argsort().argsort().double()
    steps = torch.arange(len(values), dtype=torch.float64)
    return float(torch.corrcoef(torch.stack([ranks, steps]))[0, 1])


def axes(encoding: Encoding) -> Finding:
    """Move a query along one axis at a time."""
    axes = encoding.position_axes
    if not encoding.hooks:
        return "untouched", "no positions", {}
    if axes == 1:
        return "no", "1 axis", {"axes": 1.0}
    H, G, D, _ = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    ones = torch.ones(1, H, 1, D, dtype=torch.float64)
    start = torch.zeros(axes, 1, dtype=torch.long)
    k = encoding(ones, ones[:, :G], start)[1]
    changes = []
    for axis in range(axes):
        moved = start.clone()
        moved[axis] = 64
        q, _ = encoding(ones, ones[:, :G], moved)
        changes.append(float(((q - ones) @ k.repeat_interleave(H // G, 1).mT).abs().max()))
    verdict: Verdict = "yes" if min(changes) > _EXACT else "no"
    return verdict, f"{axes} axes", {"axes": float(axes), "least_axis_change": min(changes)}


def norm(encoding: Encoding) -> Finding:
    """How much the length of a vector changes, at its most."""
    H, G, D, width = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(3)
    at = torch.arange(LENGTH)
    if "input" in encoding.hooks:
        x = torch.randn(1, LENGTH, width, generator=source, dtype=torch.float64)
        after = encoding.embed(x, at)
    elif "rotation" in encoding.hooks:
        x = torch.randn(1, H, LENGTH, D, generator=source, dtype=torch.float64)
        axes = encoding.position_axes
        after, _ = encoding(x, x[:, :G], at if axes == 1 else at.expand(axes, -1))
    else:
        return "untouched", "acts on scores" if encoding.hooks else "does nothing", {}
    change = float((after.norm(dim=-1) / x.norm(dim=-1) - 1).abs().max())
    return ("yes" if change < _EXACT else "no"), f"change {change:.1g}", {"norm_change": change}


def linear(encoding: Encoding) -> Finding:
    H, G, D, _ = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    q, k = torch.ones(1, H, 4, D), torch.ones(1, G, 4, D)
    axes = encoding.position_axes
    at = None if axes == 1 else torch.arange(4).expand(axes, -1)
    taken = []
    for causal in (False, True):
        try:
            linear_attention(q, k, k, encoding, causal=causal, positions=at)
        except (ValueError, TypeError, NotImplementedError):
            continue
        taken.append(causal)
    if not taken:
        return "no", "refused", {}
    return ("yes", "takes it", {}) if False in taken else ("causal", "causal only", {})
