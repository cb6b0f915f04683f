"""Steps against numbers worked out by hand."""

import json
import math

import pytest

import whorl
from whorl.analysis import explain
from whorl.analysis.sizes import make_for_sizes, refuse_unused


def test_rope_by_hand() -> None:
    """RoPE(6) at position 3: theta = 1, 10000^(-1/3), 10000^(-2/3); pairs 0-3, 1-4, 2-5."""
    found = explain(whorl.RoPE(6), 3)
    pairs, angles, rotation, norms, relative, order = found.steps
    theta = [10_000.0 ** (-i / 3) for i in range(3)]
    assert [row[1] for row in pairs.rows] == ["0, 3", "1, 4", "2, 5"]
    assert [row[2] for row in pairs.rows] == pytest.approx(theta)
    assert [row[1] for row in angles.rows] == pytest.approx([3 * t for t in theta])
    assert [row[2] for row in angles.rows] == pytest.approx([math.degrees(3 * t) for t in theta])
    for i, (_, a, b, a2, b2, before, after) in enumerate(rotation.rows):
        assert (a, b) == (i + 1, i + 4)
        turned = complex(i + 1, i + 4) * complex(math.cos(3 * theta[i]), math.sin(3 * theta[i]))
        assert complex(float(a2), float(b2)) == pytest.approx(turned, abs=1e-6)
        assert after == pytest.approx(before, rel=1e-6)
    assert norms.rows[0][1:] == pytest.approx((math.sqrt(91), math.sqrt(91)), rel=1e-6)
    assert "the encoding is relative" in relative.words
    assert order.words.endswith("yes")
    assert found.formula == whorl.RoPE.card.formula


def test_the_other_layout_and_a_part_of_the_head() -> None:
    steps = explain(whorl.RoPE(8, layout="interleaved", rotary_dim=4, rotary_start=2), 1).steps
    assert [row[1] for row in steps[0].rows] == ["2, 3", "4, 5"]
    assert "channels outside 2 .. 5 do not change" in steps[0].words
    assert steps[2].rows[0][1:3] == (3.0, 4.0)


def test_a_scaling_with_an_attention_scale() -> None:
    rope = whorl.RoPE(8, scaling=whorl.YaRN(factor=4.0, original_context=16))
    steps = explain(rope, 3).steps
    assert "times the attention scale 1.13863" in steps[2].words
    before, after = steps[3].rows[0][1:]
    assert float(after) / float(before) == pytest.approx(0.1 * math.log(4) + 1)


@pytest.mark.parametrize("name", [*whorl.names(), "rope+alibi", "learned+rope"])
def test_every_encoding_is_explained_and_judged(name: str) -> None:
    encoding = make_for_sizes(name, num_heads=2, head_dim=8, max_length=64)
    found = explain(encoding, 5)
    text = json.dumps(found.to_dict())
    assert "NaN" not in text
    assert len(found.steps) >= 3
    assert all(step.words and (not step.rows or step.heads) for step in found.steps)
    assert all(len(row) == len(step.heads) for step in found.steps for row in step.rows)
    relative = all(part.card.relative for part in encoding.parts if part.card)
    assert ("it is not relative" in found.steps[-2].words) is not relative
    groups: dict[int, set[float]] = {}
    for _, _, difference, score in found.steps[-2].rows:
        groups.setdefault(int(difference), set()).add(round(float(score), 9))
    assert len(groups) == 3
    assert all(len(scores) == 1 for scores in groups.values()) is relative


def test_biases_and_vectors_come_from_the_module() -> None:
    rows = explain(whorl.ALiBi(2), 5).steps[0].rows
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4, 5, 8, 16, 32, 64]
    assert [row[1] for row in rows] == [-row[0] / 16 for row in rows]  # type: ignore[operator]
    vectors = explain(whorl.Sinusoidal(4), 7).steps[0]
    assert vectors.heads == ("channel", "p = 0", "p = 1", "p = 2", "p = 7")
    assert vectors.rows[0][4] == pytest.approx(math.sin(7))
    assert vectors.rows[3][4] == pytest.approx(math.cos(0.07))
    xpos = explain(whorl.XPos(4), 512).steps[0].rows
    assert xpos[0][3] == pytest.approx(0.4 / 1.4)
    assert xpos[0][4] == pytest.approx(1.4 / 0.4)


def test_positions_of_several_axes_are_said() -> None:
    steps = explain(whorl.MRoPE(8, sections=(2, 1, 1)), 3).steps
    assert steps[0].title == "1. Rotation at position (3, 4, 5)"
    assert "The 3 axes have different positions" in steps[0].words
    assert "key at n on all 3 axes" in steps[1].words
    assert "axes" not in explain(whorl.RoPE(4)).steps[4].words


def test_pairs_of_several_axes_say_which_they_follow() -> None:
    for encoding in (whorl.MRoPE(8, sections=(2, 1, 1)), whorl.AxialRoPE(8)):
        step = explain(encoding, 3).steps[0]
        assert step.heads[2:5] == ("axis", "theta", "degrees")
        for _, _, axis, theta, degrees, *_ in step.rows:
            turned = math.radians(degrees) - (3 + axis) * theta  # type: ignore[arg-type, operator]
            assert math.remainder(turned, math.tau) == pytest.approx(0.0, abs=1e-9)
    axes = [row[2] for row in explain(whorl.MRoPE(8, sections=(2, 1, 1)), 3).steps[0].rows]
    assert axes == [0, 0, 1, 2]
    assert {row[2] for row in step.rows} == {0, 1}


@pytest.mark.parametrize(
    ("encodings", "given", "message"),
    [
        (["alibi"], ["base"], r"x: 'alibi' does not use base; leave it out\. It uses heads\."),
        (["rope"], ["heads"], r"'rope' does not use heads; leave it out\. It uses dim and base\."),
        (["nope"], ["dim"], r"'nope' does not use dim; leave it out\. It has no sizes\."),
        (["t5", "nope"], ["dim"], r"'t5', 'nope' does not use dim"),
    ],
)
def test_options_that_nothing_uses(encodings: list[str], given: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refuse_unused(encodings, given, "x")
    refuse_unused([*encodings, "rope+alibi"], given, "x")
    refuse_unused(["unknown"], given, "x")  # making it is what raises


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("alibi", {"num_heads": 5000}, r"alibi: heads must be at most 4,096 here; got 5,000\."),
        ("rope", {"head_dim": 2**17}, r"rope: dim must be at most 65,536 here; got 131,072\."),
        ("learned", {"max_length": 2**32}, r"learned: length 4,294,967,296 needs .* shorter"),
        ("learned", {"max_length": 2**40}, r"Learned: max_length must be at most 2\^32"),
        ("transformer_xl", {"head_dim": 2**16}, r"an encoding of these sizes needs .* smaller one"),
    ],
)
def test_sizes_beyond_memory(name: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_for_sizes(name, **sizes)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), TypeError, r"explain: encoding must be a whorl\.Encoding; got 3\."),
        ((whorl.RoPE(4), -1), ValueError, r"position must be an int >= 0 and at most 16,777,216"),
    ],
)
def test_errors(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain(*arguments)  # type: ignore[arg-type]
