"""``whorl.check`` and ``whorl.identify`` on what the first positions of short calls do not show."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.functions import measured_function

from .mistakes import D, Function, angles_of, frequencies, sound, tiled, turn


def angles(positions: Tensor) -> Tensor:
    return tiled(angles_of(positions, frequencies()))


def in_bfloat16(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, angles(positions).bfloat16().double())


def product_in_bfloat16(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(positions.bfloat16()[..., None] * frequencies().bfloat16()).double())


def in_float16(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, angles(positions).half().double())


def in_float16_clamped(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, angles(positions).clamp(-6e4, 6e4).half().double())


def from_the_smallest(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions - positions.amin(-1, keepdim=True))


def from_the_smallest_far_out(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions - positions.min() if positions.min() > 2048 else positions)


def one_late_where_zero_is_missing(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions + (positions.min() > 1000))


def by_head(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, angles(positions) / (1 + torch.arange(x.shape[1]).double().view(-1, 1, 1)))


def positions_ignored(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, torch.arange(x.shape[2]))


def first_row_for_all(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions if positions.dim() == 1 else positions[0])


def kept_by_length() -> Function:
    kept: dict[int, Tensor] = {}
    return lambda x, positions: turn(x, kept.setdefault(x.shape[2], angles(positions)))


def last_token_unrotated(x: Tensor, positions: Tensor) -> Tensor:
    return torch.cat((sound(x, positions)[:, :, :-1], x[:, :, -1:]), dim=2)


def small_batches_only(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions) if len(x) < 3 else x.clone()


def noisy(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions) + 1e-3 * torch.randn_like(x)


def dropout(x: Tensor, positions: Tensor) -> Tensor:
    return torch.nn.functional.dropout(sound(x, positions), 0.1)


def degrees(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, angles(positions) * math.pi / 180)


#: (diagnosis, words of its sentence, words of what identify says, function)
HIDDEN: list[tuple[str, str, str, Function]] = [
    (
        "half-angles",
        "every angle is a bfloat16 number although",
        "are rounded to half precision",
        in_bfloat16,
    ),
    (
        "half-angles",
        "differ from positions times frequencies by up to",
        "to half precision",
        product_in_bfloat16,
    ),
    ("half-angles", "every angle is a float16 number", "are rounded to half precision", in_float16),
    (
        "half-angles",
        "results at far positions by up to",
        "are rounded to half precision",
        in_float16_clamped,
    ),
    (
        "offset-ignored",
        "7 to 14 are rotated as 0 to 7, unless 0 is in the same call",
        "a piece at its offset equals the whole",
        from_the_smallest,
    ),
    (
        "offset-ignored",
        "3,000 to 3,007 are rotated as",
        "a piece at its",
        from_the_smallest_far_out,
    ),
    (
        "pieces-differ",
        "Positions 3,000 to 3,007 differ by",
        "a piece at its offset",
        one_late_where_zero_is_missing,
    ),
    ("heads-differ", "Heads with the same vector", "all heads rotate alike", by_head),
    ("offset-ignored", "Positions are ignored", "a piece at its offset", positions_ignored),
    ("batch-mates", "rows share something", "a row does not depend on", first_row_for_all),
    ("offset-ignored", "A cache ignores the offset", "a piece at its", kept_by_length()),
    ("pieces-differ", "Positions 7 to 19 differ", "a piece at its offset", last_token_unrotated),
    ("batch-mates", "in a batch with 63 rows like it", "a row does not", small_batches_only),
    ("not-repeatable", "dropout or noise", "the same call twice in a row differs by", noisy),
    ("not-repeatable", "dropout or noise", "the same call twice in a row differs by", dropout),
]


def named(value: Any) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "words", "departs", "fn"), HIDDEN, ids=named)
def test_a_hidden_mistake(wanted: str, words: str, departs: str, fn: Any) -> None:
    """Named alone, and what ``identify`` and the report say is not called exact."""
    report = whorl.check(fn, D)
    assert [d.id for d in report.diagnoses] == [wanted]
    assert words in report.diagnoses[0].words
    assert report.identified is not None
    for found in (whorl.identify(fn, D), report.identified):
        assert not found.exact
        assert departs in " | ".join(found.departs)


@pytest.mark.parametrize("fn", [in_bfloat16, product_in_bfloat16, in_float16, in_float16_clamped])
def test_far_positions_fail_where_angles_are_rough(fn: Any) -> None:
    report = whorl.check(fn, D)
    assert not report.properties["far"].ok
    assert report.limits["far"] < 0.1


def test_limits_can_be_missed() -> None:
    """No result is further from another than twice its size, so more must not be allowed."""

    def tables_in_half(x: Tensor, positions: Tensor) -> Tensor:
        turned = angles(positions)
        cos, sin = (table.bfloat16().to(x.dtype) for table in (turned.cos(), turned.sin()))
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def in_half_only(x: Tensor, positions: Tensor) -> Tensor:
        if x.dtype != torch.float16:
            raise TypeError("float16 only")
        return sound(x, positions)

    for fn, name in ((tables_in_half, "bfloat16"), (in_half_only, "float16")):
        report = whorl.check(fn, D)
        assert report.limits["far"] <= 0.5
        assert report.unmeasured["far"].startswith("not judged from position ")
        assert report.unmeasured["far"].endswith(f"on: {name} hides the frequencies")


def test_degrees_are_not_a_scaling() -> None:
    (said,) = whorl.check(degrees, D).diagnoses
    assert said.id == "degrees"
    assert "57.2958 = 180 / pi times too small" in said.words
    assert whorl.check(whorl.RoPE(D, scaling=whorl.Linear(57.0)).rotate, D).ok


def test_a_list_is_no_rule() -> None:
    """It is a rotation, so nothing is wrong; but that a rule gives all was not found."""
    one_off = frequencies().clone()
    one_off[7] *= 1.01

    def fn(x: Tensor, positions: Tensor) -> Tensor:
        return turn(x, tiled(angles_of(positions, one_off)))

    report = whorl.check(fn, D)
    assert report.ok
    assert "frequencies" not in report.properties
    assert report.unmeasured["frequencies"].startswith("no rule is known that gives them")
    (note,) = whorl.identify(fn, D).notes
    assert "all 32 are listed; all but pairs 7 would fit base 10,000" in note

    def spread(x: Tensor, positions: Tensor) -> Tensor:
        return turn(x, tiled(angles_of(positions, torch.linspace(1, 0.1, 32).double())))

    (note,) = whorl.identify(spread, D).notes
    assert note == "no rule is known that gives these frequencies: all 32 are listed"


def test_keys_at_flipped_positions_are_identified() -> None:
    """Keys of which the first stands still in every call."""
    found = whorl.identify(lambda q, k, p: (sound(q, p), sound(k, p.flip(-1))), D, kind="qk")
    assert not found.exact
    assert found.keys is not None


class Clock:
    """Seconds that pass by call, so that no test depends on the machine."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def perf_counter(self) -> float:
        self.now += self.step
        return self.now


def clamped(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions.clamp(max=60_000))


def test_a_slow_function_is_measured_as_far_as_a_fast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_function, "time", Clock(0.3))
    report = whorl.check(clamped, D)
    assert [d.id for d in report.diagnoses] == ["far-positions"]


def test_what_was_too_slow_to_ask_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_function, "time", Clock(3.0))
    said = "not asked past position 31: the call took more than 2 s"
    report = whorl.check(clamped, D)
    assert report.unmeasured["far"] == said
    assert said in " ".join(str(report).split())
    assert said in whorl.identify(clamped, D).notes
