"""Properties of calls: dtypes, pieces, rows, strides, earlier calls, the input itself.

Those at far positions are in far.py. Truth is what the pairs' rates predict, which were measured
at positions 0 .. 15 in the widest type that the function answers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from .allocations import measure_array_bytes, measure_tensor_bytes
from .far_positions import FarPositions, measure_far_positions
from .identification import Identification
from .length_dependence import SLOW_SECONDS, find_last
from .measured_function import MeasuredFunction, make_reference_call
from .pair_rotations import compute_difference, measure_blocks
from .pairs import Pairs
from .probe import DTYPES, FunctionProbe, NoAnswerError, RaisedError
from .properties import compare_heads, compute_limit, compute_rounding_limit
from .results import PropertyResults

__all__ = ["CallResults", "measure_beyond_config", "measure_calls"]

#: First positions of calls that do not begin at 0.
_STARTS = (7, 300, 3_000, 20_000, 100_000)
#: Tokens of a call that is compared with a short one: 16 * 272, because calls of 272 and 544 tokens
#: tell how much memory it would take.
_LONG_CALL = 4352
#: Bytes by which the long call may allocate more than the call of 544 tokens, in one tensor.
_MOST_BYTES = 2**26
#: Why a call cannot be compared with others.
_NOT_REPEATED = "the same call again gives another result"


@dataclass
class CallResults:
    """Results by name, and what the diagnoses need to know of them."""

    results: PropertyResults = field(default_factory=PropertyResults)
    far: FarPositions = field(default_factory=FarPositions)
    changed_dtypes: dict[str, str] = field(default_factory=dict)  # given -> got
    changed_inputs: list[str] = field(default_factory=list)  # names of arguments
    repeatable: bool = True  # the same call twice in a row gives the same
    stale: bool = False  # the answer of an earlier call at other positions came back
    alone: bool = False  # it is a single token that comes out wrong
    begun: int | None = None  # where a call began that is other than the same after position 0
    counted: bool = False  # and that it is what comes out at 0, 1, ...
    after: str = ""  # which earlier calls change a result
    mates: str = ""  # which batch-mates do
    alike: bool = False  # and that they are no different from the row itself
    between: str = ""  # two lengths whose calls differ at the same positions
    few: Tensor | None = None  # a short call's result, where longer ones have the same

    def measure(self, name: str, step: Callable[[], None]) -> None:
        """Take one step; a call that is refused in it ends this property and no other."""
        try:
            step()
        except NoAnswerError as problem:
            self.results.skip(name, f"it {problem}")


def measure_calls(
    seen: Sequence[MeasuredFunction], found: Sequence[Identification], before: Sequence[Tensor]
) -> list[CallResults]:
    """Of queries and keys, long and half-precision calls last: a poisoned cache would spoil others.

    before: the ``first_answers``.
    """
    every = [_measure_short_calls(study) for study in seen]
    for calls, study, config in zip(every, seen, found, strict=True):
        if study.pairs is not None and study.turning is not None:
            calls.far = measure_far_positions(study, study.pairs, config)
            calls.results.update(calls.far.results)
        else:
            for name in ("far", *DTYPES):
                if name != study.probe.form.dtype:
                    calls.results.skip(name, "no pairs rotate, so nothing says what is right there")
        _compare_dtypes(calls, study.probe)
    _measure_long_call(every, seen)
    for calls, study, first in zip(every, seen, before, strict=True):
        _measure_history(calls, study, first, compute_rounding_limit(study))
    return every


def _measure_short_calls(seen: MeasuredFunction) -> CallResults:
    calls, probe, limit = CallResults(), seen.probe, compute_limit(seen)
    calls.repeatable = seen.unrepeated <= compute_rounding_limit(seen)
    if probe.role == 0:
        calls.measure("input", lambda: _measure_input_change(calls, probe))
    _measure_positions_and_rows(calls, seen, limit)
    calls.measure("strides", lambda: _compare_strides(calls, probe, limit))
    calls.measure("kept", lambda: _measure_result_change(calls, probe))
    return calls


def _measure_positions_and_rows(calls: CallResults, seen: MeasuredFunction, limit: float) -> None:
    calls.measure("length", lambda: _compare_call_lengths(calls, seen, limit))
    calls.measure("offset", lambda: _compare_offsets(calls, seen, limit))
    calls.measure("batch", lambda: _compare_batches(calls, seen, limit))


def _compare_call_lengths(calls: CallResults, seen: MeasuredFunction, limit: float) -> None:
    """Compare positions 0 .. 9 in calls of different lengths, made one after the other.

    A call of eleven tokens, one of many tokens that ends at position 10 too, and one that ends at
    15. Past that, frequencies may follow the context.
    """
    probe, lengths = seen.probe, seen.lengths
    x, run = _draw_vectors(probe, 1), range(11)
    if probe.addressing != "each" and lengths is not None and lengths.short_up_to is not None:
        calls.results.skip("length", "frequencies follow the context, which is the call's length")
        return
    few = probe.wide(x.expand(1, 1, 11, -1), torch.arange(11))[0, 0]
    many = probe.turned(x, run)[:, 0]
    tokens = probe.latest_length
    longer = probe.turned(x, range(16))[:, 0]
    again = probe.wide(x.expand(1, 1, 11, -1), torch.arange(11))[0, 0]
    if compute_difference(few, again) > limit:
        calls.results.skip("length", _NOT_REPEATED)
        return
    for other, words in (
        (many, f"a call of 11 tokens and one of {tokens}"),
        (longer, "a context of 11 tokens and one of 16"),
    ):
        error = compute_difference(few[:10], other[:10])
        calls.results.add("length", error, limit)
        if error > limit:
            calls.between = words
            return
    calls.few = few


def _measure_long_call(every: Sequence[CallResults], seen: Sequence[MeasuredFunction]) -> None:
    """Compare positions 0 .. 9 in a call of very many tokens, none of them at a further position.

    Not where shorter calls differ already. The short call again tells what the long one left
    behind, which is a matter of ``history``, from what the length does.
    """
    probe = seen[0].probe
    studies = zip(every, seen, strict=True)
    undecided = [(c, s) for c, s in studies if c.few is not None and not c.far.tokens]
    if probe.addressing != "each" or not undecided:
        return

    def ask(tokens: int) -> list[Tensor]:
        x, at = _draw_vectors(probe, 1).expand(1, 1, tokens, -1), torch.arange(tokens).clamp(max=10)
        return [out[0, 0, :11].to(torch.float64, copy=True) for out in probe.ask(x, at)]

    why, long = f"would take more than {SLOW_SECONDS:g} s", list[Tensor]()
    try:
        if every[0].far.seconds * _LONG_CALL <= SLOW_SECONDS:
            why = f"would allocate {_MOST_BYTES >> 20} MiB more than a call of {_LONG_CALL // 8}"
            if _predict_growth(probe, ask) <= _MOST_BYTES:
                long = ask(_LONG_CALL)
    except NoAnswerError as problem:
        why = str(problem)
    for calls, study in undecided:
        roles = [study.probe.role] if len(every) > 1 else range(len(long))  # alone, it is for both
        if not long:
            calls.results.skip("length", f"in a call of {_LONG_CALL:,} tokens it {why}")
            continue
        own, limit = roles.index(study.probe.role), compute_limit(study)
        step = partial(_compare_long_call, calls, own, limit, [long[role] for role in roles])
        calls.measure("length", partial(step, lambda n, roles=roles: [ask(n)[r] for r in roles]))


def _predict_growth(probe: FunctionProbe, ask: Callable[[int], list[Tensor]]) -> float:
    """Bytes that the long call would allocate at once beyond those of a call of 544 tokens.

    Two shorter calls tell: memory grows by a power of the tokens. A table grows by the power 0,
    results by 1, and a function that builds a matrix [T, T] by 2.
    """
    measure = measure_tensor_bytes if probe.form.library == "torch" else measure_array_bytes
    short, double = (max(1, measure(partial(ask, _LONG_CALL // n))) for n in (16, 8))
    return double * ((double / short) ** 3 - 1)


def _compare_long_call(
    calls: CallResults,
    own: int,
    limit: float,
    long: list[Tensor],
    ask: Callable[[int], list[Tensor]],
) -> None:
    """Judge what a long call gave; ask: the first results of a call of so many tokens.

    own: which of the results is that of ``calls``.
    """
    assert calls.few is not None
    few = ask(len(calls.few))

    def change(many: list[Tensor]) -> float:
        return max(compute_difference(a[:10], b[:10]) for a, b in zip(few, many, strict=True))

    if compute_difference(calls.few, few[own]) > limit:
        calls.results.skip("length", _NOT_REPEATED)
    elif (error := change(long)) > limit:
        same = find_last(len(calls.few), _LONG_CALL, lambda n: change(ask(n)) <= limit)
        last = f"one of {_LONG_CALL:,} (one of {same:,} is still the same)"
        calls.between = f"a call of {len(calls.few)} tokens and {last}"
        calls.results.add("length", error, limit)


def measure_beyond_config(seen: MeasuredFunction, before: Tensor) -> PropertyResults:
    """What no config can say: heads, pieces, rows and earlier calls that change the result."""
    calls, limit = CallResults(), compute_limit(seen)
    calls.results.add("heads", compare_heads(seen), limit)
    _measure_positions_and_rows(calls, seen, limit)
    _measure_long_call([calls], [seen])
    _measure_history(calls, seen, before, compute_rounding_limit(seen))
    return calls.results


def _draw_vectors(probe: FunctionProbe, *shape: int, seed: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, probe.head_dim, generator=generator).double()


def _measure_input_change(calls: CallResults, probe: FunctionProbe) -> None:
    """How much each argument changes by being passed."""
    length = probe.next_length()
    x = _draw_vectors(probe, 2, 2, length).to(DTYPES[probe.form.dtype])
    given = probe.arguments(x, torch.arange(length))
    before = {name: tensor.clone().double() for name, tensor in given.items()}
    probe.call(given)
    changes = {name: compute_difference(given[name].double(), before[name]) for name in given}
    calls.changed_inputs = [name for name, change in changes.items() if change]
    calls.results.add("input", max(changes.values()), 0.0)


def _compare_offsets(calls: CallResults, seen: MeasuredFunction, limit: float) -> None:
    """Positions 0 .. T - 1, then as many from 7 on: the second must not be the first again.

    And position 7 alone, as in a decode step.
    """
    probe = seen.probe
    x = _draw_vectors(probe, 1).expand(1, 1, 13, -1)
    whole = probe.turned(x[0, 0, :1], range(7, 20))[:, 0]
    begun = probe.wide(x, torch.arange(13))[0, 0]
    try:
        piece = probe.wide(x, torch.arange(7, 20))[0, 0]
        single = probe.wide(x[:, :, :1], torch.tensor([7]))[0, 0]
    except NoAnswerError:
        calls.results.add("offset", math.inf, limit)
        return
    error = compute_difference(piece, whole)
    calls.stale = error > limit and compute_difference(piece, begun) <= limit
    if probe.addressing == "none":
        calls.stale = True
    elif error <= limit:
        error = max(error, compute_difference(single[0], whole[0]))
        calls.alone = error > limit
    if error <= limit and seen.pairs is not None:
        error = max(error, _compare_later_starts(calls, seen, seen.pairs, limit))
    calls.results.add("offset", error, limit)


def _compare_later_starts(
    calls: CallResults, seen: MeasuredFunction, pairs: Pairs, limit: float
) -> float:
    """Calls that begin at some position, against the same with position 0 before it."""
    probe, lengths = seen.probe, seen.lengths
    assert lengths is not None
    end = lengths.reach if lengths.short_up_to is None else lengths.short_up_to
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
            calls.begun = start
            calls.counted = (
                compute_difference(piece, measure_blocks(probe, pairs, range(8))) <= limit
            )
            return error
    return 0.0


def _compare_batches(calls: CallResults, seen: MeasuredFunction, limit: float) -> None:
    """Two rows alone and together, the second far along (or as far, where rows share places).

    And the first as every row of a large batch, which is how basis vectors are asked for.
    """
    probe, far = seen.probe, 40
    if seen.lengths is not None:
        short, reach = seen.lengths.short_up_to, seen.lengths.reach
        far = max(4, min(500 if short is None else 3 * short, reach - 20))
    far = far if probe.rows else 0
    x = _draw_vectors(probe, 2, 1, 9)
    at = torch.stack((torch.arange(9), torch.arange(9) + far))
    ask = probe.wide_rows if probe.rows else lambda x, at: probe.wide(x, at[0])
    try:
        probe.turned(x[:1, 0, 0], range(8))  # a short call, for those that keep the longest length
        alone = torch.cat((ask(x[:1], at[:1]), ask(x[1:], at[1:])))
        probe.turned(x[:1, 0, 0], range(8))
        together = ask(x, at)
        crowd = ask(x[:1].expand(probe.head_dim, -1, -1, -1), at[:1].expand(probe.head_dim, -1))
        probe.turned(x[:1, 0, 0], range(8))
        again = ask(x[:1], at[:1])
    except NoAnswerError as problem:
        calls.results.skip("batch", f"with rows at positions 0 and {far} it {problem}")
        return
    if compute_difference(again, alone[:1]) > limit:
        calls.results.skip("batch", _NOT_REPEATED)
        return
    errors = [compute_difference(a, b) for a, b in zip(alone, together, strict=True)]
    places = (far, 0) if errors[0] > limit else (0, far)
    calls.mates = f"a row at positions {places[0]} to {places[0] + 8}"
    if max(errors) <= limit:
        errors.append(compute_difference(crowd, alone[:1].expand_as(crowd)))
        calls.mates, calls.alike = f"{probe.head_dim - 1} rows like it", True
    calls.results.add("batch", max(errors), limit)


def _compare_strides(calls: CallResults, probe: FunctionProbe, limit: float) -> None:
    """[B, T, H, D] transposed, as a projection gives it, against a copy in order."""
    length = probe.next_length()
    x = _draw_vectors(probe, 2, length, 3).to(DTYPES[probe.form.dtype]).transpose(1, 2)
    at = torch.arange(length)
    ordered = probe.wide(x.contiguous(), at)
    given = probe.arguments(x, at, keys=x.transpose(1, 2).clone().transpose(1, 2))
    try:
        out = probe.call(given)[probe.role].double()
    except RaisedError as problem:
        calls.results.skip("strides", f"it takes contiguous tensors only: it {problem}")
        return
    calls.results.add("strides", compute_difference(out, ordered), limit)


def _measure_result_change(calls: CallResults, probe: FunctionProbe) -> None:
    """A result, before and after another call of the same shape."""
    length = probe.next_length()
    x, other = (_draw_vectors(probe, 1, 2, length, seed=seed) for seed in (7, 8))
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
            out = probe.ask(_draw_vectors(probe, 1, 1, length), torch.arange(length), dtype)[
                probe.role
            ]
        except NoAnswerError:
            continue
        if out.dtype != DTYPES[dtype]:
            changed[dtype] = str(out.dtype).removeprefix("torch.")
    calls.results.add("dtype", float(len(changed)), 0.0)


def _measure_history(
    calls: CallResults, seen: MeasuredFunction, before: Tensor, limit: float
) -> None:
    """The first answer again, after calls elsewhere, longer ones and ones in half precision."""
    probe, lengths = seen.probe, seen.lengths
    error = calls.far.left_behind
    try:
        error = max(error, compute_difference(make_reference_call(probe)[probe.role], before))
    except NoAnswerError:
        error = math.inf  # it answered this call before
    if error > limit:
        calls.after = "calls at other positions, lengths and dtypes"
    if math.isfinite(error) and lengths is not None and lengths.past and probe.addressing == "each":
        short, long = lengths.past[0][0], lengths.past[-1][0]
        latest = probe.latest_length
        fresh = _ask_in_context(probe, short, None, latest)
        moved = compute_difference(fresh, _ask_in_context(probe, short, long, latest))
        if moved > limit:
            calls.after = f"a context of {long} tokens before one of {short}"
        error = max(error, moved)
    calls.results.add("history", error, limit)


def _ask_in_context(probe: FunctionProbe, length: int, earlier: int | None, latest: int) -> Tensor:
    """A vector within a context of ``length``, after a short call and perhaps a longer one.

    The call itself has the number of tokens that comes after ``latest``: the same every time.
    """
    x, run = _draw_vectors(probe, 1), range(8)
    probe.turned(x, run)
    if earlier is not None:
        probe.turned(x, [*run, earlier - 1])
    with probe.repeat_lengths(latest):
        return probe.turned(x, [*run, length - 1])[:8]
