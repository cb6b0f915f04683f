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

from .call_forms import DTYPES
from .evidence import Evidence
from .identification import Identification
from .measured_function import MeasuredRotation
from .pairs import measure_matrices
from .probe import NoAnswerError

__all__ = [
    "MEANINGS",
    "compare_heads",
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


def measure_matrix_properties(e: Evidence) -> None:
    """Measure the properties that the matrices at positions 0 .. 15 show."""
    matrices, probe = e.function.matrices, e.function.probe
    identity = torch.eye(probe.head_dim, dtype=torch.float64)
    layout, scale = identity.clone(), torch.ones(probe.head_dim, dtype=torch.float64)
    if e.rotation is not None:
        pairs = e.rotation.pairs
        for read, written in ((pairs.a_in, pairs.a_out), (pairs.b_in, pairs.b_out)):
            layout[written] = 0
            layout[written, read] = 1  # P
            scale[written] = e.found.attention_scale
    rest = layout * scale[:, None]  # a P: what position 0 should do
    scaled = matrices / scale[:, None]
    e.add("answers", 0.0, 0.0)
    e.add("turns", 0.0 if find_largest(matrices - matrices[:1]) > 0 else 1.0)
    e.add("linear", _measure_nonlinearity(e))
    e.add("identity", find_largest(matrices[0] - rest))
    e.add("norm", _measure_norm_change(matrices, scale))
    e.add("composition", _measure_composition_error(matrices, rest))
    e.add("relative", measure_relative_error(matrices, matrices))
    e.add("inverse", find_largest(scaled.transpose(1, 2) @ scaled - identity))
    compare_heads(e)
    if probe.form.library == "torch":
        e.add("backward", _measure_gradient_error(e))
    else:
        e.skip("backward", "NumPy has no gradients")
    if e.rotation is not None:
        _measure_pair_properties(e, e.rotation)
    if probe.kind == "cos_sin":
        _measure_scale_power(e)


def find_largest(x: Tensor) -> float:
    """Largest absolute value, inf if one is not finite."""
    worst = float(x.abs().max())
    return worst if math.isfinite(worst) else math.inf


def _measure_nonlinearity(e: Evidence) -> float:
    x, y = e.function.probe.draw_vectors(2, seed=2)
    vectors = torch.stack((x, y, x - 3 * y))
    one, two, both = e.function.probe.rotate_vectors(vectors, range(8)).unbind(1)
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


def _measure_gradient_error(e: Evidence) -> float:
    """Error of gradients compared with the transpose; 1 if there are none, inf if they fail."""
    probe, count = e.function.probe, len(e.function.matrices)
    generator = torch.Generator().manual_seed(4)
    length = probe.take_new_length(count)
    x = torch.randn(1, 1, length, probe.head_dim, generator=generator).to(DTYPES[e.dtype])
    last = count - 1 if probe.addressing == "each" else length  # as in the matrices below
    given = probe.build_arguments(x, torch.arange(length).clamp(max=last))
    leaves = [given[name].requires_grad_() for name in ("x", "q", "k") if name in given]
    try:
        out = probe.call(given)[probe.role]
        if not out.requires_grad:
            return 1.0
        cotangent = torch.randn(out.shape, generator=generator).to(out.dtype)
        (gradient,) = torch.autograd.grad(out, leaves[probe.role], cotangent)
    except (NoAnswerError, RuntimeError):
        return math.inf  # it answers without gradients
    with probe.repeat_lengths(length - 1):
        matrices = measure_matrices(probe)
    want = torch.einsum("toi,to->ti", matrices, cotangent[0, 0, :count].double())
    return find_largest(gradient[0, 0, :count].double() - want) / 4


def compare_heads(e: Evidence) -> None:
    """Compare eight heads with the same vector."""
    probe = e.function.probe
    length = probe.take_new_length()
    x = probe.draw_vectors(1, 1, length, seed=5)
    try:
        out = probe.ask_role(x.expand(1, 8, -1, -1), torch.arange(length))
    except NoAnswerError:
        e.add("heads", math.inf)
        return
    e.add("heads", find_largest(out - out[:, :1]))


def _measure_pair_properties(e: Evidence, function: MeasuredRotation) -> None:
    pairs, found = function.pairs, e.found
    first, second = function.rotations.frequency.unbind(-1)
    size = torch.maximum(first.abs(), second.abs()).clamp(min=1e-300)
    apart = find_largest((first - second) / size)
    if pairs.layout is None or pairs.out_layout is None:
        apart = max(apart, 1.0)
    inv_freq = pairs.fill_gaps(first).abs()
    rise = 0.0
    if len(inv_freq) > 1:
        larger = torch.maximum(inv_freq[1:], inv_freq[:-1]).clamp(min=1e-300)
        rise = max(0.0, float(((inv_freq[1:] - inv_freq[:-1]) / larger).max()))
    allowed = max(1e-5, 16 * function.rounding_unit)
    e.add("layout", apart, allowed)
    e.add("direction", float((first < 0).double().mean()), 0.0)
    e.add("order", rise, allowed)
    if found.encoding == "rope" and found.base is None:
        e.skip("frequencies", "no rule is known that gives them; the config lists them all")
    elif found.encoding == "rope":
        e.add("frequencies", _measure_rule_error(found), allowed)
    if isinstance(found.scaling, YaRN) and found.scaling.factor > 1:
        once = compute_mscale(found.scaling.factor, 1.0)
        twice = math.isclose(found.attention_scale, once**2, rel_tol=1e-5)
        e.record("scale", not twice, float(twice), 0.0)
    if len(inv_freq) >= 8:
        e.add("decay", measure_remaining_bound(inv_freq), _MOST_REMAINING)
    else:
        e.skip("decay", f"only {len(inv_freq)} pairs; it takes 8")


def _measure_rule_error(found: Identification) -> float:
    """Largest relative difference between measured frequencies and those of the config."""
    rope: Any = found.build(table="on_the_fly")
    function = torch.tensor(found.inv_freq, dtype=torch.float64)
    rule = rope.frequencies().inv_freq[: len(function)]
    return find_largest((function - rule) / rule.abs().clamp(min=1e-30))


def _measure_scale_power(e: Evidence) -> None:
    """Check that tables times 1.5 give results times 1.5, and not a higher power of it."""
    probe = e.function.probe
    if e.rotation is None:
        e.skip("scale", "no pairs rotate")
        return
    length = probe.take_new_length()
    x, at = torch.ones(1, 1, length, probe.head_dim, dtype=torch.float64), torch.arange(length)
    channels = torch.cat((e.rotation.pairs.a_out, e.rotation.pairs.b_out))
    plain, scaled = (
        probe.ask_role(x, at, form=probe.form.scale_tables(scale))[..., channels].norm()
        for scale in (1.0, 1.5)
    )
    power = float((scaled / plain).log()) / math.log(1.5)
    e.record("scale", abs(power - 1) <= 1e-3, power - 1, 1e-3)


def measure_remaining_bound(inv_freq: Tensor) -> float:
    """Part of the bound on scores that remains, averaged over distances of 32 .. 256 radians."""
    far = torch.arange(32, 257, dtype=torch.float64) / inv_freq.max().clamp(min=1e-300)
    return float(envelope(inv_freq, far).mean() / envelope(inv_freq, torch.zeros(())))
