"""Properties that show when calls are compared: offsets, batches, lengths, strides, earlier calls.

Far positions are in far_positions.py.
"""

import math
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .call_forms import DTYPES
from .evidence import NOT_REPEATED, Evidence
from .far_positions import measure_far_positions
from .measured_function import SLOW_SECONDS, MeasuredRotation, find_last, make_reference_call
from .pairs import compute_difference, measure_blocks
from .probe import FunctionProbe, NoAnswerError, RaisedError
from .properties import compare_heads

__all__ = ["measure_beyond_config", "measure_calls"]

#: First positions of calls that do not begin at 0.
_STARTS = (7, 300, 3_000, 20_000, 100_000)
#: Tokens of a call that is compared with a short one: 16 * 272, because calls of 272 and 544 tokens
#: tell how much memory it would take.
_LONG_CALL = 4352
#: Bytes by which the long call may allocate more than the call of 544 tokens, in one tensor.
_MOST_BYTES = 2**26


def measure_calls(evidence: Sequence[Evidence], before: Sequence[Tensor]) -> None:
    """Compare calls of x, or of queries and of keys.

    Long calls and those in half precision come last, because what they leave in a cache would
    change other results. before: results of the reference call.
    """
    for e in evidence:
        if e.function.probe.role == 0:
            e.measure("input", _measure_input_change)
        _measure_positions_and_rows(e)
        e.measure("strides", _compare_strides)
        e.measure("kept", _measure_result_change)
    for e in evidence:
        if e.rotation is not None:
            measure_far_positions(e, e.rotation)
        else:
            for name in ("far", *(dtype for dtype in DTYPES if dtype != e.dtype)):
                e.skip(name, "no pairs rotate, so nothing predicts the right results")
        _compare_dtypes(e)
    _measure_long_call(evidence)
    for e, first in zip(evidence, before, strict=True):
        _measure_history(e, first)


def measure_beyond_config(e: Evidence, before: Tensor) -> None:
    """Properties that no config can describe: heads, offsets, batches, lengths, earlier calls."""
    compare_heads(e)
    _measure_positions_and_rows(e)
    _measure_long_call([e])
    _measure_history(e, before)


def _measure_positions_and_rows(e: Evidence) -> None:
    e.measure("length", _compare_call_lengths)
    e.measure("offset", _compare_offsets)
    e.measure("batch", _compare_batches)


def _measure_input_change(e: Evidence) -> None:
    """Measure by how much the function changes its arguments."""
    probe = e.function.probe
    length = probe.take_new_length()
    x = probe.draw_vectors(2, 2, length, seed=6).to(DTYPES[e.dtype])
    given = probe.build_arguments(x, torch.arange(length))
    before = {name: tensor.clone().double() for name, tensor in given.items()}
    probe.call(given)
    changes = {name: compute_difference(given[name].double(), before[name]) for name in given}
    e.changed_inputs = [name for name, change in changes.items() if change]
    e.add("input", max(changes.values()), 0.0)


def _compare_call_lengths(e: Evidence) -> None:
    """Compare positions 0 .. 9 in a call of 11 tokens and in two longer ones.

    One of these also ends at position 10, the other at 15. Beyond 15, frequencies may depend on
    the context, which is no mistake.
    """
    probe = e.function.probe
    x = probe.draw_vectors(1, seed=6)
    if probe.addressing != "each" and e.depends_on_context:
        e.skip("length", "frequencies depend on the context, which is the length of the call")
        return
    short = probe.ask_role(x.expand(1, 1, 11, -1), torch.arange(11))[0, 0]
    many = probe.rotate_vectors(x, range(11))[:, 0]
    tokens = probe.latest_length
    longer = probe.rotate_vectors(x, range(16))[:, 0]
    again = probe.ask_role(x.expand(1, 1, 11, -1), torch.arange(11))[0, 0]
    if compute_difference(short, again) > e.function.limit:
        e.skip("length", NOT_REPEATED)
        return
    for other, words in (
        (many, f"a call of 11 tokens and one of {tokens}"),
        (longer, "a context of 11 tokens and one of 16"),
    ):
        e.add("length", compute_difference(short[:10], other[:10]))
        if e.fails("length"):
            e.compared_lengths = words
            return
    e.short_result = short


