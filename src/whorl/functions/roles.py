"""Queries compared with keys: which argument makes which result, and whether both rotate alike."""

import math

import torch

from .evidence import Evidence, ResultDependence
from .identification import Identification
from .measured_function import MeasuredFunction, MeasuredRotation
from .pairs import measure_blocks, measure_matrices
from .probe import FunctionProbe, NoAnswerError, RaisedError
from .properties import find_largest, measure_relative_error

__all__ = [
    "are_keys_like_queries",
    "compare_roles",
    "describe_dependence",
    "list_differences",
    "measure_dependence",
]


def describe_dependence(depends: ResultDependence) -> str:
    """Which argument makes which result, in words; "" if q makes the first and k the second."""
    if depends == ((True, False), (False, True)):
        return ""
    of = {(1, 1): "q and k", (1, 0): "q alone", (0, 1): "k alone", (0, 0): "neither q nor k"}
    first, second = (of[int(by_q), int(by_k)] for by_q, by_k in depends)
    return f"the first result is made of {first} and the second of {second}"


def compare_roles(queries: Evidence, keys: Evidence) -> None:
    """Measure the properties that concern queries and keys together."""
    limit, probe = queries.function.limit, queries.function.probe
    differs = tuple(list_differences(queries.found, keys.found))
    ours, theirs = queries.function.matrices, keys.function.matrices
    apart = find_largest(theirs - ours)
    decays = queries.found.encoding == keys.found.encoding == "xpos" and not differs
    queries.add("relative", measure_relative_error(ours, theirs))
    queries.record("keys", (apart <= limit or decays) and not differs, apart, limit)
    if apart > limit and not decays and not differs:
        differs = (f"the results differ by up to {apart:.2g} on basis vectors",)
    depends, mixing = measure_dependence(probe, limit)
    queries.add("roles", mixing)
    queries.dependence, queries.differences = depends, differs
    queries.grouped_error = _compare_grouped_heads(queries)
    keys.replace_by(queries, ("relative", "keys", "roles", "grouped"))


def measure_dependence(probe: FunctionProbe, limit: float) -> tuple[ResultDependence, float]:
    """Which result depends on which argument, and an error.

    Changes q alone, then k alone. The error is the largest change of the wrong result, or 1 if the
    right result does not change.
    """
    length = probe.take_new_length()
    at = torch.arange(length)
    q, k, other = (probe.draw_vectors(1, 2, length, seed=seed) for seed in (20, 21, 22))
    plain, changes = probe.ask(q, at, keys=k), []
    for queries, keys in ((other, k), (q, other)):
        changed = probe.ask(queries, at, keys=keys)
        changes.append([find_largest(b - a) for a, b in zip(plain, changed, strict=True)])
    (q_by_q, k_by_q), (q_by_k, k_by_k) = changes
    depends = ((q_by_q > limit, q_by_k > limit), (k_by_q > limit, k_by_k > limit))
    ignored = 0.0 if depends[0][0] and depends[1][1] else 1.0
    return depends, max(q_by_k, k_by_q, ignored)


def _compare_grouped_heads(e: Evidence) -> str:
    """Compare 4 heads of queries and 2 of keys in one call and in two; returns what is wrong."""
    probe = e.function.probe
    length = probe.take_new_length()
    at = torch.arange(length)
    q, k = (probe.draw_vectors(1, heads, length, seed=seed) for heads, seed in ((4, 23), (2, 24)))
    try:
        alone = [probe.ask(q, at, keys=q)[0], probe.ask(k, at, keys=k)[1]]
    except NoAnswerError as problem:
        e.skip("grouped", f"with two or four heads it {problem}")
        return ""
    try:
        outs = probe.ask(q, at, keys=k)
    except RaisedError as problem:
        e.skip("grouped", f"with 4 heads of q and 2 of k it {problem}")
        return ""
    except NoAnswerError as problem:
        e.add("grouped", math.inf)
        return f"it {problem}"
    error = max(find_largest(b - a) for a, b in zip(alone, outs, strict=True))
    e.add("grouped", error)
    return f"results differ by {error:.2g}" if e.fails("grouped") else ""


def are_keys_like_queries(queries: MeasuredFunction, keys: FunctionProbe) -> bool:
    """Whether keys get the same rotations as queries, at first positions and in long contexts."""
    if not isinstance(queries, MeasuredRotation):
        return False
    pairs, lengths = queries.pairs, queries.lengths
    positions = [*range(len(queries.matrices)), *(length - 1 for length, _ in lengths.longer)]
    if keys.addressing == "each" and lengths.longest_context > len(positions):
        positions.append(lengths.longest_context - 1)
    try:
        theirs, ours = (measure_blocks(p, pairs, positions) for p in (keys, queries.probe))
        matrices = measure_matrices(keys)
    except NoAnswerError:
        return False
    apart = max(find_largest(theirs - ours), find_largest(matrices - queries.matrices))
    return apart <= 8 * queries.rounding_unit


def list_differences(queries: Identification, keys: Identification) -> list[str]:
    """Differences between the identifications of queries and keys, in words."""
    if (queries.rotary_dim > 0) != (keys.rotary_dim > 0):
        words = ["rotate" if found.rotary_dim else "do not rotate" for found in (queries, keys)]
        return [f"queries {words[0]}, keys {words[1]}"]
    ours, theirs = queries.describe_parts(), keys.describe_parts()
    if _has_same_frequencies(queries, keys):
        theirs["frequencies"] = ours["frequencies"]
    lines = [
        f"{name}: queries {words}, keys {theirs[name]}"
        for name, words in ours.items()
        if words != theirs[name]
    ]
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
