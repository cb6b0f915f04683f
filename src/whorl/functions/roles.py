"""Queries and keys side by side: which makes which result, and whether both turn alike."""

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
    """depends[i][j]: whether result i changes with argument j. differs: in words, one a line.

    misgrouped: what comes out where keys have fewer heads, "" where it is right or refused.
    """

    results: PropertyResults
    depends: ResultDependence
    differs: tuple[str, ...]
    misgrouped: str = ""


def describe_dependence(depends: ResultDependence) -> str:
    """What each result is made of; "" where it is what it should be."""
    if depends == ((True, False), (False, True)):
        return ""
    of = {(1, 1): "q and k", (1, 0): "q alone", (0, 1): "k alone", (0, 0): "neither q nor k"}
    first, second = (of[int(by_q), int(by_k)] for by_q, by_k in depends)
    return f"the first result is made of {first} and the second of {second}"


def compare_roles(
    seen: tuple[MeasuredFunction, MeasuredFunction], found: tuple[Identification, Identification]
) -> RoleComparison:
    """Measure what takes both roles."""
    (queries, keys), results = seen, PropertyResults()
    limit = compute_limit(queries)
    differs = tuple(list_differences(*found))
    apart = find_largest(keys.maps - queries.maps)
    decays = found[0].encoding == found[1].encoding == "xpos" and not differs
    results.add("relative", measure_relative_error(queries.maps, keys.maps), limit)
    results.put("keys", (apart <= limit or decays) and not differs, apart, limit)
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
    """Change q alone, then k alone; the error is by how much the wrong result changes, or 1

    where the right one does not.
    """
    length = probe.next_length()
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
    """Four heads of queries with two of keys, against each alone."""
    length = probe.next_length()
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
    """Whether keys turn as queries do, at the first positions and in the longest context known."""
    pairs, lengths = queries.pairs, queries.lengths
    if pairs is None or lengths is None:
        return False
    places = [*range(len(queries.maps)), *(length - 1 for length, _ in lengths.past)]
    if keys.addressing == "each" and lengths.reach > len(places):
        places.append(lengths.reach - 1)
    try:
        same = measure_blocks(keys, pairs, places) - measure_blocks(queries.probe, pairs, places)
        maps = keys.turned(torch.eye(keys.head_dim).double(), places[: len(queries.maps)])
    except NoAnswerError:
        return False
    apart = find_largest(maps.transpose(1, 2) - queries.maps)
    return max(find_largest(same), apart) <= 8 * queries.unit


def list_differences(queries: Identification, keys: Identification) -> list[str]:
    """Where two identifications are not the same, in words."""
    turns = [found.rotary_dim > 0 for found in (queries, keys)]
    if turns[0] != turns[1]:
        return [f"queries {_describe_rotation(turns[0])}, keys {_describe_rotation(turns[1])}"]
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
    """Whether the frequencies are the same, and follow the length alike."""
    ours, theirs = (torch.tensor(found.inv_freq).abs() for found in (queries, keys))
    follows = [
        found.scaling if found.scaling is not None and found.scaling.follows_length else None
        for found in (queries, keys)
    ]
    same = ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=0)
    return same and follows[0] == follows[1]


def _describe_rotation(turns: bool) -> str:
    return "turn" if turns else "do not turn"


def _describe_layout(found: Identification) -> str:
    layouts = (found.layout or "another pairing", found.out_layout or "another pairing")
    return layouts[0] if layouts[0] == layouts[1] else f"{layouts[0]} in, {layouts[1]} out"


def _describe_channels(found: Identification) -> str:
    return f"{found.rotary_start} to {found.rotary_start + found.rotary_dim - 1}"


def _describe_frequencies(found: Identification) -> str:
    rates = [abs(rate) for rate in found.inv_freq]
    if not rates:
        return "none"
    rule = "a list" if found.base is None else f"base {found.base:.6g}"
    scaling = "" if found.scaling is None else f", {found.scaling.name}"
    return f"{rule}{scaling}, {rates[0]:.6g} to {rates[-1]:.6g} radians per position"


def _describe_direction(found: Identification) -> str:
    return "forwards" if found.sign > 0 else "backwards"


def _describe_positions(found: Identification) -> str:
    return "as given" if not found.offset else f"as given {found.offset:+g}"


def _describe_scale(found: Identification) -> str:
    return f"{found.attention_scale:.6g}"
