"""The verdict: two sentences that say what the numbers say, and no more."""

import math
import re
from typing import Any

import pytest

from tests.plots.lab_document import comparison
from whorl.lab.compare import noise
from whorl.lab.compare._view import ComparisonView
from whorl.lab.compare.verdict import write_verdict

SETTLED = "after 350 steps, as after a third of them,"
SIZE = "(1 seed, 3 layers, width 96, 350 steps)."
BEST_NEAR = "At the trained length of 128 bytes rope is best with 1.89 nats per byte"


@pytest.fixture(autouse=True)
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every two rows may differ by 0.1 with another seed."""
    set_noise(monkeypatch, steady=0.1, rising=0.1)


def set_noise(monkeypatch: pytest.MonkeyPatch, **differences: float) -> None:
    table = {kind: {"1": value / 2 / 2**0.5} for kind, value in differences.items()}
    monkeypatch.setattr(noise, "_load_noise", lambda: table)


def verdict(document: dict[str, Any]) -> str:
    return write_verdict(ComparisonView(document))


def sentences(document: dict[str, Any]) -> tuple[str, str]:
    first, second = re.split(r"(?<=[a-z0-9)%])\. (?=[A-Z])", verdict(document))
    return f"{first}.", second


def put(document: dict[str, Any], name: str, near: float | None, far: float | None) -> None:
    """Set the values of a row at the trained and at the longest length, as with fewer steps."""
    found = next(row for row in document["rows"] if row["name"] == name)
    for length, value in ((128, near), (2048, far)):
        found["by_length"][str(length)] = {
            "mean": value,
            "low": None,
            "high": None,
            "seeds": [value],
        }
        found["third"][str(length)] = value


def test_those_that_keep_their_loss_and_how_rope_does() -> None:
    assert sentences(comparison()) == (
        f"For texts longer than trained, choose alibi or kerple: {SETTLED} at 2048 bytes, 16"
        " times the trained length, they stay within 0.1 nats of their loss at 128 bytes, with 2.08"
        " to 2.12 nats per byte; rope rises from 1.89 to 3.17.",
        f"{BEST_NEAR}, and xpos is too close to call {SIZE}",
    )


def test_before_they_have_settled() -> None:
    """With a third of the steps, learned positions were best at the trained length, by far."""
    first, second = sentences(comparison(settled=False))
    assert f"choose alibi or kerple: {SETTLED} at 2048 bytes" in first
    assert second.startswith(f"{BEST_NEAR}, which it was not after a third of the steps, and xpos")
    assert second.endswith(SIZE)


def test_who_was_best_at_the_longest_length_with_a_third_of_the_steps() -> None:
    document = comparison()
    kerple = next(row for row in document["rows"] if row["name"] == "kerple")
    for by, words in ((-0.09, SETTLED), (-0.2, "after 350 steps, and still changing,")):
        kerple["third"]["2048"] = 2.08 + by
        assert words in verdict(document)
    kerple["third"] = None
    assert "still changing" in verdict(document)


def test_who_was_best_at_the_trained_length_with_a_third_of_the_steps() -> None:
    document = comparison()
    xpos = next(row for row in document["rows"] if row["name"] == "xpos")
    words = f"{BEST_NEAR}, which it was not after a third of the steps, and xpos is too close"
    for by, said in ((-0.09, False), (-0.2, True)):
        xpos["third"]["128"] = 1.89 + by
        assert (words in verdict(document)) is said
        assert SETTLED in verdict(document)  # which is about the longest length


def test_who_may_pass_the_best_with_more_steps() -> None:
    """RoPE was 1.0 behind and is 0.5 behind: as much again, and it is level."""
    document = comparison(4)
    for name, before in (("learned", 3.0), ("rope", 2.4), ("sinusoidal", 2.6), ("nope", 1.4)):
        put(document, name, 1.9 if name != "nope" else 1.4, 2.5)
        row = next(row for row in document["rows"] if row["name"] == name)
        row["third"]["128"] = before
    _, second = sentences(document)
    assert second == (
        "At the trained length of 128 bytes nope is best with 1.40 nats per byte, and every other"
        f" row may pass it with more steps {SIZE}"
    )
    rope = next(row for row in document["rows"] if row["name"] == "rope")
    rope["third"]["128"] = 2.2  # 0.8 behind, so that it is still 0.2 behind with more steps
    assert "nats per byte, and sinusoidal and learned may pass it" in verdict(document)


def test_a_steady_row_that_may_pass_the_chosen_one() -> None:
    document = comparison()
    put(document, "kerple", 2.3, 2.35)
    assert SETTLED in verdict(document)
    kerple = next(row for row in document["rows"] if row["name"] == "kerple")
    kerple["third"].update({"128": 2.55, "2048": 2.6})
    assert "choose alibi: after 350 steps, and still changing," in verdict(document)


def test_noise_depends_on_whether_rows_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steady rows differ by little from seed to seed, those that rise by much."""
    set_noise(monkeypatch, steady=0.03, rising=0.5)
    document = comparison()
    put(document, "kerple", 2.1, 2.12)
    put(document, "alibi", 2.05, 2.08)
    first, second = sentences(document)
    assert "choose alibi: " in first
    assert "with no other row close to it" in second  # rope 1.89, xpos 1.93
    put(document, "kerple", 2.04, 2.12)  # rises by 0.08, but keeps its loss
    assert "choose alibi: " in verdict(document)


