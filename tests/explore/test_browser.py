"""The pages in a real browser: Chromium as the system has it, driven by playwright.

Where WHORL_SCREENSHOTS names a folder, pictures for the docs are kept there.
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Visit = Callable[..., Any]


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.03)


def text(page: Any, selector: str) -> str:
    return str(page.locator(selector).inner_text())


def says(page: Any, selector: str, words: str) -> None:
    until(lambda: words in text(page, selector))


def slide(page: Any, selector: str, value: float) -> None:
    page.locator(selector).evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", value
    )


def marks(page: Any, chart: str) -> int:
    """Shapes in a chart, each with something drawn in it."""
    found = page.locator(f"#{chart} .plot path.mark, #{chart} .plot path.line")
    return sum(len(one.get_attribute("d") or "") > 20 for one in found.all())


def test_it_loads_and_draws_all_charts(visit: Visit) -> None:
    page = visit()
    assert text(page, "#verdict").startswith("llama: 32 layers rotate all 128 channels")
    for chart in ("wavelengths", "angles", "likeness", "decay"):
        assert marks(page, chart) >= 1, chart
    assert page.locator(".dials li").count() == 6
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.fonts.size") == 0


def test_presets_of_all_kinds(visit: Visit) -> None:
    page = visit()
    for name in ("deepseek-v3", "gemma-3-4b", "phi-3.5-mini", "qwen2.5-vl-7b", "smollm3-3b"):
        page.select_option("#preset", name)
        page.wait_for_function("(name) => location.hash.includes(`preset=${name}`)", arg=name)
        assert marks(page, "wavelengths") >= 1, name
        assert page.locator("#view-error").is_hidden(), name


def test_pasting_a_config(visit: Visit) -> None:
    page = visit()
    page.click("summary:has-text('Paste or drop')")
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    page.fill("#text", json.dumps({**config, "rope_scaling": {"factor": 4.0}}))
    page.click("#read")
    until(lambda: "lone-factor" in text(page, "#findings"))
    assert "error" in text(page, "#counts")
    page.fill("#text", json.dumps({**config, "max_position_embeddings": 512}))
    page.click("#read")
    until(lambda: "all 16 channels" in text(page, "#verdict"))
    until(lambda: page.locator("#wavelengths .plot").get_attribute("aria-valuemax") == "7")
    assert page.input_value("#preset") == ":text"


def test_bad_configs_say_why_once(visit: Visit) -> None:
    page = visit("#method=yarn&factor=2")
    page.click("summary:has-text('Paste or drop')")
    for pasted, message in (
        ("{oops", "The text is not JSON: "),
        ("", "There is no config yet"),
        ("{}", "The config is empty"),
        ('{"model_type": "<img src=x onerror=alert(1)>", "rope_scaling": 3}', "rope_scaling"),
    ):
        page.fill("#text", pasted)
        page.click("#read")
        says(page, "#config-error", message)
        page.locator("#findings").evaluate("(node) => { node.hidden = true; }")
        assert text(page, "body").count(text(page, "#config-error")) == 1
        assert text(page, "#verdict").startswith("This cannot be read; the reason stands with")
        until(lambda: "because the config cannot be read." in text(page, "#wavelengths"))
        assert text(page, "#live") == ""
        assert page.locator("#results img").count() == 0
        assert page.locator("#decay button").first.is_disabled()
    page.select_option("#preset", "qwen3-8b")
    until(lambda: page.locator("#config-error").is_hidden() and marks(page, "decay") > 0)


def test_a_model_without_rotation_says_so_once(visit: Visit) -> None:
    page = visit()
    page.click("summary:has-text('Paste or drop')")
    page.fill("#text", '{"model_type": "bert", "hidden_size": 64}')
    page.click("#read")
    until(lambda: text(page, "#verdict") == "bert has no rotary embedding.")
    drawn = page.locator("#decay .plot")
    until(lambda: "so there is nothing to draw" in drawn.get_attribute("aria-valuetext"))
    for place in ("#config-error", "#view-error", "#fault"):
        assert page.locator(place).is_hidden(), place


def test_a_pasted_config_is_read_at_once(visit: Visit) -> None:
    page = visit()
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    page.evaluate("(text) => navigator.clipboard.writeText(text)", json.dumps(config))
    page.locator("h1").evaluate("() => document.activeElement.blur()")
    page.keyboard.press("Control+V")
    until(lambda: "all 16 channels" in text(page, "#verdict"))
    page.fill("#text", "something else")
    until(lambda: "Not read yet" in text(page, "#unread"))
    page.locator("#text").select_text()
    page.keyboard.press("Control+V")
    until(lambda: page.locator("#unread").is_hidden())
    page.locator("#text").evaluate("(node) => { node.value = 'x'.repeat(1200000); }")
    page.click("#read")
    until(lambda: "This text has 1,200,000 bytes" in text(page, "#config-error"))


def test_a_mistake_of_whorl_is_not_the_config_s(visit: Visit) -> None:
    page = visit()
    answer = json.dumps({"error": "This is a mistake of whorl: KeyError.", "fault": "whorl"})
    page.route("**/api/report", lambda route: route.fulfill(status=500, body=answer))
    page.select_option("#preset", "qwen3-8b")
    until(lambda: text(page, "#fault") == "This is a mistake of whorl: KeyError.")
    assert text(page, "#verdict") == "Not known, because whorl failed; see above."
    assert "cannot be read" not in text(page, "body")
    until(lambda: marks(page, "decay") > 0)
    page.route("**/api/view", lambda route: route.fulfill(status=500, body="oops"))
    slide(page, "#length", 12)
    until(lambda: "failed (500), and the terminal shows why" in text(page, "#fault"))
    assert "Nothing to draw; the reason is above." in text(page, "#decay")


def test_dropping_a_file(visit: Visit) -> None:
    page = visit()
    drop = """(text) => {
      const data = new DataTransfer();
      data.items.add(new File([text], "config.json"));
      const options = {dataTransfer: data, bubbles: true, cancelable: true};
      document.dispatchEvent(new DragEvent("drop", options));
    }"""
    page.evaluate(
        drop,
        json.dumps(
            {
                "model_type": "gpt_neox",
                "hidden_size": 64,
                "num_attention_heads": 4,
                "rotary_pct": 0.5,
            }
        ),
    )
    until(lambda: text(page, "#verdict").startswith("gpt_neox"))
    page.evaluate(drop, "x" * 900_001)
    until(lambda: "a config has at most 900,000" in text(page, "#config-error"))


def test_sliders_answer_within_100_ms(visit: Visit, capsys: pytest.CaptureFixture[str]) -> None:
    page = visit()
    page.select_option("#method", "yarn")
    until(lambda: "YaRN x 4" in text(page, "#live"))
    page.evaluate("performance.clearMeasures()")
    for n in range(12):
        for selector, value in (
            ("#length", 14 + n / 4),
            ("#factor", 1 + n / 4),
            ("#base", 4 + n / 8),
        ):
            slide(page, selector, value)
            page.wait_for_timeout(60)
    page.wait_for_timeout(400)
    times = page.evaluate("performance.getEntriesByName('slider').map((one) => one.duration)")
    assert len(times) >= 12
    with capsys.disabled():
        words = (
            f"best {min(times):.0f}, median {statistics.median(times):.0f}, worst {max(times):.0f}"
        )
        print(f"\nslider to chart at head_dim 128, ms: {words} ({len(times)} moves)")
    assert min(times) < 100  # a busy machine may stall most of them, but not make one quicker


def test_extensions_overlaid_and_taken_away(visit: Visit) -> None:
    page = visit()
    page.select_option("#method", "yarn")
    page.click("#pin")
    page.select_option("#method", "linear")
    slide(page, "#factor", 3)
    until(lambda: "linear x 8" in text(page, "#live"))
    names = page.locator("#wavelengths .key li").all_inner_texts()
    assert [name.strip() for name in names] == ["as in the config", "linear x 8", "YaRN x 4"]
    page.get_by_role("button", name="Remove YaRN x 4").click()
    until(lambda: page.locator("#wavelengths .key li").count() == 2)


def test_curves_upon_each_other_all_show(visit: Visit) -> None:
    page = visit("#method=yarn&factor=4&keep=ntk_by_parts~4~,linear~4~")
    for chart in ("wavelengths", "likeness"):
        names = [name.strip() for name in page.locator(f"#{chart} .key li").all_inner_texts()]
        assert names == [
            "as in the config",
            "YaRN x 4",
            "NTK by parts x 4 (same as YaRN x 4)",
            "linear x 4",
        ]
    turns = page.locator("#likeness .plot .line[stroke-dasharray]")
    offsets = [one.get_attribute("stroke-dashoffset") for one in turns.all()]
    assert sorted(offsets) == ["-9", "0"]
    assert turns.first.get_attribute("d") == turns.last.get_attribute("d")


def test_rings_mark_new_angles_on_every_curve(visit: Visit) -> None:
    page = visit("#length=131072&method=yarn&factor=4&keep=linear~2~")
    for slot in (0, 1, 2):
        assert page.locator(f"#wavelengths .mark.ring.s{slot}").count() == 1, slot


def test_keeping_says_why_it_ends(visit: Visit) -> None:
    page = visit()
    assert page.locator("#pin").get_attribute("aria-disabled") == "true"
    assert "always drawn" in text(page, "#pin-why")
    page.select_option("#method", "yarn")
    for n in range(6):
        slide(page, "#factor", n)
        page.locator("#pin").press("Enter")
        assert page.evaluate("document.activeElement.id") == "pin"
        assert text(page, "#pin-why").startswith(f"YaRN x {2**n} is kept.")
    assert page.locator("#pins li").count() == 6
    until(lambda: page.locator("#wavelengths .key li").count() == 7)
    slide(page, "#factor", 6)
    assert text(page, "#pin-why").startswith("6 are kept")
    until(lambda: page.locator("#wavelengths .key li").count() == 8)
    page.locator("#pin").press("Enter")
    assert page.locator("#pins li").count() == 6
    assert text(page, "#say").startswith("6 are kept")
    page.get_by_role("button", name="Remove YaRN x 8").press("Enter")
    until(lambda: page.locator("#pin").get_attribute("aria-disabled") == "false")
    assert page.locator("#pin-why").is_hidden()
    page.wait_for_timeout(500)  # for all answers
    assert page.evaluate("document.activeElement.ariaLabel") == "Remove YaRN x 16"


def test_impossible_numbers_mark_the_results(visit: Visit) -> None:
    page = visit()
    box = page.locator("#length-number")
    for wrong, said in (("999999999", "1 to 16,777,216; got 999999999."), ("", "16,777,216.")):
        box.fill(wrong)
        box.press("Enter")
        says(page, "#length-error", said)
        assert box.get_attribute("aria-invalid") == "true"
        assert "all of this is for the last numbers" in text(page, "#stale")
        assert page.locator("#results.stale").count() == 1
        assert marks(page, "wavelengths") >= 1
    box.blur()
    assert box.input_value() == ""
    slide(page, "#length", 12)
    until(lambda: "at 4,096 tokens" in text(page, "#live"))
    for place in ("#length-error", "#stale"):
        assert page.locator(place).is_hidden(), place
    assert box.get_attribute("aria-invalid") is None
    assert box.input_value() == "4096"
    page.fill("#base-number", "-3")
    page.press("#base-number", "Enter")
    until(lambda: page.locator("#base-error").is_visible())
    page.select_option("#preset", "qwen3-8b")
    until(lambda: page.locator("#stale").is_hidden())
    page.select_option("#preset", "gemma-3-4b")
    until(lambda: page.locator("#trained-row").is_visible())
    page.fill("#trained", "0.5")
    page.press("#trained", "Enter")
    until(lambda: "must be a whole number from 1 to" in text(page, "#trained-error"))


def test_longrope_says_where_its_factors_are_from(visit: Visit) -> None:
    page = visit("#method=longrope&factor=4")
    assert "has no list of factors" in text(page, "#method-note")
    assert "Proportional is not here, because" in text(page, "#not-offered")
    page.select_option("#preset", "phi-3.5-mini")
    until(lambda: "the attention scale only" in text(page, "#method-note"))
    page.select_option("#method", "config")
    until(lambda: page.locator("#method-note").is_hidden())


def test_hover_and_keyboard_give_the_value_of_any_pair(visit: Visit) -> None:
    page = visit()
    plot = page.locator("#wavelengths .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 15, box["y"] + 40)
    until(lambda: "pair 63" in text(page, "#wavelengths .tip"))
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
    until(lambda: "YaRN to" in text(page, "#verdict"))
    page.click("#copy-config")
    until(lambda: text(page, "#say") == "Config copied.")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["rope_parameters"]["rope_type"] == "yarn"
    assert copied["rope_parameters"]["factor"] == 4
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
    assert "cut short" in text(cut, "#link-error")
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
        ("#keep=evil~x,yarn~4~", '"evil~x" is nothing to keep on the charts.'),
        ("#check=abc&preset=qwen3-8b&length=13", "It was cut short or changed on its way."),
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
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.touchscreen.tap(box["x"] + 200, box["y"] + 50)
    until(lambda: page.locator("#wavelengths .tip").is_visible())
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
    page.locator("#turning").scroll_into_view_if_needed()
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


def test_pictures_for_the_docs(visit: Visit) -> None:
    folder = os.environ.get("WHORL_SCREENSHOTS")
    if not folder:
        return
    view = "#preset=llama-3.1-8b&length=131072&method=yarn&factor=16&keep=linear~16~&pair=20"
    for name, scheme, width in (
        ("explore", "light", 1280),
        ("explore-dark", "dark", 1280),
        ("explore-phone", "light", 360),
    ):
        page = visit(view, scheme=scheme, width=width)
        page.locator("#charts-title").evaluate("(node) => node.scrollIntoView()")
        page.wait_for_timeout(300)
        page.screenshot(path=Path(folder) / f"{name}.png")
    visit("compare").screenshot(path=Path(folder) / "explore-compare.png")
