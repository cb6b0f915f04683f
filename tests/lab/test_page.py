"""The report page: it stands alone, escapes what users name, and says what the numbers say."""

import html.parser
import math
import re
from typing import Any

import pytest

from tests.fresh import run_fresh
from tests.plots.lab_document import QUICK, comparison
from whorl import plots
from whorl.lab.compare.page import render_page

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

HOSTILE = "<script>alert('x')</script>&\""


class Parser(html.parser.HTMLParser):
    """Tags, their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def whole() -> str:
    """A page with real charts and hostile words in every text of the document."""
    document = comparison(3)
    document["rows"][0].update(name=HOSTILE, trained_as=HOSTILE, encoding=HOSTILE)
    document["rows"][1]["trained_as"] = HOSTILE
    document["corpus"].update(title=f"{HOSTILE}\udcff", unit="bytes")
    document["environment"].update(command=f"whorl compare --data {HOSTILE}", cpu=HOSTILE)
    document["claims"][0].update(claim=HOSTILE, published=HOSTILE, evidence=HOSTILE)
    document["claims"][1]["url"] = "javascript:alert(1)"
    document["claims"][2]["outcome"] = HOSTILE
    document["unfinished"] = [{"name": HOSTILE, "reason": HOSTILE}]
    document["notes"] = [HOSTILE]
    return render_page(document)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``page`` without the time that charts take."""
    monkeypatch.setattr(plots, "svg", lambda chart, theme: "<svg></svg>")
    for name in ("lengths", "costs", "positions", "training"):
        monkeypatch.setattr(plots, f"lab_{name}", lambda comparison, width="page": None)
    return render_page


@pytest.mark.slow
def test_it_is_well_formed_and_loads_nothing(whole: str) -> None:
    parsed = Parser(whole)
    assert parsed.open == []
    for tag, attributes in parsed.found:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
            address = attributes.get(name)
            assert address is None or (tag == "a" and address.startswith("https://"))
    assert {"link", "img", "iframe", "object", "base"}.isdisjoint({t for t, _ in parsed.found})
    assert "@import" not in whole
    assert all(found.startswith("#") for found in re.findall(r"url\(['\"]?(.)", whole))
    policy = next(a for t, a in parsed.found if a.get("http-equiv"))
    assert policy["content"] is not None
    assert policy["content"].startswith("default-src 'none'")


@pytest.mark.slow
def test_words_of_users_are_escaped(whole: str) -> None:
    whole.encode()  # a path that is no UTF-8 does not break the file
    parsed = Parser(whole)
    assert [tag for tag, _ in parsed.found].count("script") == 1  # its own
    assert "alert('x')</script>" not in whole
    assert parsed.text.count(HOSTILE) >= 12
    assert not any("javascript:" in str(value) for _, a in parsed.found for value in a.values())


@pytest.mark.slow
def test_charts_are_inside_in_both_themes_with_ids_of_their_own(whole: str) -> None:
    parsed = Parser(whole)
    assert [tag for tag, _ in parsed.found].count("svg") == 14
    classes = [attributes.get("class") for tag, attributes in parsed.found if tag == "div"]
    assert classes.count("light") == classes.count("dark") == 7
    assert classes.count("wide") == classes.count("narrow") == 3  # the charts of lines
    ids = [str(attributes["id"]) for _, attributes in parsed.found if "id" in attributes]
    assert ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", whole)) <= set(ids)


@pytest.mark.slow
def test_two_charts_are_beside_each_other() -> None:
    whole = render_page(comparison())
    start = whole.index('<div class="pair">')
    pair = whole[start : whole.index("<h2>Results</h2>")]
    assert pair.count("<figure") == 2
    assert pair.index("Loss by evaluation length") < pair.index("How fast they learn")
    widths = [int(width) for width in re.findall(r'<svg [^>]*?width="(\d+)', pair)]
    assert len(widths) == 8
    assert all(width <= 540 for width in widths)  # two fit into a page
    assert sum(width <= 400 for width in widths) == 4  # for phones


def test_the_order_of_the_page(plain: Any) -> None:
    text = plain(comparison(seeds=3))
    wanted = [
        "<h1>",
        '<p class="lead">For texts longer than trained, choose alibi or kerple: after 350',
        '<div class="pair">',
        "<h2>Results</h2>",
        ">last tenth</button>",
        "</table>",
        'aria-label="dots and bars by encoding"',
        "<h2>Published claims, tested here</h2>",
        "<h3>How fast it learns</h3>",
        "RoPE needs fewer steps than learned positions",
        "<h3>How well it does when it has learned (8 of 8 curves are flat)</h3>",
        "Learned positions break",
        "<h2>In detail</h2>",
        'aria-label="lines by position"',
        "<h2>What this size can show</h2>",
        "<h2>Settings</h2>",
        "<h2>Reproduce</h2>",
        "<h2>Notes</h2>",
    ]
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)
    assert "(3 seeds, 3 layers, width 96, 350 steps).</p>" in text


def test_a_page_without_curves_or_positions(plain: Any) -> None:
    document = comparison()
    for row in document["rows"]:
        row.pop("curve", None)
        del row["by_position"]
    text = plain(document)
    assert text.count("<figure") == 2  # by length, and costs
    assert "In detail" not in text