def test_every_row_to_choose_must_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """XPos, too far behind ALiBi, may pass Kerple, which is to be chosen too."""
    set_noise(monkeypatch, steady=0.057, rising=0.5)
    document = comparison()
    put(document, "alibi", 2.0, 2.0)
    put(document, "kerple", 2.03, 2.03)
    put(document, "xpos", 2.09, 2.09)
    assert f"choose alibi or kerple: {SETTLED}" in verdict(document)
    xpos = next(row for row in document["rows"] if row["name"] == "xpos")
    xpos["third"].update({"128": 2.11, "2048": 2.11})
    assert "choose alibi or kerple: after 350 steps, and still changing," in verdict(document)


def test_who_kept_its_loss_with_a_third_of_the_steps() -> None:
    document = comparison()
    nope = next(row for row in document["rows"] if row["name"] == "nope")
    nope["third"]["2048"] = nope["third"]["128"]
    assert "after 350 steps, and still changing," in verdict(document)
    for row in document["rows"]:
        row["third"] = None
    assert "choose alibi or kerple: after 350 steps, at 2048 bytes" in verdict(document)


def test_the_lowest_of_those_that_keep_their_loss() -> None:
    document = comparison()
    put(document, "kerple", 2.3, 2.35)
    assert sentences(document)[0] == (
        f"For texts longer than trained, choose alibi: {SETTLED} it has the lowest loss at 2048"
        " bytes, 16 times the trained length (2.08 nats per byte) of the rows that stay within"
        " 0.1 nats of their loss at 128 bytes (alibi and kerple); rope rises from 1.89 to 3.17."
    )


def test_a_scaling_that_its_encoding_does_not_need() -> None:
    document = comparison()
    put(document, "rope", 1.89, 1.92)
    put(document, "rope+yarn", 1.95, 1.96)
    first, _ = sentences(document)
    assert f"choose rope: {SETTLED}" in first
    assert "(rope, alibi and kerple)" in first
    put(document, "rope", 1.89, 1.98)  # here it helps
    assert "choose rope+yarn or rope: " in verdict(document)


def test_one_alone_keeps_its_loss() -> None:
    document = comparison()
    put(document, "kerple", 2.3, 2.75)
    first, _ = sentences(document)
    assert f"choose alibi: {SETTLED} at 2048 bytes, 16 times the trained length, it stays" in first
    assert "with 2.08 nats per byte;" in first


def test_rope_itself_keeps_its_loss() -> None:
    document = comparison()
    put(document, "rope", 1.89, 1.92)
    first, _ = sentences(document)
    assert first.startswith(f"For texts longer than trained, choose rope: {SETTLED} it has the")
    assert "(rope, alibi and kerple)." in first
    put(document, "rope", 2.3, 2.35)
    assert sentences(document)[0].endswith("; rope keeps its loss too, from 2.30 to 2.35.")
    put(document, "rope", 1.89, math.nan)
    assert sentences(document)[0].endswith("; rope has no finite loss.")
    put(document, "rope", None, 2.9)
    assert sentences(document)[0].endswith("; rope has 2.90.")


