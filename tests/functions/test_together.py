"""``whorl.check`` on functions with two faults: neither hides the other, and errors are true."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl

from . import hostile, mistakes
from .hostile import Two
from .mistakes import D, Function, sound


def large_batches_unrotated(fn: Function) -> Function:
    return lambda x, positions: fn(x, positions) if len(x) < 3 else x.clone()


def rows_share_their_mean(fn: Function) -> Function:
    return lambda x, positions: fn(x - 0.5 * (x.mean(0, keepdim=True) - x[:1]), positions)


#: Of every kind: maps, structure, dtypes, far positions, pieces, heads, gradients.
OTHERS: list[tuple[str, Function]] = [
    ("sign-reversed", mistakes.swapped_sign),
    ("layout-mixup", mistakes.half_pairs_repeated_tables),
    ("unusual-pairs", mistakes.half_pairs_cut_wrong),
    ("not-pairs", mistakes.all_channels_mixed),
    ("not-linear", mistakes.normalised),
    ("backward", mistakes.detached_wrongly),
    ("bf16-positions", mistakes.positions_in_bfloat16),
    ("half-tables", mistakes.tables_in(torch.float16)),
    ("far-positions", mistakes.table_ends),
    ("dtype-differs", hostile.backwards_in_bfloat16),
    ("call-length", hostile.base_by_tokens),
    ("single-token", hostile.single_token_at_zero),
    ("heads-differ", hostile.heads_from_the_fifth_on),
]


@pytest.mark.parametrize("shared", [large_batches_unrotated, rows_share_their_mean])
@pytest.mark.parametrize(("other", "fn"), OTHERS, ids=[other for other, _ in OTHERS])
def test_rows_that_change_each_other_hide_nothing(
    shared: Callable[[Function], Function], other: str, fn: Function
) -> None:
    found = {diagnosis.id for diagnosis in whorl.check(shared(fn), D).diagnoses}
    assert found == {"batch-mates", other}


def test_what_is_larger_than_the_noise_is_named() -> None:
    def heads(x: Tensor, positions: Tensor) -> Tensor:
        return hostile.heads_from_the_fifth_on(x, positions) + 1e-3 * torch.randn_like(x)

    def swapped(q: Tensor, k: Tensor, positions: Tensor) -> Two:
        noise = 1e-3 * torch.randn_like(q)
        return sound(k, positions) + noise, sound(q, positions) + noise

    for fn, kind, other in ((heads, "x", "heads-differ"), (swapped, "qk", "outputs-swapped")):
        kinds: Any = kind
        found = {diagnosis.id for diagnosis in whorl.check(fn, D, kind=kinds).diagnoses}
        assert found == {"not-repeatable", other}


def test_sizes_that_change_do_not_hide_what_is_kept() -> None:
    seen: list[torch.dtype] = []

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        seen.append(x.dtype)
        return mistakes.growing(x, positions + (torch.float16 in seen))

    found = {diagnosis.id for diagnosis in whorl.check(fn, D).diagnoses}
    assert found == {"position-dependent-norm", "history"}


def test_no_pairs_do_not_hide_that_positions_are_ignored() -> None:
    def fn(x: Tensor, positions: Tensor) -> Tensor:
        return (x * (1 + torch.arange(x.shape[2]).to(x.dtype))[:, None]).cumsum(-1)

    report = whorl.check(fn, D)
    assert {diagnosis.id for diagnosis in report.diagnoses} == {"not-pairs", "offset-ignored"}
    said = "no pairs rotate, so nothing predicts the right results"
    assert report.unmeasured == dict.fromkeys(("far", "float32", "bfloat16", "float16"), said)


def test_a_length_that_is_taken_for_the_batch_is_named_beside_the_call_length() -> None:
    def fn(x: Tensor, positions: Tensor) -> Tensor:
        return (
            hostile.base_by_context(x, positions) if positions.dim() == 1 else shared(x, positions)
        )

    def shared(x: Tensor, positions: Tensor) -> Tensor:
        base = 1e4 * (1 + float(positions.max()) / 512)
        return whorl.RoPE(D, base=base).rotate(x, positions)

    call, batch = whorl.check(fn, D).diagnoses
    assert (call.id, batch.id) == ("call-length", "batch-mates")
    assert "one length is used for the whole batch" in batch.words


def take_consecutive(x: Tensor, positions: Tensor) -> Tensor:
    """Take the first position and count on, in calls of more than 1,000 tokens."""
    many = x.shape[2] > 1000
    return sound(x, positions[:1] + torch.arange(x.shape[2]) if many else positions)


def take_first(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions[:1].expand(x.shape[2]) if x.shape[2] > 1000 else positions)


def end_at_900(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions.clamp(max=900) if x.shape[2] > 1000 else positions)


def take_first_for_keys(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return sound(q, positions), take_first(k, positions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "kind", "position"),
    [
        (take_consecutive, "x", "2,044"),
        (take_first, "x", "1"),
        (end_at_900, "x", "901"),
        (take_first_for_keys, "qk", "1"),
    ],
)
def test_the_length_is_not_ok_where_far_positions_depend_on_it(
    fn: Any, kind: Any, position: str
) -> None:
    """Calls at positions 0 to 10 give the same at every length."""
    report = whorl.check(fn, D, kind=kind)
    (said,) = report.diagnoses
    assert said.id == "call-length"
    assert f" tokens position {position} is wrong" in said.words
    measured = report.properties["length"]
    assert not measured.ok
    assert measured.error > report.limits["length"]
    assert "NO length " in str(report)
    assert report.identified is not None
    assert "the length of a call changes nothing" in " ".join(report.identified.departs)
    departs = " ".join(whorl.identify(fn, D, kind=kind).departs)
    said_of_x = f"from position {position} on in a call of 1,138 tokens, angles do not continue"
    assert (said_of_x if kind == "x" else "the length of a call changes nothing") in departs


def test_rows_of_equal_length_do_not_share_a_length() -> None:
    """Rows just like it change a row: that is not the length of the longest one."""
    rope = whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=64))

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        return rope.rotate(x, positions) if len(x) < 3 else x.clone()

    (said,) = whorl.check(fn, D).diagnoses
    assert "in a batch with 63 rows like it: rows share something" in said.words


@pytest.mark.slow
def test_the_worst_error_is_one_that_was_measured() -> None:
    """Far positions against the base that fits; sizes that wobble are not extrapolated."""
    report = whorl.check(hostile.taylor_sine, D)
    at = torch.arange(131_072)
    true = float(
        (
            hostile.taylor_sine(torch.ones(1, 1, 1, D).double().expand(1, 1, 131_072, D), at)
            - sound(torch.ones(1, 1, 1, D).double().expand(1, 1, 131_072, D), at)
        )
        .abs()
        .max()
    )
    assert true == pytest.approx(0.0752, abs=2e-4)
    assert report.properties["far"].error == pytest.approx(true, rel=0.02)
    assert report.properties["float32"].error == pytest.approx(true, rel=0.02)
    found = report.identified
    assert found is not None
    assert found.error == pytest.approx(true, rel=0.02)
    assert (found.base, found.precision, found.exact) == (1e4, "unknown", False)
    assert "the length of pairs varies by up to 0.0071" in found.departs[-1]
    assert "that of no float type" in str(found)
    assert "bfloat16 n" not in str(report.diagnoses)


def test_a_call_that_does_not_repeat_itself_says_nothing_about_lengths() -> None:
    """The base follows the largest number of tokens in all calls so far."""
    longest = [0]

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        longest[0] = max(longest[0], x.shape[2])
        return whorl.RoPE(D, base=1e4 * (1 + longest[0] / 512)).rotate(x, positions)

    report = whorl.check(fn, D)
    assert [diagnosis.id for diagnosis in report.diagnoses] == ["history"]
    for name in ("length", "batch"):
        assert report.unmeasured[name] == "the same call again gives another result"


class Tiring:
    """Backwards, and refuses calls of one length after so many of them."""

    def __init__(self, length: int, times: int) -> None:
        self.length, self.left = length, times

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[2] == self.length:
            self.left -= 1
            if self.left < 0:
                raise ValueError("enough")
        return sound(x, -positions)


@pytest.mark.parametrize(("length", "times", "name"), [(11, 4, "length"), (13, 0, "offset")])
def test_a_call_that_is_refused_ends_one_property_alone(length: int, times: int, name: str) -> None:
    report = whorl.check(Tiring(length, times), D)
    assert report.unmeasured[name] == "it raised ValueError: enough"
    assert report.properties["far"].ok
    found = {diagnosis.id: diagnosis.words for diagnosis in report.diagnoses}
    if length == 13:
        assert list(found) == ["sign-reversed"]
    else:  # eleven tokens were answered at first
        assert list(found) == ["sign-reversed", "history"]
        assert "the same call is refused or not finite. Something is kept" in found["history"]


def test_a_context_that_is_the_length_of_the_call_may_change_frequencies() -> None:
    rope = whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=64))
    report = whorl.check(lambda x, positions: rope.rotate(x, torch.arange(x.shape[2])), D)
    assert report.unmeasured["length"].startswith("frequencies depend on the context, which is")
    assert [diagnosis.id for diagnosis in report.diagnoses] == ["offset-ignored"]


def neither(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return torch.ones_like(q), torch.ones_like(k)


def keys_of_nothing(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), torch.ones_like(k)


def queries_of_nothing(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return torch.ones_like(q), sound(k, positions)


@pytest.mark.parametrize(
    ("fn", "first", "second"),
    [
        (neither, "neither q nor k", "neither q nor k"),
        (keys_of_nothing, "q alone", "neither q nor k"),
        (queries_of_nothing, "neither q nor k", "k alone"),
    ],
)
def test_a_result_that_is_made_of_nothing(fn: Any, first: str, second: str) -> None:
    """Nothing crosses over, so only that the right argument is ignored can show it."""
    report = whorl.check(fn, D, kind="qk")
    (said,) = (d.words for d in report.diagnoses if d.id == "roles-mixed")
    made = f"the first result is made of {first} and the second of {second}"
    assert said.startswith(f"An argument is ignored: {made}. The first must be made of q alone")
    assert report.properties["roles"] == (False, 1.0)
    assert made in " ".join(whorl.identify(fn, D, kind="qk").departs)
    assert math.isinf(whorl.identify(fn, D, kind="qk").error) or fn is not neither