def _compare_offsets(e: Evidence) -> None:
    """Compare calls at positions 0 .. 12 and 7 .. 19 of one length, and position 7 alone.

    A cache whose key is the length gives the first result again. A call of one token is what a
    decode step makes.
    """
    probe, limit = e.function.probe, e.function.limit
    x = probe.draw_vectors(1, seed=6).expand(1, 1, 13, -1)
    whole = probe.rotate_vectors(x[0, 0, :1], range(7, 20))[:, 0]
    earlier = probe.ask_role(x, torch.arange(13))[0, 0]
    try:
        piece = probe.ask_role(x, torch.arange(7, 20))[0, 0]
        single = probe.ask_role(x[:, :, :1], torch.tensor([7]))[0, 0]
    except NoAnswerError:
        e.add("offset", math.inf)
        return
    error = compute_difference(piece, whole)
    e.repeats_earlier_call = error > limit and compute_difference(piece, earlier) <= limit
    if probe.addressing == "none":
        e.repeats_earlier_call = True
    elif error <= limit:
        error = max(error, compute_difference(single[0], whole[0]))
        e.single_token_differs = error > limit
    if error <= limit and e.rotation is not None:
        error = max(error, _compare_later_starts(e, e.rotation))
    e.add("offset", error)


def _compare_later_starts(e: Evidence, function: MeasuredRotation) -> float:
    """Compare calls that begin at some position with the same calls with position 0 before it."""
    probe, pairs, lengths = function.probe, function.pairs, function.lengths
    end = lengths.longest_context if lengths.constant_up_to is None else lengths.constant_up_to
    for start in _STARTS:
        run = range(start, start + 8)
        if probe.addressing != "each" or run[-1] >= end:
            break
        try:
            piece = measure_blocks(probe, pairs, run)
            error = compute_difference(piece, measure_blocks(probe, pairs, [0, *run])[1:])
        except NoAnswerError:
            return math.inf
        if error > function.limit:
            first = measure_blocks(probe, pairs, range(8))
            e.wrong_start = start
            e.counts_from_start = compute_difference(piece, first) <= function.limit
            return error
    return 0.0


def _compare_batches(e: Evidence) -> None:
    """Compare two rows alone and in one batch, the second at far positions if rows may differ.

    Also one row with a batch of D copies of it, which is how basis vectors are measured.
    """
    probe, far = e.function.probe, 40
    if e.rotation is not None:
        short, longest = e.rotation.lengths.constant_up_to, e.rotation.lengths.longest_context
        far = max(4, min(500 if short is None else 3 * short, longest - 20))
    far = far if probe.has_row_positions else 0
    x = probe.draw_vectors(2, 1, 9, seed=6)
    at = torch.stack((torch.arange(9), torch.arange(9) + far))

    def ask(x: Tensor, at: Tensor) -> Tensor:
        if probe.has_row_positions:
            return probe.ask_role(x, at, form=probe.row_form)
        return probe.ask_role(x, at[0])

    def make_short_call() -> None:  # some functions remember the longest context
        probe.rotate_vectors(x[:1, 0, 0], range(8))

    try:
        make_short_call()
        alone = torch.cat((ask(x[:1], at[:1]), ask(x[1:], at[1:])))
        make_short_call()
        together = ask(x, at)
        crowd = ask(x[:1].expand(probe.head_dim, -1, -1, -1), at[:1].expand(probe.head_dim, -1))
        make_short_call()
        again = ask(x[:1], at[:1])
    except NoAnswerError as problem:
        e.skip("batch", f"with rows at positions 0 and {far} it {problem}")
        return
    if compute_difference(again, alone[:1]) > e.function.limit:
        e.skip("batch", NOT_REPEATED)
        return
    errors = [compute_difference(a, b) for a, b in zip(alone, together, strict=True)]
    first = far if errors[0] > e.function.limit else 0
    e.batch_mates = f"a row at positions {first} to {first + 8}"
    if max(errors) <= e.function.limit:
        errors.append(compute_difference(crowd, alone[:1].expand_as(crowd)))
        e.batch_mates, e.mates_are_copies = f"{probe.head_dim - 1} rows like it", True
    e.add("batch", max(errors))