def test_a_row_that_rises_and_is_still_better() -> None:
    document = comparison()
    put(document, "xpos", 1.5, 1.75)
    first, second = sentences(document)
    assert "choose alibi or kerple" in first
    assert "; xpos rises from 1.50 to 1.75, which is better still; rope rises from" in first
    assert "xpos is best with 1.50 nats per byte, with no other row close to it" in second
    put(document, "xpos", 1.5, 2.05)  # better by less than another seed may change
    assert "xpos" not in sentences(document)[0]
    put(document, "rope", 1.2, 1.7)
    put(document, "xpos", 1.5, 2.5)
    first, _ = sentences(document)
    assert first.endswith("; rope rises from 1.20 to 1.70, which is better still.")


def test_without_rope() -> None:
    document = comparison()
    document["rows"] = [row for row in document["rows"] if not row["name"].startswith("rope")]
    first, second = sentences(document)
    assert first.endswith("with 2.08 to 2.12 nats per byte.")
    assert "xpos is best with 1.93 nats per byte, and alibi is too close to call" in second


def test_no_row_keeps_its_loss() -> None:
    document = comparison()
    document["rows"] = [r for r in document["rows"] if r["name"] not in ("alibi", "kerple")]
    assert sentences(document)[0] == (
        f"For texts longer than trained, choose none of these: {SETTLED} no row keeps its loss"
        " within 0.1 nats at 2048 bytes, 16 times the trained length, and the best there, xpos,"
        " rises from 1.93 to 2.37; rope rises from 1.89 to 3.17."
    )


def test_no_row_has_a_finite_loss() -> None:
    document = comparison(3)
    for row in document["rows"]:
        put(document, row["name"], None, math.inf)
    assert sentences(document) == (
        f"For texts longer than trained, choose none of these: {SETTLED} no row has a finite"
        " loss at 2048 bytes, 16 times the trained length.",
        f"At the trained length of 128 bytes no row has a finite loss {SIZE}",
    )


def test_a_rise_of_exactly_the_bound_is_kept() -> None:
    document = comparison()
    put(document, "kerple", 2.0, 2.125)
    assert "choose alibi:" in verdict(document)
    put(document, "kerple", 2.0, 2.09375)
    assert "choose alibi or kerple:" in verdict(document)


def test_one_row() -> None:
    document = comparison(1)
    assert sentences(document) == (
        f"For texts longer than trained, do not choose nope: {SETTLED} it rises from 2.21 to"
        " 2.85 at 2048 bytes, 16 times the trained length.",
        f"At the trained length of 128 bytes nope reaches 2.21 nats per byte {SIZE}",
    )
    put(document, "nope", 2.21, 2.22)
    assert (
        f"choose nope: {SETTLED} at 2048 bytes, 16 times the trained length, it stays"
        in verdict(document)
    )
    put(document, "nope", 2.21, None)
    assert f"do not choose nope: {SETTLED} it has no finite loss at 2048" in verdict(document)


def test_no_longer_text() -> None:
    document = comparison(2)
    document["settings"]["lengths"] = [64, 128]
    assert sentences(document) == (
        "No text longer than the 128 bytes of the training was evaluated, so this does not show"
        " which encoding to choose for longer ones.",
        f"At the trained length of 128 bytes, {SETTLED} nope is best with 2.21 nats per byte,"
        f" and sinusoidal is too close to call {SIZE}",
    )


def test_no_rows() -> None:
    document = {**comparison(), "rows": []}
    assert verdict(document) == "No run has finished, so there is nothing to compare yet."


def test_accuracy() -> None:
    document = comparison(measure="accuracy")
    assert sentences(document)[0] == (
        f"For texts longer than trained, choose none of these: {SETTLED} no row keeps its"
        " accuracy within 5 points at 2048 bytes, 16 times the trained length, and the best there,"
        " alibi, falls from 71.2 % to 63.1 %; rope falls from 92.3 % to 7.1 %."
    )
    put(document, "alibi", 0.712, 0.69)
    put(document, "nope", 0.3, 0.3)  # has not learned the task, so it is not chosen
    first, second = sentences(document)
    assert f"choose alibi: {SETTLED} at 2048 bytes" in first
    assert "it stays within 5 points of its accuracy at 128 bytes" in first
    assert ", with 69.0 %; rope falls from 92.3 % to" in first
    assert second == (
        "At the trained length of 128 bytes rope is best with 92.3 %, and xpos is too close to call"
        f" {SIZE}"
    )


