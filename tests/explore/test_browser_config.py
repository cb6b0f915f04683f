"""The pages in a browser: lengths as typed, colours that stay, the config to copy, landmarks."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.plots.lab_document import comparison
from whorl.configs import presets

from .page import Visit, says, text, until

pytestmark = pytest.mark.slow

LANDMARKS = """() => [...document.querySelectorAll(
    'header, nav, main, footer, section, aside, form, [role=region], [role=search]')]
    .map((node) => [node.getAttribute('role') ?? node.tagName.toLowerCase(),
      node.getAttribute('aria-label')
      ?? document.getElementById(node.getAttribute('aria-labelledby'))?.textContent.trim()])
    .map(([role, name]) => [role === 'section' ? 'region' : role, name ?? ''])
    .filter(([role, name]) => role !== 'region' || name)"""


@pytest.mark.parametrize("path", ["", "compare"])
def test_no_two_landmarks_have_one_name(visit: Visit, path: str) -> None:
    page = visit(path)
    found = [tuple(each) for each in page.evaluate(LANDMARKS)]
    assert len(found) > 5
    assert sorted(found) == sorted(set(found))


def test_lengths_as_people_type_them(visit: Visit) -> None:
    page = visit("#preset=llama-2-7b")
    box = page.locator("#length-number")
    for typed, tokens in (("128k", 131_072), ("1e5", 100_000), ("32,768", 32_768), ("1M", 2**20)):
        box.fill(typed)
        box.press("Enter")
        says(page, "#live", f"at {tokens:,} tokens")
        assert box.input_value() == str(tokens)
    box.fill("12 apples")
    box.press("Enter")
    says(page, "#length-error", "such as 4096, 128k (k = 1024) or 1e5; got '12 apples'.")
    assert box.get_attribute("aria-invalid") == "true"
    box.fill("64M")
    box.press("Enter")
    says(page, "#length-error", "Length must be a whole number from 1 to 16,777,216; got 67108864.")
    page.fill("#distance-number", "2k")
    page.press("#distance-number", "Enter")
    until(lambda: "Two equal tokens 2,048 apart" in text(page, "#alike"))
    page.select_option("#preset", "gemma-3-4b")
    until(lambda: page.locator("#trained-row").is_visible())
    page.fill("#trained", "32k")
    page.press("#trained", "Enter")
    until(lambda: page.locator("#trained").input_value() == "32768")


def colour(page: Any, name: str) -> str:
    """The class of a curve's colour in the legend."""
    rows = page.locator("#wavelengths .key li").all()
    (found,) = [row for row in rows if row.inner_text().strip() == name]
    return str(found.get_attribute("class"))


def test_a_kept_curve_keeps_its_colour(visit: Visit) -> None:
    page = visit("#preset=llama-2-7b")
    drawn = lambda: page.locator("#wavelengths .key").inner_text()  # noqa: E731
    page.select_option("#method", "yarn")
    until(lambda: "YaRN x 4" in drawn())
    before = colour(page, "YaRN x 4")
    page.click("#pin")
    page.select_option("#method", "linear")
    until(lambda: "linear x 4" in drawn() and "YaRN x 4" in drawn())
    assert colour(page, "YaRN x 4") == before
    second = colour(page, "linear x 4")
    assert second != before
    assert page.locator("#pins li").get_attribute("class") == before
    page.click("#pin")
    page.select_option("#method", "ntk")
    until(lambda: "NTK x 4" in drawn())
    seen = [colour(page, name) for name in ("YaRN x 4", "linear x 4", "NTK x 4")]
    assert seen[:2] == [before, second]
    assert len(set(seen)) == 3
    page.select_option("#method", "yarn")  # the controls on a kept one
    until(lambda: "NTK x 4" not in drawn())
    assert colour(page, "YaRN x 4") == before
    page.get_by_role("button", name="Remove YaRN x 4").click()
    until(lambda: page.locator("#pins li").count() == 1)
    page.wait_for_timeout(300)
    assert colour(page, "YaRN x 4") == before
    assert colour(page, "linear x 4") == second


