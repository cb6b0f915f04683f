"""Timing of calls: alternately, short ones in loops, summarized by medians."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles

import torch

__all__ = ["Timing", "measure_calls", "prepare_allocator"]

TimedFunction = Callable[[], object]

# A longer call evicts its own data from the caches, so that a call before it warms nothing up.
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
    def from_samples(cls, seconds: Sequence[float], loops: int) -> "Timing":
        """The summary of samples, each of them the seconds of one call."""
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
    """Timings of ``calls``, one sample of each in every one of ``repeats`` rounds.

    Every round begins with another call than the round before. After the third round, a call whose
    samples have taken ``most_seconds`` in all is not timed any more.

    One call that is not timed precedes each sample, so that no contestant is slower because the one
    before it filled the caches. Garbage collection is off during the timing.
    """
    loops, brief = [], []
    for call in calls:
        count, seconds = _choose_loops(call, sample_seconds)
        loops.append(count)
        brief.append(seconds < _SHORT_CALL_SECONDS)
    samples: list[list[float]] = [[] for _ in calls]
    with _stop_garbage_collection():
        for number in range(repeats):
            for n in _list_order(len(calls), number):
                if number >= _LEAST_SAMPLES and sum(samples[n]) * loops[n] > most_seconds:
                    continue
                if brief[n]:
                    calls[n]()
                samples[n].append(_time_loops(calls[n], loops[n]))
    return [
        Timing.from_samples(seconds, count) for seconds, count in zip(samples, loops, strict=True)
    ]


def prepare_allocator() -> None:
    """Bring the memory allocator to the state that it has in a program that ran for a while.

    glibc returns a large freed block to the system, until blocks of that size have been freed
    before. Until then a new result may cost a page fault every 4 KiB, or not, depending on which
    contestant came first: at prefill-512 that was a factor of 4.
    """
    for megabytes in (1, 4, 16, 31):  # from 32 MiB on it always returns them
        torch.empty(megabytes << 20, dtype=torch.uint8)


def _choose_loops(call: TimedFunction, sample_seconds: float) -> tuple[int, float]:
    """Calls per sample, and the seconds of one call; the calls made here are the warm-up."""
    if (seconds := _time_loops(call, 1)) > _SHORT_CALL_SECONDS:
        return 1, seconds
    loops = 1
    while (seconds := _time_loops(call, loops)) * loops < sample_seconds and loops < 1 << 20:
        wanted = sample_seconds / max(seconds, 1e-9)
        loops = min(max(2 * loops, int(wanted)), 16 * loops)
    return loops, seconds


def _time_loops(call: TimedFunction, loops: int) -> float:
    numbers = range(loops)
    start = time.perf_counter()
    for _ in numbers:
        call()
    return (time.perf_counter() - start) / loops


def _list_order(count: int, first: int) -> list[int]:
    """The numbers below ``count``, beginning with ``first``: first, first + 1, ..., first - 1."""
    return [(n + first) % count for n in range(count)]


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
