"""Hidden statements: where they are, what is asked, and the exact number of tokens."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.lab.retrieval import (
    RETRIEVAL_FORMS,
    build_retrieval_text,
    check_form,
    make_retrieval_rows,
)
from whorl.lab.tasks import RandomBits

every_form = pytest.mark.parametrize("form", RETRIEVAL_FORMS)


def encode_bytes(text: str) -> list[int]:
    return list(text.encode())


def encode_pieces(text: str) -> list[int]:
    """A tokenizer of runs of letters, of single digits, and of up to three other characters."""
    pieces = re.findall(r" ?[A-Za-z]+|\d|[^A-Za-z\d]{1,3}", text)
    return [int.from_bytes(piece.encode(), "big") for piece in pieces]


def write(form: str, count: int, depth: float, seed: int = 0) -> tuple[str, list[str]]:
    """The text, and the answers that its spans hold."""
    found = build_retrieval_text(encode_bytes, form, count, depth, RandomBits(form, seed))
    text = bytes(found.tokens).decode()
    assert len(text) == count
    return text, [text[first:end] for first, end in found.spans]


def solve(form: str, text: str) -> list[str]:
    """The answers, found by reading."""
    if form != "variable_tracking":
        asked = re.search(r"What is the (\w+) key\?", text)
        assert asked is not None
        (key,) = re.findall(rf"The {asked[1]} key is (\d{{5}})\. ", text)
        return [f" {key}"]
    asked = re.search(r"the value (\d{5})\?", text)
    assert asked is not None
    found, source = [], asked[1]
    while name := re.search(rf"VAR ([A-Z]{{3}}) = {source}\. ", text):
        found.append(f" {name[1]}")
        source = f"VAR {name[1]}"
    return found


@every_form
@given(
    count=st.integers(260, 700), depth=st.floats(0, 1), seed=st.integers(0, 2**40), first=st.just(3)
)
def test_answers_follow_from_the_text(
    form: str, count: int, depth: float, seed: int, first: int
) -> None:
    text, answers = write(form, count, depth, seed)
    assert answers == solve(form, text)
    assert text.endswith("".join(answers))
    assert len(answers) == (5 if form == "variable_tracking" else 1)
    tokens = build_retrieval_text(
        encode_pieces, form, count, depth, RandomBits(form, seed), [first]
    )
    assert len(tokens.tokens) == count
    assert tokens.tokens[0] == first
    assert tokens.spans[-1][1] == count
    assert tokens.first_answer == tokens.spans[0][0]


@every_form
def test_depth(form: str) -> None:
    places = []
    for depth in (0.0, 0.5, 1.0):
        text, answers = write(form, 1000, depth)
        places.append(text.index(answers[0]))
    room = places[2]  # the statement stands right before the question
    assert places[0] < 40
    assert places[1] == pytest.approx(room / 2, abs=60)
    assert "? " not in text[: places[2]]


def test_one_key_of_four_is_asked_for() -> None:
    text, _ = write("several_keys", 600, 0.3)
    assert len(set(re.findall(r"The (\w+) key is \d{5}\. ", text))) == 4


def test_filler_differs_from_text_to_text() -> None:
    assert write("passkey", 400, 0.5, 1)[0][:60] != write("passkey", 400, 0.5, 2)[0][:60]
    assert write("passkey", 400, 0.5, 1) == write("passkey", 400, 0.5, 1)


@every_form
def test_a_text_that_is_too_short(form: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^a {form} text must have at least \d+ tokens .* got 40"
    ):
        write(form, 40, 0.5)


def test_rows_to_train_on() -> None:
    tokens, asked = make_retrieval_rows(6, 256, 5)
    assert (tokens.shape, asked.shape) == ((6, 256), (6, 256))
    depths = set()
    for row, mask in zip(tokens, asked, strict=True):
        text = bytes(row.tolist()).decode()
        assert "".join(solve("passkey", text)) == bytes(row[mask].tolist()).decode()
        depths.add(text.index("The pass key is"))
    assert len(depths) > 2
    assert torch.equal(tokens, make_retrieval_rows(6, 256, 5)[0])
    assert not torch.equal(tokens, make_retrieval_rows(6, 256, 6)[0])


def test_unknown_form() -> None:
    with pytest.raises(ValueError, match=r"^form 'pass' is unknown\. Known: passkey, several_keys"):
        check_form("pass")
