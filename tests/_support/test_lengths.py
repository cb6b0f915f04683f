"""Lengths as people type them."""

import pytest

from whorl._support.lengths import parse_length


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1", 1),
        (4096, 4096),
        (" 4096 ", 4096),
        ("128k", 131_072),
        ("128K", 131_072),
        ("128 k", 131_072),
        ("1.5k", 1_536),
        ("0.5M", 524_288),
        ("1e5", 100_000),
        ("1E+5", 100_000),
        ("1.28e5", 128_000),
        ("131_072", 131_072),
        ("1,048,576", 1_048_576),
    ],
)
def test_reads_what_people_type(text: str | int, length: int) -> None:
    assert parse_length(text) == length


@pytest.mark.parametrize(
    "text",
    ["", "k", "0", "-4", "1.5", "1e", "1e-3", "12kb", "4 096", "1,0", "nan", "inf", "1e99", "0x10"],
)
def test_refuses_the_rest_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"a length must be a whole number of tokens above 0"):
        parse_length(text)


def test_does_not_echo_long_input() -> None:
    with pytest.raises(ValueError, match=r"got .9{20,40}\.\.\.9") as caught:
        parse_length("9" * 5_000)
    assert len(str(caught.value)) < 200


def test_huge_digits_are_refused_without_work() -> None:
    with pytest.raises(ValueError, match="whole number of tokens"):
        parse_length("9" * 5_000 + "k")
