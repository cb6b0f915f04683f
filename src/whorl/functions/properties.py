"""The properties of a rotation, each measured on the matrices of the function.

With R_p the map at position p, a the attention scale and P the map that only changes the layout:
R_0 = a P; |R_p x| = a |x|; R_m P^-1 R_n = a R_(m+n); R_m^T R_n depends on m - n only;
R_p^T R_p = a^2; the backward pass is R_p^T.
"""

import math
from typing import Any

import torch
from torch import Tensor

from whorl.scaling import YaRN
from whorl.scaling.envelope import envelope
from whorl.scaling.yarn import mscale

from .identification import Identification
from .measured_function import MeasuredFunction
from .pairs import Pairs, measure_matrices
from .probe import DTYPES, NoAnswerError
from .results import PropertyResults

__all__ = [
    "MEANINGS",
    "compare_heads",
    "compute_limit",
    "compute_rounding_limit",
    "find_largest",
    "measure_matrix_properties",
    "measure_relative_error",
    "measure_remaining_bound",
]

MEANINGS = {
    "answers": "gives tensors of the shape it got",
    "turns": "positions change the result",
    "linear": "f(x + y) = f(x) + f(y)",
    "identity": "position 0 changes nothing",
    "norm": "length of vectors is kept",
    "composition": "turning by m and n is turning by m + n",
    "relative": "scores depend on the distance only",
    "inverse": "the transpose undoes it",
    "backward": "gradients come back by the transpose",
    "layout": "both channels of a pair turn alike",
    "direction": "angles grow with the position",
    "frequencies": "one rule gives all frequencies",
    "order": "frequencies fall from pair to pair",
    "decay": "the bound on scores falls with distance",
    "scale": "the attention scale is applied once",
    "heads": "all heads turn alike",
    "roles": "q makes the first result, k the second",
    "keys": "keys turn as queries do",
    "grouped": "keys may have fewer heads",
    "dtype": "result has the dtype of the input",
    "far": "far positions continue the first ones",
    "bfloat16": "bfloat16 costs no more than its rounding",
    "float16": "float16 costs no more than its rounding",
    "float32": "float32 costs no more than its rounding",
    "offset": "a piece at its offset equals the whole",
    "length": "the length of a call changes nothing",
    "history": "earlier calls change nothing",
    "batch": "a row does not depend on its batch-mates",
    "strides": "transposed inputs give the same",
    "input": "the input is left as it was",
    "kept": "later calls leave the result as it was",
}

#: A bound that keeps more than this part of itself does not decay.
_MOST_REMAINING = 0.95
#: How many times larger than between two calls the largest difference between many may be.
_CHANCE = 4.0


def compute_rounding_limit(seen: MeasuredFunction) -> float:
    """The error that rounding explains."""
    return max(1e-5, 8 * float(torch.finfo(DTYPES[seen.probe.form.dtype]).eps))


def compute_limit(seen: MeasuredFunction) -> float:
    """The error that rounding explains, or chance where the same call does not repeat itself."""
    limit = compute_rounding_limit(seen)
    return limit if seen.unrepeated <= limit else _CHANCE * seen.unrepeated


def measure_matrix_properties(seen: MeasuredFunction, found: Identification) -> PropertyResults:
    """Properties that the matrices at positions 0 .. 15 show."""
    scale = _build_scales(seen, found)
    rest = _build_layout_map(seen) * scale[:, None]  # a P: what position 0 should do
    maps, results, limit = seen.maps, PropertyResults(), compute_limit(seen)
    measured: dict[str, float] = {
        "turns": 0.0 if find_largest(maps - maps[:1]) > 0 else 1.0,
        "linear": _measure_nonlinearity(seen),
        "identity": find_largest(maps[0] - rest),
        "norm": _measure_norm_change(maps, scale),
        "composition": _measure_composition_error(maps, rest),
        "relative": measure_relative_error(maps, maps),
        "inverse": _measure_inverse_error(maps, scale),
        "heads": compare_heads(seen),
    }
    for name, error in measured.items():
        results.add(name, error, limit)
    if seen.probe.form.library == "torch":
        results.add("backward", _measure_gradient_error(seen), limit)
    else:
        results.skip("backward", "NumPy has no gradients")
    if seen.turning is not None and seen.pairs is not None:
        _measure_pair_properties(results, seen, seen.pairs, found)
    return results


def _build_scales(seen: MeasuredFunction, found: Identification) -> Tensor:
    """The attention scale on rotated output channels, 1 on the others: [D]."""
    scale = torch.ones(seen.probe.head_dim, dtype=torch.float64)
    if seen.pairs is not None:
        scale[seen.pairs.a_out] = scale[seen.pairs.b_out] = found.attention_scale
    return scale


def _build_layout_map(seen: MeasuredFunction) -> Tensor:
    """The permutation from the layout that is read to the one that is written, [D, D]."""
    whole = torch.eye(seen.probe.head_dim, dtype=torch.float64)
    if (pairs := seen.pairs) is not None:
        for a, b in ((pairs.a_in, pairs.a_out), (pairs.b_in, pairs.b_out)):
            whole[b] = 0
            whole[b, a] = 1
    return whole


def find_largest(x: Tensor) -> float:
    worst = float(x.abs().max())
    return worst if math.isfinite(worst) else math.inf


def _measure_nonlinearity(seen: MeasuredFunction) -> float:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, seen.probe.head_dim, generator=generator).double()
    at = range(8)
    vectors = torch.stack((x, y, x - 3 * y))
    one, two, both = seen.probe.turned(vectors, at).unbind(1)
    return find_largest(both - one + 3 * two) / 8


