"""Whether results depend on the number of tokens in a call."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from .allocations import measure_array_bytes, measure_tensor_bytes
from .call_results import NOT_REPEATED, CallResults, draw_vectors
from .length_dependence import SLOW_SECONDS, find_last
from .measured_function import MeasuredFunction
from .pair_rotations import compute_difference
from .probe import FunctionProbe, NoAnswerError
from .properties import compute_limit

__all__ = ["compare_call_lengths", "measure_long_call"]

#: Tokens of a call that is compared with a short one: 16 * 272, because calls of 272 and 544 tokens
#: tell how much memory it would take.
_LONG_CALL = 4352
#: Bytes by which the long call may allocate more than the call of 544 tokens, in one tensor.
_MOST_BYTES = 2**26


def compare_call_lengths(calls: CallResults, function: MeasuredFunction, limit: float) -> None:
    """Compare positions 0 .. 9 in a call of 11 tokens and in two longer ones.

    One of these also ends at position 10, the other at 15. Beyond 15, frequencies may depend on
    the context, which is no mistake.
    """
    probe, lengths = function.probe, function.lengths
    x, run = draw_vectors(probe, 1), range(11)
    if probe.addressing != "each" and lengths is not None and lengths.constant_up_to is not None:
        calls.results.skip(
            "length", "frequencies depend on the context, which is the length of the call"
        )
        return
    short = probe.ask_role(x.expand(1, 1, 11, -1), torch.arange(11))[0, 0]
    many = probe.rotate_vectors(x, run)[:, 0]
    tokens = probe.latest_length
    longer = probe.rotate_vectors(x, range(16))[:, 0]
    again = probe.ask_role(x.expand(1, 1, 11, -1), torch.arange(11))[0, 0]
    if compute_difference(short, again) > limit:
        calls.results.skip("length", NOT_REPEATED)
        return
    for other, words in (
        (many, f"a call of 11 tokens and one of {tokens}"),
        (longer, "a context of 11 tokens and one of 16"),
    ):
        error = compute_difference(short[:10], other[:10])
        calls.results.add("length", error, limit)
        if error > limit:
            calls.compared_lengths = words
            return
    calls.short_result = short


def measure_long_call(every: Sequence[CallResults], functions: Sequence[MeasuredFunction]) -> None:
    """Compare positions 0 .. 9 in a short call and in one of many tokens up to position 10.

    Only if shorter calls do not differ. The short call is repeated afterwards: if it differs, the
    long call changed later ones, which ``history`` reports.
    """
    probe = functions[0].probe
    measured = zip(every, functions, strict=True)
    undecided = [
        (c, s) for c, s in measured if c.short_result is not None and not c.far.wrong_call_tokens
    ]
    if probe.addressing != "each" or not undecided:
        return

    def ask(tokens: int) -> list[Tensor]:
        x, at = draw_vectors(probe, 1).expand(1, 1, tokens, -1), torch.arange(tokens).clamp(max=10)
        return [out[0, 0, :11].to(torch.float64, copy=True) for out in probe.ask(x, at)]

    why, long = f"would take more than {SLOW_SECONDS:g} s", list[Tensor]()
    try:
        if every[0].far.seconds_per_token * _LONG_CALL <= SLOW_SECONDS:
            why = f"would allocate {_MOST_BYTES >> 20} MiB more than a call of {_LONG_CALL // 8}"
            if _predict_growth(probe, ask) <= _MOST_BYTES:
                long = ask(_LONG_CALL)
    except NoAnswerError as problem:
        why = str(problem)
    for calls, function in undecided:
        # A single function is measured for both results.
        roles = [function.probe.role] if len(every) > 1 else range(len(long))
        if not long:
            calls.results.skip("length", f"in a call of {_LONG_CALL:,} tokens it {why}")
            continue
        own, limit = roles.index(function.probe.role), compute_limit(function)
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
    """Compare the results of a long call with those of a short one.

    ask: makes a call of a number of tokens. own: index of the result that ``calls`` is about.
    """
    assert calls.short_result is not None
    short = ask(len(calls.short_result))

    def change(many: list[Tensor]) -> float:
        return max(compute_difference(a[:10], b[:10]) for a, b in zip(short, many, strict=True))

    if compute_difference(calls.short_result, short[own]) > limit:
        calls.results.skip("length", NOT_REPEATED)
    elif (error := change(long)) > limit:
        same = find_last(len(calls.short_result), _LONG_CALL, lambda n: change(ask(n)) <= limit)
        last = f"one of {_LONG_CALL:,} (one of {same:,} is still the same)"
        calls.compared_lengths = f"a call of {len(calls.short_result)} tokens and {last}"
        calls.results.add("length", error, limit)
