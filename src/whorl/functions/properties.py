"""Properties of a rotation, measured on the matrices of the function.

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
from whorl.scaling.yarn import compute_mscale

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
    "norm": "length of vectors does not change",
    "composition": "rotating by m and n is rotating by m + n",
    "relative": "scores depend on the distance only",
    "inverse": "the transpose undoes it",
    "backward": "gradients come back by the transpose",
    "layout": "both channels of a pair rotate alike",
    "direction": "angles grow with the position",
    "frequencies": "one rule gives all frequencies",
    "order": "frequencies fall from pair to pair",
    "decay": "the bound on scores falls with distance",
    "scale": "the attention scale is applied once",
    "heads": "all heads rotate alike",
    "roles": "q makes the first result, k the second",
    "keys": "keys rotate as queries do",
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

#: A bound on scores decays if at most this part of it remains at large distances.
_MOST_REMAINING = 0.95
#: By how much the largest of many random differences may exceed the difference of two calls.
_CHANCE = 4.0


def compute_rounding_limit(function: MeasuredFunction) -> float:
    """Largest error that rounding explains."""
    return max(1e-5, 8 * float(torch.finfo(DTYPES[function.probe.form.dtype]).eps))


def compute_limit(function: MeasuredFunction) -> float:
    """Largest error that rounding explains, or randomness if equal calls give different results."""
    limit = compute_rounding_limit(function)
    return limit if function.repeat_difference <= limit else _CHANCE * function.repeat_difference


def measure_matrix_properties(function: MeasuredFunction, found: Identification) -> PropertyResults:
    """Measure the properties that the matrices at positions 0 .. 15 show."""
    scale = _build_scales(function, found)
    rest = _build_layout_map(function) * scale[:, None]  # a P: what position 0 should do
    matrices, results, limit = function.matrices, PropertyResults(), compute_limit(function)
    measured: dict[str, float] = {
        "turns": 0.0 if find_largest(matrices - matrices[:1]) > 0 else 1.0,
        "linear": _measure_nonlinearity(function),
        "identity": find_largest(matrices[0] - rest),
        "norm": _measure_norm_change(matrices, scale),
        "composition": _measure_composition_error(matrices, rest),
        "relative": measure_relative_error(matrices, matrices),
        "inverse": _measure_inverse_error(matrices, scale),
        "heads": compare_heads(function),
    }
    for name, error in measured.items():
        results.add(name, error, limit)
    if function.probe.form.library == "torch":
        results.add("backward", _measure_gradient_error(function), limit)
    else:
        results.skip("backward", "NumPy has no gradients")
    if function.rotations is not None and function.pairs is not None:
        _measure_pair_properties(results, function, function.pairs, found)
    return results


def _build_scales(function: MeasuredFunction, found: Identification) -> Tensor:
    """Attention scale of rotated output channels, and 1 for the others: [D]."""
    scale = torch.ones(function.probe.head_dim, dtype=torch.float64)
    if function.pairs is not None:
        scale[function.pairs.a_out] = scale[function.pairs.b_out] = found.attention_scale
    return scale


def _build_layout_map(function: MeasuredFunction) -> Tensor:
    """Permutation from the layout that is read to the one that is written, [D, D]."""
    whole = torch.eye(function.probe.head_dim, dtype=torch.float64)
    if (pairs := function.pairs) is not None:
        for a, b in ((pairs.a_in, pairs.a_out), (pairs.b_in, pairs.b_out)):
            whole[b] = 0
            whole[b, a] = 1
    return whole


def find_largest(x: Tensor) -> float:
    """Largest absolute value, inf if one is not finite."""
    worst = float(x.abs().max())
    return worst if math.isfinite(worst) else math.inf


def _measure_nonlinearity(function: MeasuredFunction) -> float:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, function.probe.head_dim, generator=generator).double()
    at = range(8)
    vectors = torch.stack((x, y, x - 3 * y))
    one, two, both = function.probe.rotate_vectors(vectors, at).unbind(1)
    return find_largest(both - one + 3 * two) / 8


def _measure_norm_change(matrices: Tensor, scale: Tensor) -> float:
    """Largest relative change of the norm of random vectors, without the attention scale."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(matrices.shape[-1], 8, generator=generator).double()
    rotated = (matrices @ x) / scale[:, None]
    return find_largest(rotated.norm(dim=1) / x.norm(dim=0) - 1)


def _measure_composition_error(matrices: Tensor, rest: Tensor) -> float:
    undo = torch.linalg.pinv(rest)  # singular if channels move
    cases = ((1, 1), (2, 3), (5, 7), (7, 8))
    return max(find_largest(matrices[m] @ undo @ matrices[n] - matrices[m + n]) for m, n in cases)


def measure_relative_error(queries: Tensor, keys: Tensor) -> float:
    """Largest change of scores when query and key move by the same distance."""
    worst = 0.0
    for m, n in ((3, 1), (7, 7), (1, 6)):
        here = queries[m].T @ keys[n]
        worst = max(
            worst, *(find_largest(queries[m + d].T @ keys[n + d] - here) for d in (1, 4, 8))
        )
    return worst