@pytest.mark.parametrize("preset", ["qwen3-8b", "gemma-3-4b&trained=32768"])
def test_the_config_can_be_copied_without_scrolling(visit: Visit, preset: str) -> None:
    page = visit(f"#preset={preset}&method=yarn&factor=4&keep=linear~4~", height=720)
    for name in ("#copy-config", "#dialect", "#copy-link"):
        box = page.locator(name).bounding_box()
        assert box["y"] + box["height"] <= 720, name
        inside = page.evaluate(
            "([x, y]) => document.elementFromPoint(x, y).id",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
        )
        assert f"#{inside}" == name  # and nothing lies upon it


def test_the_dialect_is_kept_and_the_other_offered(visit: Visit) -> None:
    page = visit("#preset=qwen3-8b&method=yarn&factor=4")
    until(lambda: page.locator("#dialect option").count() == 2)
    words = page.locator("#dialect option").all_inner_texts()
    assert words == ["transformers 4 (original)", "transformers 5"]

    def copied() -> dict[str, Any]:
        page.evaluate("navigator.clipboard.writeText('')")
        page.click("#copy-config")
        until(lambda: bool(page.evaluate("navigator.clipboard.readText()")))
        found: dict[str, Any] = json.loads(page.evaluate("navigator.clipboard.readText()"))
        return found

    old = copied()
    assert "rope_parameters" not in old
    assert old["rope_theta"] == 1_000_000
    assert old["rope_scaling"] == presets.load("qwen3-8b-yarn")["rope_scaling"]
    page.select_option("#dialect", "transformers 5")
    new = copied()
    assert "rope_theta" not in new
    assert new["rope_parameters"] == {**old["rope_scaling"], "rope_theta": 1_000_000}
    page.select_option("#method", "linear")  # the choice stays
    until(lambda: "Linear" in text(page, "#verdict"))
    assert "rope_parameters" in copied()


def test_a_loss_is_said_as_a_warning(visit: Visit) -> None:
    page = visit()
    config = {
        "model_type": "dbrx",
        "transformers_version": "4.40.0",
        "d_model": 256,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 4096,
        "attn_config": {"rope_theta": 500_000.0},
    }
    page.click("#paste summary")
    page.fill("#text", json.dumps(config))
    page.click("#read")
    page.select_option("#method", "yarn")
    says(page, "#config-warning", "Warning: this config is written for transformers 4")
    assert "loses rope_theta 500000 and the yarn scaling" in text(page, "#config-warning")
    page.select_option("#preset", "llama-2-7b")
    until(lambda: page.locator("#config-warning").is_hidden())


def test_every_block_says_which_config_it_is_about(visit: Visit) -> None:
    page = visit("#preset=qwen3-8b")
    heads = lambda: page.locator("#facts summary").all_inner_texts()  # noqa: E731
    layers = "full_attention: layers 0-35"
    assert heads() == [f"{layers}, as published", "How others read it, as published"]
    assert text(page, "#doctor-title") == "Diagnosis, as published"
    page.select_option("#method", "ntk_by_parts")
    until(lambda: "How others read it, as extended" in heads())
    assert heads()[:2] == [f"{layers}, as published", "How others read it, as published"]
    assert text(page, "#doctor-title") == "Diagnosis, as extended"
    page.locator("#facts summary").last.click()
    said = page.locator("#facts details").last.inner_text()
    assert re.search(r"mlx-lm 0\S+\s+differs \(attention scale\)", said)
    page.select_option("#method", "config")
    page.fill("#base-number", "5000000")
    page.press("#base-number", "Enter")
    until(lambda: heads() == [f"{layers}, as changed", "How others read it, as changed"])


@pytest.mark.parametrize("rows", [9, 20])
def test_the_report_of_a_comparison_fits_a_phone(browser: Any, tmp_path: Path, rows: int) -> None:
    pytest.importorskip("vl_convert")
    from whorl.lab.compare.page import render_page as report

    file = tmp_path / "report.html"
    file.write_text(report(comparison(rows)), encoding="utf-8")
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
        page = context.new_page()
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        ends = page.evaluate("""() => [...document.querySelectorAll('figure .narrow svg text')]
            .map((node) => node.getBoundingClientRect())
            .filter((box) => box.width > 0).map((box) => box.right)""")
        assert len(ends) > 20
        assert max(ends) <= 390
        assert page.locator("figure .wide svg:visible").count() == 0
        context.close()
