"""Properties that show when calls are compared: offsets, batches, strides, dtypes, earlier calls.

Lengths of calls are compared in call_lengths.py, far positions in far_positions.py.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .call_lengths import compare_call_lengths, measure_long_call
from .call_results import NOT_REPEATED, CallResults, draw_vectors
from .far_positions import measure_far_positions
from .identification import Identification
from .measured_function import MeasuredFunction, make_reference_call
from .pair_rotations import compute_difference, measure_blocks
from .pairs import Pairs
from .probe import DTYPES, FunctionProbe, NoAnswerError, RaisedError
from .properties import compare_heads, compute_limit, compute_rounding_limit
from .results import PropertyResults

__all__ = ["CallResults", "measure_beyond_config", "measure_calls"]

#: First positions of calls that do not begin at 0.
_STARTS = (7, 300, 3_000, 20_000, 100_000)


def measure_calls(
    functions: Sequence[MeasuredFunction], found: Sequence[Identification], before: Sequence[Tensor]
) -> list[CallResults]:
    """Results for x, or for queries and for keys.

    Long calls and those in half precision come last, because what they leave in a cache would
    change other results. before: results of the reference call.
    """
    every = [_measure_short_calls(function) for function in functions]
    for calls, function, config in zip(every, functions, found, strict=True):
        if function.pairs is not None and function.rotations is not None:
            calls.far = measure_far_positions(function, function.pairs, config)
            calls.results.update(calls.far.results)
        else:
            for name in ("far", *DTYPES):
                if name != function.probe.form.dtype:
                    calls.results.skip(
                        name, "no pairs rotate, so nothing predicts the right results"
                    )
        _compare_dtypes(calls, function.probe)
    measure_long_call(every, functions)
    for calls, function, first in zip(every, functions, before, strict=True):
        _measure_history(calls, function, first, compute_rounding_limit(function))
    return every


def _measure_short_calls(function: MeasuredFunction) -> CallResults:
    calls, probe, limit = CallResults(), function.probe, compute_limit(function)
    calls.repeatable = function.repeat_difference <= compute_rounding_limit(function)
    if probe.role == 0:
        calls.measure("input", lambda: _measure_input_change(calls, probe))
    _measure_positions_and_rows(calls, function, limit)
    calls.measure("strides", lambda: _compare_strides(calls, probe, limit))
    calls.measure("kept", lambda: _measure_result_change(calls, probe))
    return calls


def _measure_positions_and_rows(
    calls: CallResults, function: MeasuredFunction, limit: float
) -> None:
    calls.measure("length", lambda: compare_call_lengths(calls, function, limit))
    calls.measure("offset", lambda: _compare_offsets(calls, function, limit))
    calls.measure("batch", lambda: _compare_batches(calls, function, limit))


def measure_beyond_config(function: MeasuredFunction, before: Tensor) -> PropertyResults:
    """Properties that no config can describe: heads, offsets, batches, lengths, earlier calls."""
    calls, limit = CallResults(), compute_limit(function)
    calls.results.add("heads", compare_heads(function), limit)
    _measure_positions_and_rows(calls, function, limit)
    measure_long_call([calls], [function])
    _measure_history(calls, function, before, compute_rounding_limit(function))
    return calls.results


def _measure_input_change(calls: CallResults, probe: FunctionProbe) -> None:
    """Measure by how much the function changes its arguments."""
    length = probe.take_new_length()
    x = draw_vectors(probe, 2, 2, length).to(DTYPES[probe.form.dtype])
    given = probe.build_arguments(x, torch.arange(length))
    before = {name: tensor.clone().double() for name, tensor in given.items()}
    probe.call(given)
    changes = {name: compute_difference(given[name].double(), before[name]) for name in given}
    calls.changed_inputs = [name for name, change in changes.items() if change]
    calls.results.add("input", max(changes.values()), 0.0)


def _compare_offsets(calls: CallResults, function: MeasuredFunction, limit: float) -> None:
    """Compare calls at positions 0 .. 12 and 7 .. 19 of one length, and position 7 alone.

    A cache whose key is the length gives the first result again. A call of one token is what a
    decode step makes.
    """
    probe = function.probe
    x = draw_vectors(probe, 1).expand(1, 1, 13, -1)
    whole = probe.rotate_vectors(x[0, 0, :1], range(7, 20))[:, 0]
    earlier = probe.ask_role(x, torch.arange(13))[0, 0]
    try:
        piece = probe.ask_role(x, torch.arange(7, 20))[0, 0]
        single = probe.ask_role(x[:, :, :1], torch.tensor([7]))[0, 0]
    except NoAnswerError:
        calls.results.add("offset", math.inf, limit)
        return
    error = compute_difference(piece, whole)
    calls.repeats_earlier_call = error > limit and compute_difference(piece, earlier) <= limit
    if probe.addressing == "none":
        calls.repeats_earlier_call = True
    elif error <= limit:
        error = max(error, compute_difference(single[0], whole[0]))
        calls.single_token_differs = error > limit
    if error <= limit and function.pairs is not None:
        error = max(error, _compare_later_starts(calls, function, function.pairs, limit))
    calls.results.add("offset", error, limit)


def _compare_later_starts(
    calls: CallResults, function: MeasuredFunction, pairs: Pairs, limit: float
) -> float:
    """Compare calls that begin at some position with the same calls with position 0 before it."""
    probe, lengths = function.probe, function.lengths
    assert lengths is not None
    end = lengths.longest_context if lengths.constant_up_to is None else lengths.constant_up_to
    for start in _STARTS:
        run, error = range(start, start + 8), 0.0
        if probe.addressing != "each" or run[-1] >= end:
            break
        try:
            piece = measure_blocks(probe, pairs, run)
            error = compute_difference(piece, measure_blocks(probe, pairs, [0, *run])[1:])
        except NoAnswerError:
            return math.inf
        if error > limit:
            calls.wrong_start = start
            calls.counts_from_start = (
                compute_difference(piece, measure_blocks(probe, pairs, range(8))) <= limit
            )
            return error
    return 0.0


def _compare_batches(calls: CallResults, function: MeasuredFunction, limit: float) -> None:
    """Compare two rows alone and in one batch, the second at far positions if rows may differ.

    Also one row with a batch of D copies of it, which is how basis vectors are measured.
    """
    probe, far = function.probe, 40
    if function.lengths is not None:
        short, longest = function.lengths.constant_up_to, function.lengths.longest_context
        far = max(4, min(500 if short is None else 3 * short, longest - 20))
    far = far if probe.has_row_positions else 0
    x = draw_vectors(probe, 2, 1, 9)
    at = torch.stack((torch.arange(9), torch.arange(9) + far))
    ask = probe.ask_rows if probe.has_row_positions else lambda x, at: probe.ask_role(x, at[0])
    try:
        probe.rotate_vectors(x[:1, 0, 0], range(8))  # some remember the longest context
        alone = torch.cat((ask(x[:1], at[:1]), ask(x[1:], at[1:])))
        probe.rotate_vectors(x[:1, 0, 0], range(8))
        together = ask(x, at)
        crowd = ask(x[:1].expand(probe.head_dim, -1, -1, -1), at[:1].expand(probe.head_dim, -1))
        probe.rotate_vectors(x[:1, 0, 0], range(8))
        again = ask(x[:1], at[:1])
    except NoAnswerError as problem:
        calls.results.skip("batch", f"with rows at positions 0 and {far} it {problem}")
        return
    if compute_difference(again, alone[:1]) > limit:
        calls.results.skip("batch", NOT_REPEATED)
        return
    errors = [compute_difference(a, b) for a, b in zip(alone, together, strict=True)]
    positions = (far, 0) if errors[0] > limit else (0, far)
    calls.batch_mates = f"a row at positions {positions[0]} to {positions[0] + 8}"
    if max(errors) <= limit:
        errors.append(compute_difference(crowd, alone[:1].expand_as(crowd)))
        calls.batch_mates, calls.mates_are_copies = f"{probe.head_dim - 1} rows like it", True
    calls.results.add("batch", max(errors), limit)


def _compare_strides(calls: CallResults, probe: FunctionProbe, limit: float) -> None:
    """Compare a transposed tensor, as projections give it, with its contiguous copy."""
    length = probe.take_new_length()
    x = draw_vectors(probe, 2, length, 3).to(DTYPES[probe.form.dtype]).transpose(1, 2)
    at = torch.arange(length)
    ordered = probe.ask_role(x.contiguous(), at)
    given = probe.build_arguments(x, at, keys=x.transpose(1, 2).clone().transpose(1, 2))
    try:
        out = probe.call(given)[probe.role].double()
    except RaisedError as problem:
        calls.results.skip("strides", f"it takes contiguous tensors only: it {problem}")
        return
    calls.results.add("strides", compute_difference(out, ordered), limit)


def _measure_result_change(calls: CallResults, probe: FunctionProbe) -> None:
    """Measure whether another call of the same shape changes an earlier result."""
    length = probe.take_new_length()
    x, other = (draw_vectors(probe, 1, 2, length, seed=seed) for seed in (7, 8))
    at = torch.arange(length)
    result = probe.ask(x, at)[probe.role].detach()
    before = result.clone()
    probe.ask(other, at)
    calls.results.add("kept", compute_difference(result, before), 0.0)


def _compare_dtypes(calls: CallResults, probe: FunctionProbe) -> None:
    changed, length = calls.changed_dtypes, 9
    for dtype in DTYPES:
        if probe.form.library == "numpy" and dtype == "bfloat16":
            continue
        try:
            out = probe.ask(draw_vectors(probe, 1, 1, length), torch.arange(length), dtype)[
                probe.role
            ]
        except NoAnswerError:
            continue
        if out.dtype != DTYPES[dtype]:
            changed[dtype] = str(out.dtype).removeprefix("torch.")
    calls.results.add("dtype", float(len(changed)), 0.0)


def _measure_history(
    calls: CallResults, function: MeasuredFunction, before: Tensor, limit: float
) -> None:
    """Repeat the reference call after all others, and compare; also after a longer context."""
    probe, lengths = function.probe, function.lengths
    error = calls.far.later_change
    try:
        error = max(error, compute_difference(make_reference_call(probe)[probe.role], before))
    except NoAnswerError:
        error = math.inf  # it answered this call before
    if error > limit:
        calls.changed_after = "calls at other positions, lengths and dtypes"
    if (
        math.isfinite(error)
        and lengths is not None
        and lengths.longer
        and probe.addressing == "each"
    ):
        short, long = lengths.longer[0][0], lengths.longer[-1][0]
        latest = probe.latest_length
        fresh = _ask_in_context(probe, short, None, latest)
        change = compute_difference(fresh, _ask_in_context(probe, short, long, latest))
        if change > limit:
            calls.changed_after = f"a context of {long} tokens before one of {short}"
        error = max(error, change)
    calls.results.add("history", error, limit)


def _ask_in_context(probe: FunctionProbe, length: int, earlier: int | None, latest: int) -> Tensor:
    """A vector in a context of ``length`` tokens, after a short call and perhaps a longer one.

    The call has as many tokens every time: the number that comes after ``latest``.
    """
    x, run = draw_vectors(probe, 1), range(8)
    probe.rotate_vectors(x, run)
    if earlier is not None:
        probe.rotate_vectors(x, [*run, earlier - 1])
    with probe.repeat_lengths(latest):
        return probe.rotate_vectors(x, [*run, length - 1])[:8]
