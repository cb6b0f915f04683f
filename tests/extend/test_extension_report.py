"""The verdict on made-up numbers: a clear winner, a tie, nothing better, a lower window."""

from typing import Any

import pytest

from whorl import plots
from whorl.extend.evaluation.effective import compute_means, find_effective_lengths
from whorl.extend.evaluation.page import render_page
from whorl.extend.evaluation.ranking import choose_method, find_best, is_clear
from whorl.extend.evaluation.report import list_tables, render_markdown, write_verdict


def make_cell(loss: float, noise: float = 0.01) -> dict[str, Any]:
    blocks = [loss + noise * (-1) ** n for n in range(8)]
    return {"loss": loss, "blocks": blocks}


def make_document(**losses: float) -> dict[str, Any]:
    """Losses at the target of 4096; 1 nat at the trained 1024 for all, 1.1 for yarn."""
    rows = []
    for name, loss in losses.items():
        near = 1.1 if name == "yarn" else 1.0
        runs = [] if name in ("sliding_window", "dynamic_yarn") else ["transformers 5"]
        cells = {"1024": make_cell(near), "4096": make_cell(loss, 0.01 if runs else 0.02)}
        curve = {"end": [2048.0, 4096.0], "loss": [1.0, loss]}
        position = None if name == "sliding_window" else curve
        rows.append({"name": name, "run_by": runs, "by_length": cells, "by_position": position})
    return {
        "model": "tiny",
        "trained": 1024,
        "trained_why": "It was given.",
        "target": 4096,
        "lengths": [1024, 4096],
        "windows": 2,
        "scored": 128,
        "rows": rows,
        "retrieval": None,
        "missing": [],
        "recipes": None,
    }


def make_retrieval() -> dict[str, Any]:
    """Everything is found at the trained length, a quarter by yarn at the target."""
    forms = {
        "passkey": {
            "none": {"1024": [1.0, 1.0], "4096": [0.0, 0.0]},
            "yarn": {"1024": [1.0, 1.0], "4096": [0.5, 0.0]},
            "sliding_window": {"1024": [1.0, 1.0], "4096": [0.0, 1.0]},
        }
    }
    means = compute_means(forms)
    return {
        "depths": [0.1, 0.9],
        "texts": 2,
        "forms": forms,
        "why": {"several_keys": "it cannot."},
        "means": means,
        "effective": find_effective_lengths(means, 1.0),
    }


def test_a_clear_winner() -> None:
    found = make_document(none=4.0, linear=2.0, yarn=1.2, sliding_window=1.3)
    assert find_best(found, 4096) == ["yarn"]
    first, second = write_verdict(found)
    assert first == (
        "yarn has the lowest perplexity at 4,096 tokens, 3.32; as published it is 54.60."
    )
    assert second == (
        "In texts of 1,024 tokens yarn changes it from 2.72 to 3.00. A sliding window of 1,024"
        " tokens gives 3.67 there."
    )


def test_a_method_that_no_framework_runs_is_not_chosen() -> None:
    found = make_document(none=4.0, dynamic_yarn=1.0, yarn=1.2, sliding_window=1.3)
    assert find_best(found, 4096) == ["yarn"]