def _measure_inverse_error(matrices: Tensor, scale: Tensor) -> float:
    scaled = matrices / scale[:, None]
    return find_largest(scaled.transpose(1, 2) @ scaled - torch.eye(matrices.shape[-1]))


def _measure_gradient_error(function: MeasuredFunction) -> float:
    """Error of gradients compared with the transpose; 1 if there are none, inf if they fail."""
    probe = function.probe
    generator = torch.Generator().manual_seed(4)
    length = probe.take_new_length(len(function.matrices))
    dtype = DTYPES[probe.form.dtype]
    x = torch.randn(1, 1, length, probe.head_dim, generator=generator).to(dtype)
    last = len(function.matrices) - 1 if probe.addressing == "each" else length
    given = probe.build_arguments(
        x, torch.arange(length).clamp(max=last)
    )  # as in the matrices below
    leaves = [given[name].requires_grad_() for name in ("x", "q", "k") if name in given]
    try:
        out = probe.call(given)[probe.role]
    except NoAnswerError:
        return math.inf  # it answers without gradients
    if not out.requires_grad:
        return 1.0
    cotangent = torch.randn(out.shape, generator=generator).to(out.dtype)
    try:
        (gradient,) = torch.autograd.grad(out, leaves[probe.role], cotangent)
    except RuntimeError:
        return math.inf
    with probe.repeat_lengths(length - 1):
        matrices = measure_matrices(probe)
    want = torch.einsum("toi,to->ti", matrices, cotangent[0, 0, : len(matrices)].double())
    return find_largest(gradient[0, 0, : len(function.matrices)].double() - want) / 4


def compare_heads(function: MeasuredFunction) -> float:
    """Largest difference between eight heads with the same vector."""
    probe = function.probe
    generator = torch.Generator().manual_seed(5)
    length = probe.take_new_length()
    x = torch.randn(1, 1, length, probe.head_dim, generator=generator).double()
    try:
        out = probe.ask_role(x.expand(1, 8, -1, -1), torch.arange(length))
    except NoAnswerError:
        return math.inf
    return find_largest(out - out[:, :1])


def _measure_pair_properties(
    results: PropertyResults, function: MeasuredFunction, pairs: Pairs, found: Identification
) -> None:
    assert function.rotations is not None
    first, second = function.rotations.frequency.unbind(-1)
    size = torch.maximum(first.abs(), second.abs()).clamp(min=1e-300)
    apart = find_largest((first - second) / size)
    if pairs.layout is None or pairs.out_layout is None:
        apart = max(apart, 1.0)
    inv_freq = pairs.fill_gaps(first).abs()
    rise = 0.0
    if len(inv_freq) > 1:
        steps = (inv_freq[1:] - inv_freq[:-1]) / torch.maximum(inv_freq[1:], inv_freq[:-1]).clamp(
            min=1e-300
        )
        rise = max(0.0, float(steps.max()))
    allowed = max(1e-5, 16 * function.rounding_unit)
    backwards = float((first < 0).double().mean())
    results.add("layout", apart, allowed)
    results.add("direction", backwards, 0.0)
    results.add("order", rise, allowed)
    if found.encoding == "rope" and found.base is None:
        results.skip("frequencies", "no rule is known that gives them; the config lists them all")
    elif found.encoding == "rope":
        results.add("frequencies", _measure_rule_error(found), allowed)
    if (power := _find_power_of_scale(found)) is not None:
        results.record("scale", power < 2, power - 1, 0.0)
    if len(inv_freq) >= 8:
        results.add("decay", measure_remaining_bound(inv_freq), _MOST_REMAINING)
    else:
        results.skip("decay", f"only {len(inv_freq)} pairs; it takes 8")


def _measure_rule_error(found: Identification) -> float:
    """Largest relative difference between measured frequencies and those of the config."""
    rope: Any = found.build(table="on_the_fly")
    function = torch.tensor(found.inv_freq, dtype=torch.float64)
    rule = rope.frequencies().inv_freq[: len(function)]
    return find_largest((function - rule) / rule.abs().clamp(min=1e-30))


def _find_power_of_scale(found: Identification) -> float | None:
    """2 if the attention scale is the square of that of YaRN, 1 if not, None without YaRN."""
    if not isinstance(found.scaling, YaRN) or found.scaling.factor <= 1:
        return None
    once = compute_mscale(found.scaling.factor, 1.0)
    return 2.0 if math.isclose(found.attention_scale, once**2, rel_tol=1e-5) else 1.0


def measure_remaining_bound(inv_freq: Tensor) -> float:
    """Part of the bound on scores that remains, averaged over distances of 32 .. 256 radians."""
    far = torch.arange(32, 257, dtype=torch.float64) / inv_freq.max().clamp(min=1e-300)
    return float(envelope(inv_freq, far).mean() / envelope(inv_freq, torch.zeros(())))
