"""Queries compared with keys: which argument makes which result, and whether both rotate alike."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .identification import Identification
from .measured_function import MeasuredFunction
from .pair_rotations import measure_blocks
from .probe import FunctionProbe, NoAnswerError, RaisedError
from .properties import compute_limit, find_largest, measure_relative_error
from .results import PropertyResults

__all__ = [
    "RoleComparison",
    "are_keys_like_queries",
    "compare_roles",
    "describe_dependence",
    "list_differences",
    "measure_dependence",
]

ResultDependence = tuple[tuple[bool, bool], tuple[bool, bool]]


@dataclass(frozen=True)
class RoleComparison:
    """How queries and keys differ, and which argument makes which result.

    dependence[i][j]: whether result i depends on argument j. differences: in words.
    grouped_error: what is wrong if keys have fewer heads, "" if nothing is or if that is refused.
    """

    results: PropertyResults
    dependence: ResultDependence
    differences: tuple[str, ...]
    grouped_error: str = ""


def describe_dependence(depends: ResultDependence) -> str:
    """Which argument makes which result, in words; "" if q makes the first and k the second."""
    if depends == ((True, False), (False, True)):
        return ""
    of = {(1, 1): "q and k", (1, 0): "q alone", (0, 1): "k alone", (0, 0): "neither q nor k"}
    first, second = (of[int(by_q), int(by_k)] for by_q, by_k in depends)
    return f"the first result is made of {first} and the second of {second}"


def compare_roles(
    functions: tuple[MeasuredFunction, MeasuredFunction],
    found: tuple[Identification, Identification],
) -> RoleComparison:
    """Measure the properties that concern queries and keys together."""
    (queries, keys), results = functions, PropertyResults()
    limit = compute_limit(queries)
    differs = tuple(list_differences(*found))
    apart = find_largest(keys.matrices - queries.matrices)
    decays = found[0].encoding == found[1].encoding == "xpos" and not differs
    results.add("relative", measure_relative_error(queries.matrices, keys.matrices), limit)
    results.record("keys", (apart <= limit or decays) and not differs, apart, limit)
    if apart > limit and not decays and not differs:
        differs = (f"the results differ by up to {apart:.2g} on basis vectors",)
    depends, mixing = measure_dependence(queries.probe, limit)
    results.add("roles", mixing, limit)
    said = _compare_grouped_heads(results, queries.probe, limit)
    return RoleComparison(results, depends, differs, said)


def _draw_vectors(probe: FunctionProbe, heads: int, length: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, length, probe.head_dim, generator=generator).double()


def measure_dependence(probe: FunctionProbe, limit: float) -> tuple[ResultDependence, float]:
    """Which result depends on which argument, and an error.

    Changes q alone, then k alone. The error is the largest change of the wrong result, or 1 if the
    right result does not change.
    """
    length = probe.take_new_length()
    at = torch.arange(length)
    q, k, other = (_draw_vectors(probe, 2, length, seed) for seed in (20, 21, 22))

    def ask(q: Tensor, k: Tensor) -> list[Tensor]:
        return [out.to(torch.float64, copy=True) for out in probe.ask(q, at, keys=k)]

    plain, changes = ask(q, k), []
    for changed in (ask(other, k), ask(q, other)):
        changes.append([find_largest(b - a) for a, b in zip(plain, changed, strict=True)])
    (q_by_q, k_by_q), (q_by_k, k_by_k) = changes
    depends = ((q_by_q > limit, q_by_k > limit), (k_by_q > limit, k_by_k > limit))
    ignored = 0.0 if depends[0][0] and depends[1][1] else 1.0
    return depends, max(q_by_k, k_by_q, ignored)


def _compare_grouped_heads(results: PropertyResults, probe: FunctionProbe, limit: float) -> str:
    """Compare 4 heads of queries and 2 of keys in one call and in two; returns what is wrong."""
    length = probe.take_new_length()
    at, q, k = (
        torch.arange(length),
        _draw_vectors(probe, 4, length, 23),
        _draw_vectors(probe, 2, length, 24),
    )
    try:
        alone = [probe.ask(q, at, keys=q)[0].clone(), probe.ask(k, at, keys=k)[1].clone()]
    except NoAnswerError as problem:
        results.skip("grouped", f"with two or four heads it {problem}")
        return ""
    try:
        outs = probe.ask(q, at, keys=k)
    except RaisedError as problem:
        results.skip("grouped", f"with 4 heads of q and 2 of k it {problem}")
        return ""
    except NoAnswerError as problem:
        results.add("grouped", math.inf, limit)
        return f"it {problem}"
    error = max(find_largest(b.double() - a.double()) for a, b in zip(alone, outs, strict=True))
    results.add("grouped", error, limit)
    return "" if error <= limit else f"results differ by {error:.2g}"


def are_keys_like_queries(queries: MeasuredFunction, keys: FunctionProbe) -> bool:
    """Whether keys get the same rotations as queries, at first positions and in long contexts."""
    pairs, lengths = queries.pairs, queries.lengths
    if pairs is None or lengths is None:
        return False
    positions = [*range(len(queries.matrices)), *(length - 1 for length, _ in lengths.longer)]
    if keys.addressing == "each" and lengths.longest_context > len(positions):
        positions.append(lengths.longest_context - 1)
    try:
        same = measure_blocks(keys, pairs, positions) - measure_blocks(
            queries.probe, pairs, positions
        )
        matrices = keys.rotate_vectors(
            torch.eye(keys.head_dim).double(), positions[: len(queries.matrices)]
        )
    except NoAnswerError:
        return False
    apart = find_largest(matrices.transpose(1, 2) - queries.matrices)
    return max(find_largest(same), apart) <= 8 * queries.rounding_unit


def list_differences(queries: Identification, keys: Identification) -> list[str]:
    """Differences between the identifications of queries and keys, in words."""
    rotates = [found.rotary_dim > 0 for found in (queries, keys)]
    if rotates[0] != rotates[1]:
        return [f"queries {_describe_rotation(rotates[0])}, keys {_describe_rotation(rotates[1])}"]
    parts = [(_describe_layout, "layout"), (_describe_channels, "rotated channels")]
    if not _has_same_frequencies(queries, keys):
        parts.append((_describe_frequencies, "frequencies"))
    parts += [
        (_describe_direction, "direction"),
        (_describe_positions, "positions"),
        (_describe_scale, "scale"),
    ]
    lines = []
    for words, name in parts:
        ours, theirs = words(queries), words(keys)
        if ours != theirs:
            lines.append(f"{name}: queries {ours}, keys {theirs}")
    if (queries.role, keys.role) not in ((None, None), ("query", "key")):
        lines.append(f"XPos: queries get the scale of a {queries.role}, keys of a {keys.role}")
    return lines


def _has_same_frequencies(queries: Identification, keys: Identification) -> bool:
    """Whether the frequencies are the same, and depend on the length in the same way."""
    ours, theirs = (torch.tensor(found.inv_freq).abs() for found in (queries, keys))
    follows = [
        found.scaling if found.scaling is not None and found.scaling.follows_length else None
        for found in (queries, keys)
    ]
    same = ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=0)
    return same and follows[0] == follows[1]


def _describe_rotation(rotates: bool) -> str:
    return "rotate" if rotates else "do not rotate"


def _describe_layout(found: Identification) -> str:
    layouts = (found.layout or "another pairing", found.out_layout or "another pairing")
    return layouts[0] if layouts[0] == layouts[1] else f"{layouts[0]} in, {layouts[1]} out"


def _describe_channels(found: Identification) -> str:
    return f"{found.rotary_start} to {found.rotary_start + found.rotary_dim - 1}"


def _describe_frequencies(found: Identification) -> str:
    frequencies = [abs(frequency) for frequency in found.inv_freq]
    if not frequencies:
        return "none"
    rule = "a list" if found.base is None else f"base {found.base:.6g}"
    scaling = "" if found.scaling is None else f", {found.scaling.name}"
    return f"{rule}{scaling}, {frequencies[0]:.6g} to {frequencies[-1]:.6g} radians per position"


def _describe_direction(found: Identification) -> str:
    return "forwards" if found.sign > 0 else "backwards"


def _describe_positions(found: Identification) -> str:
    return "as given" if not found.offset else f"as given {found.offset:+g}"


def _describe_scale(found: Identification) -> str:
    return f"{found.attention_scale:.6g}"
