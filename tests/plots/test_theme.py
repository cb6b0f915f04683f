"""The theme: readable against its ground, and distinct for colour-blind readers."""

from itertools import combinations

import pytest

from whorl.plots import PALETTE, theme

NAMES = ("light", "dark")


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2, from #RRGGBB."""
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_against_known_values() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert contrast("#777777", "#777777") == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_text_is_readable(name: str) -> None:
    config = theme(name)  # type: ignore[arg-type]
    for part, key in (("axis", "labelColor"), ("axis", "titleColor"), ("title", "subtitleColor")):
        assert contrast(config[part][key], config["background"]) >= 7  # WCAG AAA


@pytest.mark.parametrize("name", NAMES)
def test_series_stand_out_from_the_ground(name: str) -> None:
    config = theme(name)  # type: ignore[arg-type]
    *colours, yellow = config["range"]["category"]
    assert yellow == PALETTE["yellow"]  # last, because it fades on white
    assert min(contrast(colour, config["background"]) for colour in colours) >= 2
    assert all(a != b for a, b in combinations([*colours, yellow], 2))


def test_hues_are_those_of_okabe_and_ito_in_both_themes() -> None:
    light, dark = (theme(name)["range"]["category"] for name in NAMES)  # type: ignore[arg-type]
    assert light == list(PALETTE.values())
    assert [a for a, b in zip(light, dark, strict=True) if a != b] == [PALETTE["neutral"]]


def test_each_call_is_new() -> None:
    theme()["axis"]["labelColor"] = "#FF0000"
    assert theme()["axis"]["labelColor"] != "#FF0000"


def test_an_unknown_theme() -> None:
    with pytest.raises(
        ValueError, match=r"theme: the name must be 'light' or 'dark'; got 'blue'\."
    ):
        theme("blue")  # type: ignore[arg-type]