def _measure_norm_change(maps: Tensor, scale: Tensor) -> float:
    """Of random vectors, every channel divided by its scale."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(maps.shape[-1], 8, generator=generator).double()
    turned = (maps @ x) / scale[:, None]
    return find_largest(turned.norm(dim=1) / x.norm(dim=0) - 1)


def _measure_composition_error(maps: Tensor, rest: Tensor) -> float:
    undo = torch.linalg.pinv(rest)  # singular where channels are written elsewhere than read
    cases = ((1, 1), (2, 3), (5, 7), (7, 8))
    return max(find_largest(maps[m] @ undo @ maps[n] - maps[m + n]) for m, n in cases)


def measure_relative_error(queries: Tensor, keys: Tensor) -> float:
    worst = 0.0
    for m, n in ((3, 1), (7, 7), (1, 6)):
        here = queries[m].T @ keys[n]
        worst = max(
            worst, *(find_largest(queries[m + d].T @ keys[n + d] - here) for d in (1, 4, 8))
        )
    return worst


def _measure_inverse_error(maps: Tensor, scale: Tensor) -> float:
    scaled = maps / scale[:, None]
    return find_largest(scaled.transpose(1, 2) @ scaled - torch.eye(maps.shape[-1]))


def _measure_gradient_error(seen: MeasuredFunction) -> float:
    """Gradients against the transpose; 1 where the result has none, inf where it fails."""
    probe = seen.probe
    generator = torch.Generator().manual_seed(4)
    length = probe.next_length(len(seen.maps))
    dtype = DTYPES[probe.form.dtype]
    x = torch.randn(1, 1, length, probe.head_dim, generator=generator).to(dtype)
    last = len(seen.maps) - 1 if probe.addressing == "each" else length
    given = probe.arguments(x, torch.arange(length).clamp(max=last))  # as in ``matrices`` below
    leaves = [given[name].requires_grad_() for name in ("x", "q", "k") if name in given]
    try:
        out = probe.call(given)[probe.role]
    except NoAnswerError:
        return math.inf  # it works without gradients, as all above shows
    if not out.requires_grad:
        return 1.0
    cotangent = torch.randn(out.shape, generator=generator).to(out.dtype)
    try:
        (gradient,) = torch.autograd.grad(out, leaves[probe.role], cotangent)
    except RuntimeError:
        return math.inf
    with probe.repeat_lengths(length - 1):
        maps = measure_matrices(probe)
    want = torch.einsum("toi,to->ti", maps, cotangent[0, 0, : len(maps)].double())
    return find_largest(gradient[0, 0, : len(seen.maps)].double() - want) / 4


def compare_heads(seen: MeasuredFunction) -> float:
    """The same vector in eight heads."""
    probe = seen.probe
    generator = torch.Generator().manual_seed(5)
    length = probe.next_length()
    x = torch.randn(1, 1, length, probe.head_dim, generator=generator).double()
    try:
        out = probe.wide(x.expand(1, 8, -1, -1), torch.arange(length))
    except NoAnswerError:
        return math.inf
    return find_largest(out - out[:, :1])


def _measure_pair_properties(
    results: PropertyResults, seen: MeasuredFunction, pairs: Pairs, found: Identification
) -> None:
    assert seen.turning is not None
    first, second = seen.turning.rate.unbind(-1)
    size = torch.maximum(first.abs(), second.abs()).clamp(min=1e-300)
    apart = find_largest((first - second) / size)
    if pairs.layout is None or pairs.out_layout is None:
        apart = max(apart, 1.0)
    rates = pairs.on_ladder(first).abs()
    rise = 0.0
    if len(rates) > 1:
        steps = (rates[1:] - rates[:-1]) / torch.maximum(rates[1:], rates[:-1]).clamp(min=1e-300)
        rise = max(0.0, float(steps.max()))
    allowed = max(1e-5, 16 * seen.unit)
    backwards = float((first < 0).double().mean())
    results.add("layout", apart, allowed)
    results.add("direction", backwards, 0.0)
    results.add("order", rise, allowed)
    if found.encoding == "rope" and found.base is None:
        results.skip("frequencies", "no rule is known that gives them; the config lists them all")
    elif found.encoding == "rope":
        results.add("frequencies", _measure_rule_error(found), allowed)
    if (power := _find_power_of_scale(found)) is not None:
        results.put("scale", power < 2, power - 1, 0.0)
    if len(rates) >= 8:
        results.add("decay", measure_remaining_bound(rates), _MOST_REMAINING)
    else:
        results.skip("decay", f"only {len(rates)} pairs; it takes 8")


def _measure_rule_error(found: Identification) -> float:
    """The largest relative difference between measured frequencies and those of the config."""
    rope: Any = found.build(table="on_the_fly")
    seen = torch.tensor(found.inv_freq, dtype=torch.float64)
    rule = rope.frequencies().inv_freq[: len(seen)]
    return find_largest((seen - rule) / rule.abs().clamp(min=1e-30))


def _find_power_of_scale(found: Identification) -> float | None:
    """2 where the attention scale is the square of what YaRN's factor makes it, else 1."""
    if not isinstance(found.scaling, YaRN) or found.scaling.factor <= 1:
        return None
    once = mscale(found.scaling.factor, 1.0)
    return 2.0 if math.isclose(found.attention_scale, once**2, rel_tol=1e-5) else 1.0


def measure_remaining_bound(rates: Tensor) -> float:
    """The envelope over its value at distance 0, averaged over 32 .. 256 of the fastest radians."""
    far = torch.arange(32, 257, dtype=torch.float64) / rates.max().clamp(min=1e-300)
    return float(envelope(rates, far).mean() / envelope(rates, torch.zeros(())))
