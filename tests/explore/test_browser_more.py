"""The pages in a real browser: keyboard, files, links, own vectors, the second page, phones."""

import json
from pathlib import Path

import pytest

from .page import Visit, marks, says, slide, text, until

pytestmark = pytest.mark.slow


def test_hover_and_keyboard_give_the_value_of_any_pair(visit: Visit) -> None:
    page = visit()
    plot = page.locator("#wavelengths .plot")

    def hover_last_pair() -> bool:
        """Where the plot is now: what loads above it still moves it."""
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        page.mouse.move(box["x"] + box["width"] - 15, box["y"] + 40)
        return "pair 63" in text(page, "#wavelengths .tip")

    until(hover_last_pair)
    assert "tokens" in text(page, "#wavelengths .tip")
    assert "pair 63" in text(page, "#angles .tip")
    page.mouse.move(0, 0)
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    said = plot.get_attribute("aria-valuetext")
    assert said.startswith("pair 1; as in the config: 7.7")
    assert "kept" in said
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('pair=1')")
    assert page.locator(".dials .chosen").inner_text().startswith("pair 1")


def test_everything_has_a_name_and_can_be_reached(visit: Visit) -> None:
    for path in ("", "compare"):
        page = visit(path)
        nameless = page.evaluate("""() => [...document.querySelectorAll(
            'input, select, textarea, button, [role=slider], [role=region]')].filter((node) =>
            !(node.labels?.length || node.getAttribute('aria-label')
              || node.getAttribute('aria-labelledby') || node.textContent.trim()))
            .map((node) => node.outerHTML)""")
        assert nameless == []
        seen = []
        for _ in range(30 if not path else 14):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    "document.activeElement.id || document.activeElement.className?.baseVal || ''"
                )
            )
        wanted = (
            {"preset", "length", "base", "method", "plot"}
            if not path
            else {"length", "head", "plot"}
        )
        assert wanted <= set(seen)


def test_charts_are_saved_as_svg_and_png(visit: Visit, tmp_path: Path) -> None:
    page = visit()
    for chart in ("wavelengths", "decay"):
        with page.expect_download() as waiting:
            page.locator(f"#{chart}").get_by_role("button", name="SVG").click()
        waiting.value.save_as(tmp_path / "chart.svg")
        drawn = (tmp_path / "chart.svg").read_text()
        assert drawn.startswith("<svg")
        assert "as in the config" in drawn
        assert "class=" not in drawn
        assert "var(" not in drawn
        with page.expect_download() as waiting:
            page.locator(f"#{chart}").get_by_role("button", name="PNG").click()
        assert waiting.value.suggested_filename == f"{chart}.png"
        waiting.value.save_as(tmp_path / "chart.png")
        assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "chart.png").stat().st_size > 10_000


def test_the_config_is_copied_with_the_extension_in_it(visit: Visit) -> None:
    page = visit()
    page.select_option("#preset", "qwen3-8b")
    page.select_option("#method", "yarn")
    until(lambda: "YaRN from 32,768" in text(page, "#verdict"))
    page.click("#copy-config")
    until(lambda: text(page, "#say") == "Config copied.")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["rope_scaling"]["rope_type"] == "yarn"
    assert copied["rope_scaling"]["factor"] == 4
    page.select_option("#method", "dynamic_yarn")
    until(lambda: "transformers has no type" in text(page, "#config-why"))
    assert page.locator("#copy-config").is_disabled()