def test_too_close_to_call() -> None:
    found = make_document(none=4.0, yarn=1.2, sliding_window=1.0)
    noisy = make_cell(1.21, 0.0)
    noisy["blocks"] = [1.21 + 0.2 * (-1) ** (n // 2) for n in range(8)]
    found["rows"].insert(0, {**found["rows"][1], "name": "ntk", "by_length": {"4096": noisy}})
    assert find_best(found, 4096) == ["yarn", "ntk"]
    first, second = write_verdict(found)
    assert "3.32 (ntk: too close to call); as published" in first
    assert second.endswith(
        "2.72 there, which is lower, but cannot find what lies before the window."
    )


def test_nothing_is_better_than_published() -> None:
    first, second = write_verdict(make_document(none=1.2, yarn=1.3, sliding_window=1.3))
    assert first == (
        "No method is clearly better than the published rotation at 4,096 tokens: perplexity 3.32"
        " as published."
    )
    assert second.startswith("A sliding window of 1,024 tokens gives 3.67 there.")


def test_a_difference_is_clear_beyond_two_standard_errors() -> None:
    assert is_clear([1.0, 1.0, 1.0], [1.1, 1.2, 1.1])
    assert not is_clear([1.0, 1.0, 1.0], [1.1, 0.9, 1.1])
    assert not is_clear([1.0], [5.0])


def test_markdown() -> None:
    found = make_document(none=25.0, yarn=1.2, sliding_window=1.3)
    text = render_markdown(found)
    assert "| perplexity at | 1,024* | 4,096 |" in text
    assert text.index("| yarn | 3.00 | **3.32** |") < text.index("| none | **2.72** | e^25 |")
    assert "| 4,096 | yarn | 3.32 | e^25 | 3.67 | +10.5% |" in text
    assert "Retrieval" not in text


def test_retrieval() -> None:
    found = make_document(none=25.0, yarn=1.2, sliding_window=1.3)
    found["retrieval"] = make_retrieval()
    text = render_markdown(found)
    assert "| right answers at | 1,024* | 4,096 | over 85.6% | 85% of own |" in text
    assert "| yarn | 100% | 25% | 1,024 | 1,024 |" in text
    assert "| sliding_window | 100% | 50% | 1,024 | 1,024 |" in text
    assert "so not its score" in text
    assert "Retrieval, several keys, was not measured: it cannot." in text
    assert write_verdict(found)[2] == (
        "With yarn it finds 25% of what was hidden in such texts, in the sliding window 50%."
    )
    assert choose_method(found, ["none", "yarn"]) == "yarn"
    assert choose_method({**found, "retrieval": None}, ["none", "yarn"]) == "none"
    other = {**found, "recipes": {"method": "ntk", "recipes": []}}
    assert write_verdict(other)[3] == "Of those too close to call, ntk finds most: write that."
    found["retrieval"]["means"]["none"]["4096"] = 0.75
    assert ", with none 75%, in the sliding" in write_verdict(found)[2]


def test_what_the_time_was_too_short_for() -> None:
    found = make_document(none=4.0, linear=2.0, yarn=1.2, sliding_window=1.3)
    found["missing"] = [f"cell {n}" for n in range(8)]
    del found["rows"][1]["by_length"]["4096"]
    text = render_markdown(found)
    assert "| linear | **2.72** | - |" in text or "| linear | 2.72 | - |" in text
    assert "too short: cell 0, cell 1, cell 2, cell 3, cell 4, cell 5 and 2 more. The same" in text
    close = [
        *found["rows"],
        {**found["rows"][2], "name": "ntk"},
        {**found["rows"][2], "name": "llama3"},
    ]
    assert "| 4,096 | yarn +2 | 3.32 |" in render_markdown({**found, "rows": close})
    del found["rows"][0]["by_length"]["4096"]
    (only,) = write_verdict(found)
    assert only.startswith("Nothing can be said about 4,096 tokens yet: the time was too short for")
    for row in found["rows"]:
        row["by_length"].pop("4096", None)
    assert find_best(found, 4096) == []
    assert [table.title for table in list_tables(found)] == ["Perplexity by length"]


def test_a_page() -> None:
    pytest.importorskip("vl_convert")
    found = make_document(none=4.0, linear=2.0, yarn=1.2, sliding_window=1.3)
    found["model"] = "<b>tiny"
    text = render_page(found, command="whorl extend --to 4x")
    assert "<h1>&lt;b&gt;tiny to 4,096 tokens</h1>" in text
    assert text.count("<svg") == 8  # two charts, each in two widths and two themes
    assert "<td><b>3.32</b></td>" in text
    assert "Nothing: no method is clearly better" in text
    assert "<script src" not in text
    found["retrieval"] = make_retrieval()
    recipe = {"framework": "vLLM", "form": "command", "text": "vllm serve <M>", "note": None}
    found["recipes"] = {"method": "yarn", "recipes": [recipe]}
    text = render_page(found)
    assert text.count("<svg") == 10
    assert "<h3>yarn for vLLM, command</h3><pre>vllm serve &lt;M&gt;</pre>" in text
    assert "Reproduce" not in text


def test_charts() -> None:
    pytest.importorskip("altair")
    found = make_document(none=4.0, linear=2.0, yarn=1.2, sliding_window=1.3)
    both = plots.extension(found).to_dict()
    assert len(both["vconcat"]) == 2
    text = str(both)
    assert "sliding_window" in text
    assert "trained at 1,024" in text
    for row in found["rows"]:
        row["by_position"] = None
    with pytest.raises(ValueError, match="no row of the document has numbers for this chart"):
        plots.extension_positions(found)
    with pytest.raises(ValueError, match="extension_retrieval: the document has no results of"):
        plots.extension_retrieval(found)
    found["retrieval"] = make_retrieval()
    cells = plots.extension_retrieval(found).to_dict()["data"]["values"]
    assert len(cells) == 3 * 2 * 2
    assert {
        "form": "passkey",
        "method": "yarn",
        "length": "4,096",
        "depth": "10%",
        "share": 0.5,
    } in (cells)