def _compare_strides(e: Evidence) -> None:
    """Compare a transposed tensor, as projections give it, with its contiguous copy."""
    probe = e.function.probe
    length = probe.take_new_length()
    x = probe.draw_vectors(2, length, 3, seed=6).to(DTYPES[e.dtype]).transpose(1, 2)
    at = torch.arange(length)
    ordered = probe.ask_role(x.contiguous(), at)
    given = probe.build_arguments(x, at, keys=x.transpose(1, 2).clone().transpose(1, 2))
    try:
        out = probe.call(given)[probe.role].double()
    except RaisedError as problem:
        e.skip("strides", f"it takes contiguous tensors only: it {problem}")
        return
    e.add("strides", compute_difference(out, ordered))


def _call_once(probe: FunctionProbe, x: Tensor, dtype: str) -> Tensor:
    """Result of this role at positions 0, 1, ..., as the function returned it."""
    given = probe.build_arguments(x.to(DTYPES[dtype]), torch.arange(x.shape[2]))
    return probe.call(given)[probe.role]


def _measure_result_change(e: Evidence) -> None:
    """Measure whether another call of the same shape changes an earlier result."""
    probe = e.function.probe
    length = probe.take_new_length()
    x, other = (probe.draw_vectors(1, 2, length, seed=seed) for seed in (7, 8))
    result = _call_once(probe, x, e.dtype).detach()
    before = result.clone()
    _call_once(probe, other, e.dtype)
    e.add("kept", compute_difference(result, before), 0.0)


def _compare_dtypes(e: Evidence) -> None:
    probe = e.function.probe
    for dtype in DTYPES:
        if probe.form.library == "numpy" and dtype == "bfloat16":
            continue
        try:
            out = _call_once(probe, probe.draw_vectors(1, 1, 9, seed=6), dtype)
        except NoAnswerError:
            continue
        if out.dtype != DTYPES[dtype]:
            e.changed_dtypes[dtype] = str(out.dtype).removeprefix("torch.")
    e.add("dtype", float(len(e.changed_dtypes)), 0.0)


def _measure_long_call(evidence: Sequence[Evidence]) -> None:
    """Compare positions 0 .. 9 in a short call and in one of many tokens up to position 10.

    Only if shorter calls do not differ. The short call is repeated afterwards: if it differs, the
    long call changed later ones, which ``history`` reports.
    """
    probe = evidence[0].function.probe
    undecided = [e for e in evidence if e.short_result is not None and not e.far.wrong_call_tokens]
    if probe.addressing != "each" or not undecided:
        return

    def ask(tokens: int) -> list[Tensor]:
        x = probe.draw_vectors(1, seed=6).expand(1, 1, tokens, -1)
        return [out[0, 0, :11] for out in probe.ask(x, torch.arange(tokens).clamp(max=10))]

    why, long = f"would take more than {SLOW_SECONDS:g} s", list[Tensor]()
    try:
        if evidence[0].far.seconds_per_token * _LONG_CALL <= SLOW_SECONDS:
            why = f"would allocate {_MOST_BYTES >> 20} MiB more than a call of {_LONG_CALL // 8}"
            if _predict_growth(probe, ask) <= _MOST_BYTES:
                long = ask(_LONG_CALL)
    except NoAnswerError as problem:
        why = str(problem)
    for e in undecided:
        if not long:
            e.skip("length", f"in a call of {_LONG_CALL:,} tokens it {why}")
            continue
        # A single function is measured for both results.
        roles = [e.function.probe.role] if len(evidence) > 1 else range(len(long))
        e.measure("length", partial(_compare_long_call, roles=roles, long=long, ask=ask))


