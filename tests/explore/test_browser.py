"""The pages in a real browser, Chromium as the system has it: configs, sliders, curves."""

import json
import statistics
from typing import Any

import pytest

from .page import Visit, marks, says, slide, text, until

pytestmark = pytest.mark.slow


def test_it_loads_and_draws_all_charts(visit: Visit) -> None:
    page = visit()
    assert text(page, "#verdict").startswith("llama: 32 layers rotate all 128 channels")
    for chart in ("wavelengths", "angles", "likeness", "decay"):
        assert marks(page, chart) >= 1, chart
    assert page.locator(".dials li").count() == 6
    assert page.locator("#heat canvas").count() == 1
    page.select_option("#method", "yarn")
    until(lambda: page.locator("#heat canvas").count() == 2)
    assert "YaRN x 4" in text(page, "#heat")
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
        assert text(page, "#verdict").startswith("This cannot be read; the reason is beside")
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
    assert "The last text was not read" in text(page, "#stale")
    assert page.locator("#results.stale").count() == 1
    page.select_option("#preset", "qwen3-8b")
    until(lambda: page.locator("#stale").is_hidden())


def test_a_mistake_of_whorl_is_not_the_config_s(visit: Visit) -> None:
    page = visit(faults=True)
    answer = json.dumps({"error": "This is a fault of whorl: KeyError.", "fault": "whorl"})
    page.route("**/api/report", lambda route: route.fulfill(status=500, body=answer))
    page.select_option("#preset", "qwen3-8b")
    until(lambda: text(page, "#fault") == "This is a fault of whorl: KeyError.")
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


def test_every_slider_redraws_the_charts(visit: Visit, capsys: pytest.CaptureFixture[str]) -> None:
    """How long that takes is printed, and not judged: the machine may have other work."""
    page = visit()
    page.select_option("#method", "yarn")
    until(lambda: "YaRN x 4" in text(page, "#live"))
    times = _moved(page)
    with capsys.disabled():
        words = f"best {min(times):.0f}, median {statistics.median(times):.0f}"
        print(f"\nslider to chart at head_dim 128, ms: {words} ({len(times)} moves)")


def _moved(page: Any) -> list[float]:
    """Move every slider twelve times: how long each chart took, in ms."""
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
    times: list[float] = page.evaluate(
        "performance.getEntriesByName('slider').map((one) => one.duration)"
    )
    assert len(times) >= 12
    return times


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
        assert "the results are still for the last valid numbers" in text(page, "#stale")
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


def test_a_factor_that_the_method_refuses(visit: Visit) -> None:
    page = visit("#preset=llama-2-7b&method=yarn&factor=0.5")
    assert "Factor must be a number from 1 to" in text(page, "#link-error")
    page.fill("#factor-number", "0.5")
    page.press("#factor-number", "Enter")
    says(page, "#factor-error", "Factor must be a number from 1 to 1,000,000; got 0.5.")
    assert page.locator("#factor-number").get_attribute("aria-invalid") == "true"
    assert page.locator("#results.stale").count() == 1
    assert text(page, "#live").startswith("YaRN x 4, ")
    page.select_option("#method", "linear")
    until(lambda: page.locator("#factor-error").is_hidden())
    page.fill("#factor-number", "0.5")
    page.press("#factor-number", "Enter")
    until(lambda: text(page, "#live").startswith("linear x 0.5, "))
    page.select_option("#method", "yarn")
    until(lambda: text(page, "#live").startswith("YaRN x 1, "))
    assert text(page, "#say") == "Factor is 1 now, the least that YaRN accepts."


def test_a_curve_that_cannot_be_drawn_is_not_another_one(visit: Visit) -> None:
    page = visit("#preset=gemma-3-4b&keep=none~~1000")
    page.select_option("#method", "yarn")  # which needs the trained length, and it does not say it
    until(lambda: text(page, "#live") == "YaRN x 4 cannot be drawn; the reason is above.")
    assert "YaRN x 4: " in text(page, "#view-error")
    assert text(page, "#pin-why") == "YaRN x 4 cannot be drawn, so there is nothing to keep."


def test_reach_of_what_follows_the_length_says_so(visit: Visit) -> None:
    page = visit("#preset=llama-2-7b&method=dynamic_ntk&factor=4&length=16384")
    assert "with the frequencies of this length, no out-of-distribution angle up to" in text(
        page, "#live"
    )
    page.select_option("#method", "linear")
    until(lambda: "; no out-of-distribution angle up to 16,384 tokens" in text(page, "#live"))
    page.fill("#factor-number", "1000000")
    page.press("#factor-number", "Enter")
    until(lambda: "no out-of-distribution angle at any length shown here" in text(page, "#live"))


def test_longrope_says_where_its_factors_are_from(visit: Visit) -> None:
    page = visit("#method=longrope&factor=4")
    assert "has no list of factors" in text(page, "#method-note")
    assert "Proportional cannot be chosen, because" in text(page, "#not-offered")
    page.select_option("#preset", "phi-3.5-mini")
    until(lambda: "the attention scale only" in text(page, "#method-note"))
    page.select_option("#method", "config")
    until(lambda: page.locator("#method-note").is_hidden())
