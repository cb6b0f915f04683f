"""Sampling: who is called how often and in which order; never how fast."""

import gc

import pytest
import torch

from whorl._support.threads import use_threads
from whorl.bench.measure import Timing, measure_calls


def test_contestants_take_turns_and_each_round_starts_with_another() -> None:
    order: list[str] = []
    calls = [lambda name=name: order.append(name) for name in "abc"]
    timings = measure_calls(calls, repeats=3, sample_seconds=0.0)
    assert [timing.samples for timing in timings] == [3, 3, 3]
    rounds = order[-18:]  # each sample is one call to warm up and one that is timed
    assert rounds[::2] == rounds[1::2] == [*"abc", *"bca", *"cab"]


def test_a_slow_contestant_stops_after_three_samples() -> None:
    calls = [lambda: None, lambda: None]
    timings = measure_calls(calls, repeats=5, sample_seconds=0.0, most_seconds=0.0)
    assert [timing.samples for timing in timings] == [3, 3]


def test_short_calls_are_looped() -> None:
    count = 0

    def call() -> None:
        nonlocal count
        count += 1

    timing = measure_calls([call], repeats=2, sample_seconds=1e-4)[0]
    assert timing.loops > 1
    assert count >= 2 * (timing.loops + 1)


def test_no_garbage_collection_while_sampling_and_restored_after_a_failure() -> None:
    seen = []
    measure_calls([lambda: seen.append(gc.isenabled())], repeats=1, sample_seconds=0.0)
    assert seen[-1] is False
    assert gc.isenabled()

    def fails() -> None:
        if not gc.isenabled():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_calls([fails], repeats=1, sample_seconds=0.0)
    assert gc.isenabled()


def test_timing_keeps_median_best_and_quartiles() -> None:
    timing = Timing.from_samples([5.0, 1.0, 3.0, 2.0, 4.0], loops=7)
    assert timing == Timing(median=3.0, best=1.0, lower=2.0, upper=4.0, samples=5, loops=7)
    assert Timing.from_samples([2.0], loops=1) == Timing(2.0, 2.0, 2.0, 2.0, 1, 1)


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    seen = []

    def fails() -> None:
        with use_threads(before + 1):
            seen.append(torch.get_num_threads())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == [before + 1]
    assert torch.get_num_threads() == before