def _compare_long_call(
    e: Evidence, roles: Sequence[int], long: list[Tensor], ask: Callable[[int], list[Tensor]]
) -> None:
    """Compare the results of a long call with those of a short one.

    roles: which results to compare. ask: makes a call of a number of tokens.
    """
    assert e.short_result is not None
    short, limit = ask(11), e.function.limit

    def change(many: list[Tensor]) -> float:
        return max(compute_difference(short[role][:10], many[role][:10]) for role in roles)

    if compute_difference(e.short_result, short[e.function.probe.role]) > limit:
        e.skip("length", NOT_REPEATED)
    elif (error := change(long)) > limit:
        same = find_last(11, _LONG_CALL, lambda tokens: change(ask(tokens)) <= limit)
        last = f"one of {_LONG_CALL:,} (one of {same:,} is still the same)"
        e.compared_lengths = f"a call of 11 tokens and {last}"
        e.add("length", error)


def _predict_growth(probe: FunctionProbe, ask: Callable[[int], list[Tensor]]) -> float:
    """Bytes that the long call would allocate at once beyond those of a call of 544 tokens.

    Two shorter calls tell: memory grows by a power of the tokens. A table grows by the power 0,
    results by 1, and a function that builds a matrix [T, T] by 2.
    """
    measure = _measure_tensor_bytes if probe.form.library == "torch" else _measure_array_bytes
    short, double = (max(1, measure(partial(ask, _LONG_CALL // n))) for n in (16, 8))
    return double * ((double / short) ** 3 - 1)


class _LargestTensor(TorchFunctionMode):
    """Counts the bytes of the largest tensor that torch returns while this is active."""

    def __init__(self) -> None:
        self.bytes = 0

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return made


def _measure_tensor_bytes(call: Callable[[], Any]) -> int:
    """Bytes of the largest torch tensor that a call makes."""
    with _LargestTensor() as largest:
        call()
    return int(largest.bytes)


def _measure_array_bytes(call: Callable[[], Any]) -> int:
    """Bytes that a call takes at its peak, as Python and NumPy allocate them."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not running:
            tracemalloc.stop()
    return peak - before


def _measure_history(e: Evidence, before: Tensor) -> None:
    """Repeat the reference call after all others, and compare; also after a longer context."""
    probe, limit, error = e.function.probe, e.function.rounding_limit, e.far.later_change
    try:
        error = max(error, compute_difference(make_reference_call(probe)[probe.role], before))
    except NoAnswerError:
        error = math.inf  # it answered this call before
    if error > limit:
        e.changed_after = "calls at other positions, lengths and dtypes"
    longer = () if e.rotation is None else e.rotation.lengths.longer
    if math.isfinite(error) and longer and probe.addressing == "each":
        short, long = longer[0][0], longer[-1][0]
        latest = probe.latest_length
        fresh = _ask_in_context(probe, short, None, latest)
        change = compute_difference(fresh, _ask_in_context(probe, short, long, latest))
        if change > limit:
            e.changed_after = f"a context of {long} tokens before one of {short}"
        error = max(error, change)
    e.add("history", error, limit)


def _ask_in_context(probe: FunctionProbe, length: int, earlier: int | None, latest: int) -> Tensor:
    """A vector in a context of ``length`` tokens, after a short call and perhaps a longer one.

    The call has as many tokens every time: the number that comes after ``latest``.
    """
    x, run = probe.draw_vectors(1, seed=6), range(8)
    probe.rotate_vectors(x, run)
    if earlier is not None:
        probe.rotate_vectors(x, [*run, earlier - 1])
    with probe.repeat_lengths(latest):
        return probe.rotate_vectors(x, [*run, length - 1])[:8]
