"""Timing: contestants take turns, short calls are looped, and medians are kept."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles

import torch

__all__ = ["Timing", "measure_calls", "settle_allocator", "use_threads"]

TimedFunction = Callable[[], object]

# A slower call finds nothing of its last run in the caches, so running it twice warms nothing.
_SHORT_CALL_SECONDS = 20e-3
_LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: median, best and quartiles over the samples."""

    median: float
    best: float
    lower: float
    upper: float
    samples: int
    loops: int

    @classmethod
    def of(cls, seconds: Sequence[float], loops: int) -> "Timing":
        """Summarise samples that are seconds for one call each."""
        lower, upper = seconds[0], seconds[0]
        if len(seconds) > 1:
            lower, _, upper = quantiles(seconds, n=4, method="inclusive")
        return cls(median(seconds), min(seconds), lower, upper, len(seconds), loops)


def measure_calls(
    calls: Sequence[TimedFunction],
    *,
    repeats: int,
    sample_seconds: float,
    most_seconds: float = math.inf,
) -> list[Timing]:
    """Time ``calls`` in ``repeats`` rounds; every round begins with the next contestant.

    A contestant whose samples have taken ``most_seconds`` sits out the rounds after the third.

    Before each sample comes one call that is not timed, so a contestant does not pay for the caches
    that the one before it filled. Garbage is not collected meanwhile.
    """
    loops, brief = [], []
    for call in calls:
        count, seconds = _choose_loops(call, sample_seconds)
        loops.append(count)
        brief.append(seconds < _SHORT_CALL_SECONDS)
    samples: list[list[float]] = [[] for _ in calls]
    with _stop_garbage_collection():
        for turn in range(repeats):
            for n in _list_order(len(calls), turn):
                if turn >= _LEAST_SAMPLES and sum(samples[n]) * loops[n] > most_seconds:
                    continue
                if brief[n]:
                    calls[n]()
                samples[n].append(_time_loops(calls[n], loops[n]))
    return [Timing.of(seconds, count) for seconds, count in zip(samples, loops, strict=True)]


def settle_allocator() -> None:
    """Bring the allocator to the state of a program that has run for a while.

    glibc hands large blocks back to the system when they are freed, and stops doing so for sizes it
    has seen freed before. Until then a fresh result may cost a page fault every 4 KiB, or not,
    depending on which contestant came first: at prefill-512 that was a factor of 4.
    """
    for megabytes in (1, 4, 16, 31):  # 32 MiB is where it always hands back
        torch.empty(megabytes << 20, dtype=torch.uint8)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _choose_loops(call: TimedFunction, sample_seconds: float) -> tuple[int, float]:
    """Calls per sample, and the seconds of one; the calls made here are the warm-up."""
    if (seconds := _time_loops(call, 1)) > _SHORT_CALL_SECONDS:
        return 1, seconds
    loops = 1
    while (seconds := _time_loops(call, loops)) * loops < sample_seconds and loops < 1 << 20:
        wanted = sample_seconds / max(seconds, 1e-9)
        loops = min(max(2 * loops, int(wanted)), 16 * loops)
    return loops, seconds


def _time_loops(call: TimedFunction, loops: int) -> float:
    turns = range(loops)
    start = time.perf_counter()
    for _ in turns:
        call()
    return (time.perf_counter() - start) / loops


def _list_order(count: int, turn: int) -> list[int]:
    return [(n + turn) % count for n in range(count)]


@contextmanager
def _stop_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
