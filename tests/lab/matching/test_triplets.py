"""Triplets from JSON lines, made triplets, and folds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl.lab.matching import (
    Triplet,
    generated,
    make_triplets,
    read_triplets,
    split_fold,
    triplets,
)
from whorl.lab.matching.folds import group_texts, score_unread
from whorl.lab.matching.triplets import swap_triplet

LINE = {"A": "a text", "B": "near", "C": "far"}


def write_lines(path: Path, lines: list[Any]) -> Path:
    """A file with these documents; bytes are written as they are."""
    raw = [x if isinstance(x, bytes) else json.dumps(x, ensure_ascii=False).encode() for x in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def test_the_nearer_text_is_swapped_by_the_seed(tmp_path: Path) -> None:
    lines = [{"A": f"a{n}", "B": f"near{n}", "C": f"far{n}"} for n in range(200)]
    lines[7] = {"A": "a7", "B": "far7", "C": "near7", "label": "C"}
    path = write_lines(tmp_path / "triplets.jsonl", [lines[0], b"", *lines[1:]])
    found = read_triplets(path)
    assert found == read_triplets(path, seed=0)
    assert [one.anchor for one in found] == [f"a{n}" for n in range(200)]
    for n, one in enumerate(found):
        assert (one.first, one.second)[one.nearer] == f"near{n}"
        assert (one.first, one.second)[1 - one.nearer] == f"far{n}"
    assert 70 < sum(one.nearer for one in found) < 130
    other = read_triplets(path, seed=1)
    assert 60 < sum(a.nearer != b.nearer for a, b in zip(found, other, strict=True)) < 140
    alone = read_triplets(write_lines(tmp_path / "one.jsonl", [lines[50]]))
    assert alone == [found[50]]  # the other lines have no influence


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [LINE, {"A": "x", "B": "y"}],
            r"line 2: the field 'C' is missing; got the fields \['A', 'B'\]",
        ),
        ([{**LINE, "B": "  "}], "line 1: the field 'B' must be text that is not blank; got '  '"),
        ([{**LINE, "A": 3}], "line 1: the field 'A' must be text that is not blank; got 3"),
        ([{**LINE, "label": "D"}], "line 1: label must be 'B' or 'C', the nearer text; got 'D'"),
        ([[1]], r"line 1: it must be an object such as \{.*\}; got \[1\]"),
        ([LINE, b'{"A": '], "line 2: it is not JSON"),
        ([b'{"A": "\xff"}'], "line 1: it is not text"),
        ([b"[" * 50], "line 1: it is nested more than 8 deep; no triplet is"),
        ([b""], "has no triplets; give a file with some"),
    ],
)
def test_wrong_lines(lines: list[Any], message: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "triplets.jsonl", lines)
    with pytest.raises(ValueError, match=message):
        read_triplets(path)


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "triplets.jsonl", [LINE, {**LINE, "A": "x" * 5 * 2**20}])
    with pytest.raises(ValueError, match="line 2: a line may have 4,194,304 bytes, and this one"):
        read_triplets(path)
    write_lines(path, [LINE, {**LINE, "A": "\u539f" * 400_000}])
    with pytest.raises(ValueError, match=r"line 2: it has 1,.* with characters beyond ASCII"):
        read_triplets(path)
    write_lines(path, [LINE, LINE])
    monkeypatch.setattr(triplets, "_MOST_TRIPLETS", 1)
    with pytest.raises(ValueError, match="line 2: a file may have 1 triplets; give fewer"):
        read_triplets(path)
    monkeypatch.setattr(triplets, "_MOST_BYTES", 10)
    with pytest.raises(ValueError, match="must have at most 10 bytes; give a part of it"):
        read_triplets(path)
    with pytest.raises(ValueError, match="cannot be read: No such file or directory; check its"):
        read_triplets(tmp_path / "nothing.jsonl")


def find_group(text: str) -> int:
    """The group that most letters of a text belong to."""
    counts = [sum(text.count(letter) for letter in letters) for letters in generated.GROUPS]
    return counts.index(max(counts))


def answer(triplet: Triplet, cut: Callable[[str], str]) -> bool:
    """Whether a reader of a part of each text, who knows the groups, gives the right answer."""
    anchor, first, second = (find_group(cut(text)) for text in triplet.texts)
    if (first == anchor) == (second == anchor):
        return triplet.nearer == 0  # a guess
    return triplet.nearer == int(second == anchor)


def test_only_readers_of_the_second_half_can_answer() -> None:
    made = make_triplets(400, 512, seed=3)
    assert made == make_triplets(400, 512, seed=3)
    assert made != make_triplets(400, 512, seed=4)
    assert all(len(text) == 512 for one in made for text in one.texts)
    assert sum(answer(one, lambda text: text) for one in made) > 390
    assert sum(answer(one, lambda text: text[256:]) for one in made) == 400
    assert 160 < sum(answer(one, lambda text: text[:256]) for one in made) < 240
    assert 160 < sum(one.nearer for one in made) < 240


def test_made_texts_have_no_letters_in_common_with_the_anchor() -> None:
    for one in make_triplets(50, 300, seed=0):
        letters = [{x for x in text if ord(x) > 127} for text in one.texts]
        assert not letters[0] & (letters[1] | letters[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 128, 0), "make_triplets: count must be a whole number of at least 1; got 0"),
        ((1, 63, 0), "make_triplets: length must be a whole number of at least 64; got 63"),
        ((1, 128, -1), "make_triplets: seed must be a whole number of at least 0; got -1"),
    ],
)
def test_wrong_arguments(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_triplets(*arguments)


def test_folds_share_no_text() -> None:
    """Texts that several triplets have: those of a test are in no triplet that is trained on."""
    made = [Triplet(f"t{n}", f"t{(n + 1) % 60}", f"t{(n + 2) % 60}", n % 2) for n in range(60)]
    groups = group_texts(made, 5, seed=0)
    assert 10 <= min(map(len, groups)) <= max(map(len, groups)) <= 14
    assert set.union(*groups) == {f"t{n}" for n in range(60)}
    count = 0
    for fold in range(5):
        train, test = split_fold(made, fold)
        tested = {text for one in test for text in one.texts}
        count += len(test)
        assert not tested & {text for one in train for text in one.texts}
        assert len(train) > 35
    assert count > 25  # at random it would be 2
    first, again = (split_fold(made, 0, seed=seed)[1] for seed in (0, 1))
    assert first != again


def test_every_example_is_tested_once_where_none_share_a_text() -> None:
    made = make_triplets(53, 64, seed=0)
    folds = [split_fold(made, fold) for fold in range(5)]
    tested = [one for _, test in folds for one in test]
    assert sorted(one.anchor for one in tested) == sorted(one.anchor for one in made)
    assert [len(train) + len(test) for train, test in folds] == [53] * 5
    assert {len(test) for _, test in folds} == {10, 11}


def test_answers_that_shared_texts_give_away() -> None:
    """Text n is nearer than every text above it: A says nothing, the others do."""
    pairs = [(m, n) for n in range(12) for m in range(n)]
    made = [Triplet(f"a{n}", f"t{one}", f"t{two}", 0) for n, (one, two) in enumerate(pairs)]
    assert score_unread([swap_triplet(one, 0) for one in made]) > 0.75
    apart = [Triplet(f"a{n}", f"b{n}", f"c{n}", n % 2) for n in range(20)]
    assert score_unread(apart) == 0.5


def test_folds_that_cannot_be() -> None:
    made = make_triplets(6, 64, seed=0)
    with pytest.raises(ValueError, match="fold must be from 0 to 4; got 5"):
        split_fold(made, 5)
    message = (
        "fold 0 of 2 has 0 examples to train on and .* to test, because no text may be in both"
    )
    with pytest.raises(ValueError, match=message):
        split_fold([Triplet("a", "b", "c", 0), Triplet("b", "a", "c", 0)], 0, folds=2)
