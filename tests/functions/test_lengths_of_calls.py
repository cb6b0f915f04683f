"""``whorl.check`` where results follow the length of a call: long calls, and what that hides."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whorl
from whorl.functions import far_positions

from .hostile import Two
from .mistakes import BASE, D, Function, angles_of, frequencies, rotate_half, sound, tiled, turn
from .test_hidden import Clock


def ids(report: Any) -> list[str]:
    return [diagnosis.id for diagnosis in report.diagnoses]


def with_base(x: Tensor, positions: Tensor, factor: float) -> Tensor:
    return turn(x, tiled(angles_of(positions, frequencies(BASE * factor))))


def base_follows_tokens_past(trained: int) -> Function:
    """Dynamic NTK that takes the number of tokens in the call for the context."""
    return lambda x, positions: with_base(x, positions, max(1.0, x.shape[2] / trained))


def scale_follows_tokens(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions) * (1.0 if x.shape[2] <= 3000 else 1.1)


def base_of_keys_follows_tokens(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), base_follows_tokens_past(4096)(k, positions)


def backwards_in_long_calls(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    sin = sin if q.shape[2] <= 2048 else -sin
    q, k = (x * cos[:, None] + rotate_half(x) * sin[:, None] for x in (q, k))
    return q, k


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "kind", "same"),
    [
        (base_follows_tokens_past(2048), "x", 2048),
        (base_follows_tokens_past(4096), "x", 4096),
        (base_follows_tokens_past(4300), "x", 4300),
        (scale_follows_tokens, "x", 3000),
        (base_of_keys_follows_tokens, "qk", 4096),
        (backwards_in_long_calls, "cos_sin", 2048),
    ],
)
def test_a_function_that_follows_the_length_of_long_calls_only(
    fn: Function, kind: Any, same: int
) -> None:
    report = whorl.check(fn, D, kind=kind)
    assert ids(report) == ["call-length"]
    words = f"a call of 11 tokens and one of 4,352 (one of {same:,} is still the same), while the"
    assert words in report.diagnoses[0].words
    assert ("Keys only." in report.diagnoses[0].words) == (fn is base_of_keys_follows_tokens)
    assert not report.properties["length"].ok
    found = whorl.identify(fn, D, kind=kind)
    assert not found.exact
    assert "the length of a call changes nothing" in " ".join(found.departs)


def test_a_table_that_a_long_call_replaces_is_history() -> None:
    """Made anew, for another base, when a call has more tokens than any before."""
    most, inv_freq = [2048], frequencies()

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[2] > most[0]:
            most[0] = x.shape[2]
            inv_freq.copy_(frequencies(BASE * most[0] / 2048))
        return turn(x, tiled(angles_of(positions, inv_freq)))

    report = whorl.check(fn, D)
    assert ids(report) == ["history"]
    assert report.unmeasured["length"] == "the same call again gives another result"


@pytest.mark.slow
def test_a_cache_that_long_calls_grow_is_sound() -> None:
    angles = tiled(angles_of(torch.arange(64), frequencies()))
    kept = [angles.cos(), angles.sin()]

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        needed = max(int(positions.max()) + 1, x.shape[2])
        if needed > len(kept[0]):
            more = tiled(angles_of(torch.arange(needed), frequencies()))
            kept[:] = [more.cos(), more.sin()]
        cos, sin = (table[positions].to(x.dtype) for table in kept)
        return x * cos + rotate_half(x) * sin

    report = whorl.check(fn, D)
    assert report.ok, str(report)
    assert report.unmeasured == {}


def test_a_long_call_that_is_refused_is_no_mistake() -> None:
    def fn(x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[2] > 4000:
            raise ValueError("4000 tokens at most")
        return sound(x, positions)

    report = whorl.check(fn, D)
    assert report.ok
    said = "in a call of 4,352 tokens it raised ValueError: 4000 tokens at most"
    assert report.unmeasured == {"length": said}
    assert f"not further: {said}" in " ".join(str(report).split())


def test_a_long_call_that_would_be_slow_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_positions, "time", Clock(1.0))
    tokens = []

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        tokens.append(x.shape[2])
        return sound(x, positions)

    report = whorl.check(fn, D)
    assert report.ok
    said = "in a call of 4,352 tokens it would take more than 2 s"
    assert report.unmeasured == {"length": said}
    assert max(tokens) < 2000


def rotate_by_matrices(x: Tensor, positions: Tensor) -> Tensor:
    """A matrix [D, D] for each token: 136 MiB in a call of 4,352."""
    angles = angles_of(positions, frequencies())
    cos, sin = torch.diag_embed(angles.cos()), torch.diag_embed(angles.sin())
    whole = torch.cat((torch.cat((cos, -sin), -1), torch.cat((sin, cos), -1)), -2)
    return torch.einsum("toi,bhti->bhto", whole, x.double()).to(x.dtype)


def compare_all_positions(x: Tensor, positions: Tensor) -> Tensor:
    """A matrix [T, T], of 144 MiB in a call of 4,352, which changes nothing."""
    same = (positions[:, None] == positions[None, :]).double()
    return sound(x, positions) + 0 * same.sum()


def rotate_arrays_by_matrices(x: Any, positions: Any) -> Any:
    if not isinstance(x, np.ndarray):
        raise TypeError("arrays only")
    angles = np.multiply.outer(positions, 10_000.0 ** -(np.arange(0, D, 2) / D))
    whole = np.zeros((len(positions), D, D))
    first, second = np.arange(D // 2), np.arange(D // 2, D)
    whole[:, first, first] = whole[:, second, second] = np.cos(angles)
    whole[:, second, first] = np.sin(angles)
    whole[:, first, second] = -np.sin(angles)
    return np.einsum("toi,bhti->bhto", whole, x).astype(x.dtype)


@pytest.mark.parametrize(
    "fn", [rotate_by_matrices, compare_all_positions, rotate_arrays_by_matrices]
)
def test_a_long_call_that_needs_much_memory_is_not_made(
    fn: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_positions, "time", Clock(0.0))
    tokens = []

    def counted(x: Any, positions: Any) -> Any:
        tokens.append(x.shape[2])
        return fn(x, positions)

    report = whorl.check(counted, D)
    assert report.ok, str(report)
    said = "in a call of 4,352 tokens it would allocate 64 MiB more than a call of 544"
    assert report.unmeasured.get("length") == said
    assert max(tokens) < 2000


@pytest.mark.slow
def test_a_large_table_is_no_reason_against_a_long_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not grow with the tokens of a call."""
    monkeypatch.setattr(far_positions, "time", Clock(0.0))
    angles = tiled(angles_of(torch.arange(131_080), frequencies()))
    tokens = []

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        tokens.append(x.shape[2])
        table = angles.double() + 0  # made again in every call: 64 MiB
        return turn(x, table[positions])

    assert whorl.check(fn, D).ok
    assert max(tokens) == 4352