def test_many_names_are_cut() -> None:
    document = comparison(30)
    for row in document["rows"]:
        put(document, row["name"], 2.0, 2.0)
    first, second = sentences(document)
    assert (
        "choose nope, sinusoidal, learned, rope, alibi, t5, kerple or 9 more:" in first
    )  # without scalings that change nothing
    assert "nope is best with 2.00 nats per byte, and sinusoidal, learned, rope and 12 more" in (
        second
    )  # without scalings, which are not trained


@pytest.mark.parametrize(
    ("seeds", "close"),
    [
        ([1.85, 2.05], True),  # once better, once worse: the difference may be 0
        ([1.94, 1.95, 1.93], False),  # always worse by about as much
        ([1.94, 1.8, 2.1], True),
    ],
)
def test_several_seeds_are_paired(seeds: list[float], close: bool) -> None:
    document = comparison(seeds=len(seeds))
    for row in document["rows"]:
        cell = row["by_length"]["128"]
        cell["seeds"] = [2.5] * len(seeds)
        if row["name"] == "rope":
            cell.update(mean=1.89, seeds=[1.89, 1.9, 1.88, 1.89][: len(seeds)])
        if row["name"] == "xpos":
            cell.update(mean=sum(seeds) / len(seeds), seeds=seeds)
    _, second = sentences(document)
    assert ("xpos is too close to call" in second) is close
    assert second.endswith(f"({len(seeds)} seeds, 3 layers, width 96, 350 steps).")


@pytest.mark.parametrize(("other", "close"), [([2.1, 2.1], False), ([2.2, 2.0], True)])
def test_two_seeds(other: list[float], close: bool) -> None:
    """A difference of 0.2 is beyond the noise, unless it is 0.4 in one seed and 0 in the other."""
    document = comparison(seeds=2)
    for row in document["rows"]:
        row["by_length"]["128"].update(mean=2.5, seeds=[2.5, 2.5])
    document["rows"][3]["by_length"]["128"].update(mean=1.9, seeds=[1.8, 2.0])
    document["rows"][8]["by_length"]["128"].update(mean=2.1, seeds=other)
    words = "xpos is too close to call" if close else "with no other row close to it"
    assert f"rope is best with 1.90 nats per byte, {'and ' * close}{words}" in verdict(document)


def test_pairs_are_of_the_same_seed() -> None:
    """Each row lacks another seed; in the three that both have, xpos is always 0.05 behind."""
    document = comparison(seeds=5)
    for row in document["rows"]:
        cell = row["by_length"]["128"]
        cell["seeds"] = [2.5] * 5
        if row["name"] == "rope":
            row["seeds"] = [0, 1, 2, 3]
            cell.update(mean=1.89, seeds=[1.80, 1.89, 1.98, 1.89])
        if row["name"] == "xpos":
            row["seeds"] = [1, 2, 3, 4]
            cell.update(mean=1.925, seeds=[1.94, 2.031, 1.939, 1.79])
            row["third"]["128"] = 1.925
    assert "rope is best with 1.89 nats per byte, with no other row" in verdict(document)


def test_models_that_have_not_learned_show_nothing() -> None:
    """They keep their loss at every length, because there is nothing to lose."""
    document = comparison()
    document["settings"]["frequencies_loss"] = 2.3
    assert verdict(document) == (
        "Choose nothing by this: no encoding has learned enough. After 350 steps the best one,"
        " rope, has 1.89 nats per byte at the trained length of 128 bytes, where token frequencies"
        f" alone give 2.30; train for more steps {SIZE}"
    )
    for row in document["rows"]:
        put(document, row["name"], None, None)
    assert "the best one, " in verdict(document)
    assert "has no finite loss at the trained length" in verdict(document)


def test_rows_that_have_not_learned_are_not_chosen() -> None:
    document = comparison()
    document["settings"]["frequencies_loss"] = 2.53  # kerple has 2.04, alibi 2.02
    assert "choose alibi: " in verdict(document)
    document["settings"]["frequencies_loss"] = None
    assert "choose alibi or kerple: " in verdict(document)
    task = comparison(measure="accuracy")
    assert "no encoding has learned" not in verdict(task)
    for row in task["rows"]:
        put(task, row["name"], 0.18, 0.18)  # a guess is right in 10 %
    found = verdict(task)
    assert "no encoding has learned enough. After 350 steps the best one, nope, has 18.0 %" in found
    assert "bytes, where guessing alone gives 10.0 %; train for more steps (1 seed, " in found
    put(task, "t5", 0.2, 0.2)
    assert "choose t5" in verdict(task)