def test_rows_are_in_order_of_the_longest_length_and_the_best_is_bold(plain: Any) -> None:
    text = plain(comparison())
    names = re.findall(r'<th scope="row" data-v="([^"]+)"', text)
    assert names[:2] == ["alibi", "kerple"]
    assert names[-1] == "learned"
    assert sorted(names) == sorted(QUICK)
    bold = re.findall(r"<b>([^<]+)</b>", text)
    alibi, xpos, rope = ["2.04", "2.05", "2.06", "2.08", "+0.06"], ["2.04"], ["1.99", "1.89"]
    assert bold == [*alibi, *xpos, *rope, "15,700", "227"]
    assert 'aria-sort="ascending"><button type="button">2048</button>' in text
    assert 'title="trained as rope">rope+yarn</th>' in text
    assert text.count("<small>") == 0


def test_no_change_is_not_a_fall(plain: Any) -> None:
    document = comparison(1)
    cells = document["rows"][0]["by_length"]
    cells["2048"]["mean"] = cells["128"]["mean"] - 1e-6
    document["settings"]["layers"] = 1
    text = plain(document)
    assert "<b>+0.00</b>" in text
    assert "1 layer, width 96, heads 4" in text


def test_several_seeds_show_half_the_interval(plain: Any) -> None:
    text = plain(comparison(3, seeds=3))
    assert "<small>\u00b10.02</small>" in text
    assert "\u00b1 half the interval over the seeds" in text


def test_without_intervals_values_have_no_range(plain: Any) -> None:
    assert re.findall(r'<td class="heat"[^>]*title', plain(comparison()))
    document = comparison()
    for row in document["rows"]:
        for cell in row["by_length"].values():
            cell.update(low=None, high=None)
    assert re.findall(r'<td class="heat"[^>]*title', plain(document)) == []


def test_a_row_without_numbers_stands_last(plain: Any) -> None:
    document = comparison()
    document["rows"][5]["by_length"]["2048"]["mean"] = math.nan
    text = plain(document)
    assert re.findall(r'<th scope="row" data-v="([^"]+)"', text)[-1] == "alibi"


def test_differences_stand_below_the_results(plain: Any) -> None:
    document = comparison(2, seeds=3)
    by_length = {str(n): {"mean": 0.1, "low": 0.05, "high": 0.15} for n in (64, 2048)}
    document["rows"][1]["against"] = {"name": HOSTILE, "by_length": by_length}
    text = plain(document)
    assert "+0.10 \u00b10.05" in text
    assert HOSTILE not in text
    assert "paired by seed: mean and 95 % interval over 3 seeds" in Parser(text).text


def test_accuracy_is_in_points_and_more_is_better(plain: Any) -> None:
    document = comparison(measure="accuracy")
    document["corpus"] = {"title": "find the key", "unit": "bytes"}
    document["settings"].update(precision="bfloat16")
    text = plain(document)
    assert re.findall(r'<th scope="row" data-v="([^"]+)"', text)[0] == "alibi"
    assert 'aria-sort="descending"' in text
    assert "<b>-8.0</b>" in text
    words = Parser(text).text
    assert "precision bfloat16" in words
    assert "corpus find the key" in words
    assert "corpus size" not in words
    assert "rope is best with 92.3 %" in words


def test_claims_settings_and_notes(plain: Any) -> None:
    text = plain(comparison())
    for outcome in ("reproduced", "not-reproduced", "not-decidable", "not-yet"):
        words = f"{outcome.replace('-', ' ')} (1 seed, 3 layers)"
        assert f'<p class="outcome {outcome}">{words}</p>' in text
    assert '<a href="https://arxiv.org/abs/2108.12409" rel="noreferrer">Press et al. 2021' in text
    words = Parser(text).text
    for wanted in (
        "350 steps of 16 x 128",
        "18,000,000 bytes in 1,200 files, 120 held out",
        "pip install 'whorl[lab]==0.1.0' whorl compare",
        "Some CPU, 2 cores, 2026-11-16; whorl 0.1.0, torch 2.13.0+cpu, Python 3.11.2.",
        "381,600 parameters at most, trained on 716,800 bytes, answers two questions.",
        "Not finished: deberta: the time of --minutes 8 was over",
        "one seed: intervals are over evaluation windows only.",
    ):
        assert wanted in words


def test_a_page_of_nothing(plain: Any) -> None:
    document = {**comparison(), "rows": [], "claims": [], "notes": [], "unfinished": []}
    text = plain(document)
    assert "No run has finished, so there is nothing to compare yet." in text
    assert "<table" not in text
    assert "Notes" not in text
    assert "Published claims" not in text


def test_one_length_has_no_change(plain: Any) -> None:
    document = comparison(1)
    document["settings"]["lengths"] = [128]
    text = plain(document)
    assert "1 times the trained length" not in text
    assert ">128 to 128<" not in text


def test_importing_it_is_light() -> None:
    found = run_fresh("import whorl.lab.compare.page, whorl.lab.compare.tables")
    assert (found.error, found.packages) == (None, [])


def test_accuracy_is_a_column_of_the_page(plain: Any) -> None:
    document = comparison(2)
    assert "accuracy" not in Parser(plain(document)).text
    document["rows"][0]["by_length"]["128"]["accuracy"] = 0.625
    text = plain(document)
    assert "accuracy at 128" in Parser(text).text
    assert '<td data-v="0.625"><b>62.5 %</b></td>' in text
