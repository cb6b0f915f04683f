"""How widely attention spreads as the context grows.

    entropy = -sum_j w_j ln w_j        0: one key has all weight;  ln n: n keys have equal weight

If scores stay in one range, attention spreads over ever more keys: for scores with variance s^2 the
entropy over many keys is close to ln n - s^2 / 2. Biases that grow with distance lower it; so do
attention scales, which multiply scores by a^2: Peng et al. 2023, YaRN, section 3.4,
https://arxiv.org/abs/2309.00071.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from whorl._support.words import quote
from whorl.encodings import Encoding, RoPE
from whorl.scaling import YaRN
from whorl.scaling.yarn import compute_mscale

from .record import Record, check_int, check_ints, check_memory, make_generator, sample_normal
from .scores import compute_scores, copy_in_float64, map_to_heads, scale_queries
from .sizes import get_sizes

__all__ = ["Entropy", "ScaleEntropy", "attention_scale", "entropy"]

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
_QUERY_COUNT = 16


@dataclass(frozen=True)
class Entropy(Record):
    """values[name][n]: entropy in nats of the last query's weights over lengths[n] keys."""

    lengths: tuple[int, ...]
    values: dict[str, tuple[float, ...]]
    uniform: tuple[float, ...]  # ln n, the largest possible entropy


@dataclass(frozen=True)
class ScaleEntropy(Record):
    """Entropy of an extended RoPE by length, with each rule for the attention scale a."""

    head_dim: int
    context: int
    spread: float
    lengths: tuple[int, ...]
    scales: dict[str, tuple[float, ...]]
    values: dict[str, tuple[float, ...]]
    uniform: tuple[float, ...]


@torch.no_grad()
def entropy(
    encodings: Mapping[str, Encoding], lengths: Sequence[int] = LENGTHS, *, seed: int = 0
) -> Entropy:
    """Entropy of the last token's attention to random tokens, by length; means over heads.

    NaN at lengths that an encoding refuses.

    >>> import math, whorl
    >>> found = entropy({"nope": whorl.NoPE(), "alibi": whorl.ALiBi(8)}, [4096])
    >>> found.values["nope"][0] > found.values["alibi"][0] + 1
    True
    """
    if not encodings:
        raise ValueError("entropy: encodings must have at least one name; got none.")
    counts = check_ints(lengths, "lengths", "entropy")
    values = {}
    for name, encoding in encodings.items():
        wide = copy_in_float64(encoding, "entropy")
        sizes = get_sizes(wide)
        check_memory(64 * max(counts) * sizes.num_heads * sizes.head_dim, max(counts), "entropy")
        values[name] = tuple(_measure_entropy(wide, n, seed) for n in counts)
    return Entropy(counts, values, tuple(math.log(n) for n in counts))


@torch.no_grad()
def attention_scale(
    head_dim: int = 128,
    *,
    context: int = 4096,
    factors: Sequence[float] = (1, 2, 4, 8, 16, 32),
    spread: float = 1.5,
    seed: int = 0,
) -> ScaleEntropy:
    """Entropy at ``factors`` times the context, with each rule for the attention scale.

    spread: standard deviation of the scores of random tokens before any scale.
    """
    check_int(context, "context", "attention_scale", 2)
    if not isinstance(factors, Sequence) or not factors or any(not 1 <= f <= 1e9 for f in factors):
        raise ValueError(
            f"attention_scale: factors must be numbers from 1 to 1e9; got {quote(factors)}."
        )
    if not 0 < spread < 100:
        raise ValueError(
            f"attention_scale: spread must be above 0 and below 100; got {quote(spread)}."
        )
    lengths = tuple(round(context * factor) for factor in factors)
    check_memory(64 * max(lengths) * head_dim, max(lengths), "attention_scale")
    rules: dict[str, Callable[[float], float]] = {
        "none: a = 1": lambda s: 1.0,
        "YaRN: a = 0.1 ln s + 1": lambda s: compute_mscale(s, 1.0),
        "LongRoPE: a = sqrt(1 + ln s / ln L)": lambda s: (
            (1 + math.log(s) / math.log(context)) ** 0.5
        ),
    }
    scales = {name: tuple(rule(f) for f in factors) for name, rule in rules.items()}
    values: dict[str, list[float]] = {name: [] for name in rules}
    for name, chosen in scales.items():
        for factor, a, length in zip(factors, chosen, lengths, strict=True):
            scaling = YaRN(factor=float(factor), original_context=context, attention_factor=a)
            rope = RoPE(head_dim, scaling=scaling, table="on_the_fly").double()
            values[name].append(_measure_entropy(rope, length, seed, spread, heads=1))
    return ScaleEntropy(
        head_dim=head_dim,
        context=context,
        spread=float(spread),
        lengths=lengths,
        scales=scales,
        values={name: tuple(found) for name, found in values.items()},
        uniform=tuple(math.log(n) for n in lengths),
    )


def _measure_entropy(
    encoding: Encoding, length: int, seed: int, spread: float = 1.0, heads: int = 4
) -> float:
    """Mean entropy of random queries at the last position over ``length`` random keys."""
    sizes = get_sizes(encoding, num_heads=heads)
    source = make_generator(seed, "entropy")

    H, D = sizes.num_heads, sizes.head_dim
    at, last = torch.arange(length), torch.full((_QUERY_COUNT,), length - 1)
    try:
        if "input" in encoding.hooks:
            q, k = (
                map_to_heads(encoding.embed(x, where) / sizes.width**0.5, source, H, D)
                for where in (last, at)
                for x in [sample_normal(source, 1, len(where), sizes.width)]
            )
        else:
            q = sample_normal(source, 1, H, _QUERY_COUNT, D)
            k = sample_normal(source, 1, sizes.key_heads, length, D)
        found = compute_scores(encoding, scale_queries(encoding, q * spread), k, last, at)
    except (ValueError, IndexError):  # the encoding has a table that is shorter
        return math.nan
    logs = found.log_softmax(-1)
    return float(-(logs.exp() * logs).sum(-1).mean())
