"""Numbers in text: which are certain, which are only likely, and which are none."""

import pytest

from whorl._support.numerals import parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("4.0", 4.0), (" 4.0\t", 4.0), ("4", 4), ("+4", 4), ("-4", -4), (".5", 0.5), ("4.", 4.0)),
        *(("1e6", 1e6), ("1E-3", 1e-3), ("007", 7), ("1,000,000", 10**6), ("1_000", 1000)),
        *(("1,024.5", 1024.5), ("-1,000,000", -(10**6))),
    ],
)
def test_certain(text: str, value: float) -> None:
    found = parse_number(text)
    assert found is not None
    assert (found.value, found.certain, found.reason) == (value, True, "")
    assert type(found.value) is type(value)


def test_a_comma_is_certain_where_no_fraction_is_possible() -> None:
    found = [parse_number("4,096", whole=True), parse_number("500,000", large=True)]
    assert [(f.value, f.certain) for f in found if f] == [(4096, True), (500000, True)]
    whole = parse_number("4.0", whole=True)
    assert whole is not None
    assert type(whole.value) is int


@pytest.mark.parametrize(
    ("text", "whole", "value", "reason"),
    [
        ("4,096", False, 4096, "the comma separates thousands"),
        ("4,5", False, 4.5, "the comma is a decimal point"),
        ("4k", False, 4000, "k = 1000"),
        ("4K", True, 4096, "K = 1024"),
        ("1.5 m", True, 1572864, "m = 1048576"),
    ],
)
def test_likely(text: str, whole: bool, value: float, reason: str) -> None:
    found = parse_number(text, whole=whole)
    assert found is not None
    assert (found.value, found.certain, found.reason) == (value, False, reason)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "nan", "inf", "Infinity", "1e999", "0x10", "4 0", "1,00,000", "--4", "k"),
        *("\uff14", "\u0664", "9" * 320, "9" * 299 + "e99", "1__000", "4.0f"),
    ],
)
def test_none(text: str) -> None:
    assert parse_number(text) is None