def test_a_link_restores_the_view(visit: Visit) -> None:
    page = visit()
    page.click("summary:has-text('Paste or drop')")
    config = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 4}
    page.fill("#text", json.dumps({**config, "max_position_embeddings": 2048}))
    page.click("#read")
    until(lambda: "all 32 channels" in text(page, "#verdict"))
    page.select_option("#method", "yarn")
    page.click("#pin")
    page.select_option("#method", "ntk")
    slide(page, "#factor", 2.5)
    page.fill("#length-number", "5000")
    page.press("#length-number", "Enter")
    until(lambda: "NTK x 5.66, at 5,000 tokens" in text(page, "#live"))
    before = text(page, "#live")
    page.click("#copy-link")
    until(lambda: text(page, "#say") == "Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    other = visit(link.partition("/#")[2] and "#" + link.partition("/#")[2])
    until(lambda: text(other, "#live") == before)
    assert other.locator("#link-error").is_hidden()
    cut = visit("#" + link.partition("/#")[2][:-2])
    assert "incomplete" in text(cut, "#link-error")
    names = [name.strip() for name in other.locator("#wavelengths .key li").all_inner_texts()]
    assert names == ["as in the config", "NTK x 5.66", "YaRN x 4"]
    assert "all 32 channels" in text(other, "#verdict")


def test_damaged_links_say_so(visit: Visit) -> None:
    page = visit("#preset=nonesuch")
    assert 'There is no preset "nonesuch". llama-3.1-8b is shown.' in text(page, "#link-error")
    for link, message in (
        ("#garbage", 'There is no "garbage". llama-3.1-8b is shown.'),
        ("#config=%%%", "The config in it is damaged."),
        ("#length=1e99", "Length must be a whole number from 1 to 16,777,216; got 1e99."),
        ("#base=abc&factor=", "Base must be a number from 1 to"),
        ("#method=magic", 'There is no method "magic".'),
        ("#keep=evil~x,yarn~4~", '"evil~x" is not a curve that can be kept.'),
        ("#check=abc&preset=qwen3-8b&length=13", "It is incomplete or was changed."),
    ):
        page.evaluate("(link) => { location.hash = link; }", link)
        says(page, "#link-error", message)
        until(lambda: marks(page, "wavelengths") >= 1)
        assert page.locator("#view-error").is_hidden()
    page.select_option("#preset", "qwen3-8b")
    until(lambda: page.locator("#link-error").is_hidden())


def test_a_chart_of_one_distance_is_not_blank(visit: Visit) -> None:
    page = visit("#length=1")
    assert marks(page, "likeness") == 1
    assert marks(page, "decay") == 3


def test_words_of_two_charts_do_not_lie_upon_each_other(visit: Visit) -> None:
    page = visit(width=375, touch=True)
    plot = page.locator("#wavelengths .plot")

    def tap() -> bool:
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        page.touchscreen.tap(box["x"] + 200, box["y"] + 50)
        return bool(page.locator("#wavelengths .tip").is_visible())

    until(tap)
    assert page.locator("#angles .tip").is_hidden()
    assert len(page.locator("#angles .guide").get_attribute("d")) > 5


def test_the_skip_link_leaves_the_view_alone(visit: Visit) -> None:
    page = visit("#preset=qwen3-8b&pair=9999")
    assert text(page, "#say") == "There is no pair 9,999 here; there are 64."
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    page.wait_for_timeout(100)
    assert page.input_value("#preset") == "qwen3-8b"


def test_your_own_q_and_k(visit: Visit) -> None:
    page = visit()
    page.click("summary:has-text('your own q and k')")
    page.fill("#q", "1 2 3")
    page.fill("#k", "1, 2, 3")
    page.click("#use-own")
    until(lambda: "must have 128 numbers" in text(page, "#own-error"))
    assert marks(page, "decay") >= 1
    page.fill("#q", json.dumps([1.0] * 128))
    page.fill("#k", " ".join(["0.5"] * 128))
    page.click("#use-own")
    until(lambda: "score, your q and k" in text(page, "#decay .key"))
    page.fill("#q", "1 x")
    assert text(page, "#undrawn") == "Changed, and not drawn yet."
    page.click("#use-own")
    until(lambda: "score, your q and k" not in text(page, "#decay .key"))
    assert text(page, "#own-error") == "q must be numbers below 1e30; got x."


def test_the_animation_can_be_stopped(visit: Visit) -> None:
    still = visit()
    assert text(still, "#play") == "Play"
    page = visit(motion="no-preference")
    page.locator("#dials").scroll_into_view_if_needed()
    place = page.locator("#where")
    before = place.inner_text()
    until(lambda: place.inner_text() != before)
    page.click("#play")
    assert text(page, "#play") == "Play"
    stopped = place.inner_text()
    page.wait_for_timeout(300)
    assert place.inner_text() == stopped
    slide(page, "#distance", 0)
    until(lambda: "mean cosine 1.000" in text(page, "#alike"))


def test_the_compare_page(visit: Visit) -> None:
    page = visit("compare")
    assert marks(page, "bias") == 3
    assert page.locator("#card tbody tr").count() == 14
    assert "256 of 256" in text(page, "#card")
    page.click("#card-rules summary")
    assert "rank correlation of the score of equal tokens" in text(page, "#card-rules")
    assert text(page, "#lab-table tbody tr >> nth=1").split() == [
        "alibi",
        "2.000",
        "1.960",
        "1.960",
        "1.960",
        "19,000",
    ]
    assert marks(page, "lab") == 2
    for name in ("alibi", "kerple", "relative_bias"):
        page.get_by_label(name).uncheck()
    until(lambda: "No encoding is chosen" in text(page, "#bias"))


@pytest.mark.parametrize("path", ["", "compare"])
def test_it_fits_a_phone(visit: Visit, path: str) -> None:
    page = visit(path, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#wavelengths .plot, #bias .plot").bounding_box()["width"] <= 360


def test_light_and_dark(visit: Visit) -> None:
    light, dark = (visit(scheme=name) for name in ("light", "dark"))
    ground = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(ground) == "rgb(255, 255, 255)"
    assert dark.evaluate(ground) == "rgb(21, 24, 28)"