@pytest.mark.parametrize("kind", ["x", "qk"])
def test_one_long_call_is_made(kind: Any) -> None:
    """For queries and keys together; all others have fewer than 2,000 tokens."""
    tokens = []

    def fn(*given: Tensor) -> Any:
        tokens.append(given[0].shape[2])
        turned = [sound(x, given[-1]) for x in given[:-1]]
        return turned[0] if len(turned) == 1 else turned

    assert whorl.check(fn, D, kind=kind).ok
    assert [n for n in tokens if n > 2000] == [4352]


@pytest.mark.slow
def test_a_context_that_is_a_run_of_many_tokens_may_change_frequencies() -> None:
    """Only the first position counts, so a context is as many tokens."""
    scaling = whorl.DynamicNTK(factor=2.0, original_context=4096)
    rope = whorl.RoPE(D, scaling=scaling)

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        return rope.rotate(x, positions[..., :1] + torch.arange(x.shape[2]))

    report = whorl.check(fn, D)
    assert report.ok, str(report)
    assert report.identified is not None
    assert report.identified.scaling == scaling


def following_tokens(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """``fn`` of x, positions and frequencies whose base follows the tokens of a call."""
    return lambda x, positions: fn(x, positions, frequencies(BASE * (1 + x.shape[2] / 512)))


def following_context(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """The same, for each row's largest position, from the first on."""

    def follows(x: Tensor, positions: Tensor) -> Tensor:
        if positions.dim() == 2:
            return torch.cat([follows(*row) for row in zip(x.split(1), positions, strict=True)])
        return fn(x, positions, frequencies(BASE * (1 + int(positions.max()) / 512)))

    return follows


def longest_kept(by_tokens: bool) -> Callable[[Any], Function]:
    """The same, for the most tokens, or the largest position, of all calls so far."""

    def made(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
        longest = [16]

        def follows(x: Tensor, positions: Tensor) -> Tensor:
            length = x.shape[2] if by_tokens else int(positions.max()) + 1
            longest[0] = max(longest[0], length)
            return fn(x, positions, frequencies(BASE * longest[0] / 16))

        return follows

    return made


def past_the_trained_length(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """The same, as dynamic scaling does it: for the context, past 200 tokens."""

    def follows(x: Tensor, positions: Tensor) -> Tensor:
        if positions.dim() == 2:
            return torch.cat([follows(*row) for row in zip(x.split(1), positions, strict=True)])
        stretch = max(1.0, (int(positions.max()) + 1) / 200)
        return fn(x, positions, frequencies(BASE * stretch))

    return follows


def rotate(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, inv_freq)))


def in_bfloat16(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    return rotate(x, positions.bfloat16().double(), inv_freq)


def in_float16(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    return rotate(x, positions.half().double(), inv_freq)


def table_ends(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    return rotate(x, positions.clamp(max=999), inv_freq)


def backwards_in_bfloat16(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    return rotate(x, -positions if x.dtype == torch.bfloat16 else positions, inv_freq)


def half_tables(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    angles = tiled(angles_of(positions, inv_freq))
    cos, sin = (table.half().double() for table in (angles.cos(), angles.sin()))
    return (x.double() * cos + rotate_half(x.double()) * sin).to(x.dtype)


def detached(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    return rotate(x.detach(), positions, inv_freq)


FOLLOWING = {
    "tokens": (following_tokens, ["call-length"]),
    "context": (following_context, ["call-length"]),
    "most-tokens": (longest_kept(by_tokens=True), ["history"]),
    "longest": (longest_kept(by_tokens=False), ["history", "batch-mates"]),
    "trained": (past_the_trained_length, []),
}
FAR: list[tuple[str, str, Any]] = [
    ("bf16-positions", "Wrong from position 257 on (inputs in float64, float32, ", in_bfloat16),
    ("fp16-positions", "Wrong from position 2049 on (inputs in float64, float32", in_float16),
    ("far-positions", "1,000 on: it gets the angles of position 999", table_ends),
    ("dtype-differs", "Inputs in bfloat16 give other results", backwards_in_bfloat16),
]


@pytest.mark.parametrize("follows", FOLLOWING)
def test_following_alone_adds_nothing(follows: str) -> None:
    make, known = FOLLOWING[follows]
    assert set(ids(whorl.check(make(rotate), D))) <= set(known)


#: Each mistake with two ways to follow the length, each way with at least one mistake.
TOGETHER = [
    *(("tokens", *far) for far in FAR),
    ("context", *FAR[0]),
    ("most-tokens", *FAR[0]),
    ("longest", *FAR[2]),
    ("trained", *FAR[1]),
    ("trained", *FAR[3]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("follows", "wanted", "words", "fn"), TOGETHER)
def test_what_follows_the_length_hides_nothing(
    follows: str, wanted: str, words: str, fn: Any
) -> None:
    make, known = FOLLOWING[follows]
    report = whorl.check(make(fn), D)
    found = {diagnosis.id: diagnosis.words for diagnosis in report.diagnoses}
    assert {*known[:1], wanted} <= set(found) <= {*known, wanted}
    assert words in found[wanted]
    if "In calls of" in found[wanted]:
        assert found[wanted].startswith("In calls of 256 tokens each: ")
    else:  # the first positions of a short call show it
        assert (follows, wanted) == ("trained", "dtype-differs")


@pytest.mark.parametrize("follows", ["tokens", "context"])
@pytest.mark.parametrize(
    ("wanted", "fn"), [("half-tables", half_tables), ("no-gradient", detached)]
)
def test_what_the_first_positions_show_is_named_beside_it(
    follows: str, wanted: str, fn: Any
) -> None:
    make, known = FOLLOWING[follows]
    assert set(ids(whorl.check(make(fn), D))) == {*known, wanted}


@pytest.mark.slow
def test_errors_at_far_positions_are_those_of_one_length() -> None:
    """A function that is right but for its lengths has none; a table's end has its own."""
    properties = whorl.check(following_tokens(rotate), D).properties
    assert all(properties[name].ok for name in ("far", "float32", "bfloat16", "float16"))
    assert not properties["length"].ok
    assert not whorl.check(following_tokens(table_ends), D).properties["far"].ok


def test_rows_tokens_and_half_types_are_three_mistakes() -> None:
    fn = following_tokens(in_bfloat16)

    def shared(x: Tensor, positions: Tensor) -> Tensor:
        return fn(x - 0.5 * (x.mean(0, keepdim=True) - x[:1]), positions)

    assert set(ids(whorl.check(shared, D))) == {"call-length", "batch-mates", "bf16-positions"}


@pytest.mark.slow
def test_queries_and_keys_are_looked_at_in_calls_of_one_length() -> None:
    queries, keys = following_tokens(rotate), following_tokens(in_bfloat16)
    report = whorl.check(lambda q, k, p: (queries(q, p), keys(k, p)), D, kind="qk")
    assert ids(report) == ["call-length", "bf16-positions"]
    said = "In calls of 256 tokens each: Keys only. Wrong from position 257 on"
    assert report.diagnoses[1].words.startswith(said)


def test_what_half_types_leave_behind_is_no_mistake_of_its_own() -> None:
    """Positions are off by one after a call in float16, so they are in all later ones."""
    seen: list[torch.dtype] = []
    fn = following_tokens(rotate)

    def left(x: Tensor, positions: Tensor) -> Tensor:
        seen.append(x.dtype)
        return fn(x, positions + (torch.float16 in seen))

    assert ids(whorl.check(left, D)) == ["call-length", "history"]


def test_a_cache_by_length_is_not_asked_in_calls_of_one_length() -> None:
    """All results would be those of the first call."""
    kept: dict[int, Tensor] = {}

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        inv_freq = frequencies(BASE * (1 + x.shape[2] / 512))
        return turn(x, kept.setdefault(x.shape[2], tiled(angles_of(positions, inv_freq))))

    assert ids(whorl.check(fn, D)) == ["call-length", "offset-ignored"]


def taylor(terms: int, inv_freq: Tensor) -> Function:
    """cos and sin as so many terms of their Taylor polynomials, within half a turn."""

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        angle = tiled(angles_of(positions, inv_freq))
        angle = angle - 2 * math.pi * torch.round(angle / (2 * math.pi))
        cos, sin = (
            sum(
                (-1) ** n * angle ** (2 * n + odd) / math.factorial(2 * n + odd)
                for n in range(terms)
            )
            for odd in (0, 1)
        )
        return (x.double() * cos + rotate_half(x.double()) * sin).to(x.dtype)

    return fn


@pytest.mark.parametrize(("terms", "base"), [(2, BASE), (3, BASE), (3, 12_345.0), (4, 5e5)])
def test_the_worst_error_of_an_approximation_is_true(terms: int, base: float) -> None:
    """Truth: the largest distance from a rotation of a unit vector, in all of half a turn."""
    angle = torch.tensor([[math.pi]], dtype=torch.float64)
    unit = torch.zeros(1, 1, 1, D, dtype=torch.float64)
    unit[..., 0] = 1
    fn = taylor(terms, frequencies(base))
    true = float((taylor(terms, angle.expand(1, D // 2)[0])(unit, torch.tensor([1])) + unit).norm())
    report = whorl.check(fn, D)
    (said,) = report.diagnoses
    assert said.id == "uneven-angles"
    number = float(said.words.split("differ from a rotation by up to ")[1].rstrip("."))
    assert number == pytest.approx(true, rel=0.05)
    assert report.identified is not None
    assert report.identified.base == base


def test_no_error_is_told_where_the_frequencies_are_not_known() -> None:
    """Measured ones are as rough as the function, so results against them are no error of it."""
    (said,) = whorl.check(taylor(3, torch.linspace(1, 0.1, D // 2).double()), D).diagnoses
    assert said.id == "uneven-angles"
    assert said.words.endswith("Are cos and sin approximated?")
