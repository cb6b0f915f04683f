"""One number for one thing: inspect, plot, explorer and README do not contradict each other."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.test_tables import PROMISE
from tests.presets import VARIED_PRESETS
from whorl import plots
from whorl.configs import presets, read_config
from whorl.configs.inspection import GroupReport, inspect
from whorl.configs.inspection.lengths import limit_by_window
from whorl.configs.inspection.words import list_facts
from whorl.explore import api
from whorl.explore.state import ExplorerState
from whorl.plots import catalogue

ROOT = Path(__file__).resolve().parents[3]
MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
}


def cases() -> list[Any]:
    found = []
    for name in VARIED_PRESETS:
        for index, group in enumerate(read_config(presets.load(name)).groups):
            if group.rotation is not None and group.rotation.encoding == "rope":
                found.append(pytest.param(name, index, id=f"{name}-{group.name}"))
    assert len(found) > 12
    return found


def report_of(name: str, index: int) -> GroupReport:
    return inspect(name).groups[index]


@pytest.mark.parametrize(("name", "index"), cases())
def test_pairs_that_turn_fully_as_rotated(name: str, index: int) -> None:
    found = inspect(name)
    report = found.groups[index]
    assert report.claimed is not None
    names = [one.group.name for one in found.groups]
    own = report.group.name
    options = {"layer_type": own} if own is not None and names.count(own) == 1 else {}
    drawn = catalogue.numbers("wavelengths", config=name, **options).to_dict()
    assert drawn["context"] == report.claimed.tokens
    assert drawn["full_turns"] == report.claimed.complete
    shown = api.answer_view(ExplorerState(), {"source": {"preset": name}, "group": index})
    within = limit_by_window(shown["claimed"], shown["window"])
    assert within == report.claimed.tokens
    waves = [w for w in shown["curves"][0]["wavelengths"] if w is not None]
    assert sum(w > within for w in waves) == report.claimed.never
    assert (
        f"{report.claimed.never} of {report.pairs}" in dict(list_facts(report))["long wavelengths"]
    )


def test_llama_3_1_everywhere() -> None:
    report = report_of("llama-3.1-8b", 0)
    assert report.trained is not None
    assert report.claimed is not None
    assert (report.trained.never, report.claimed.never) == (29, 25)
    drawn = catalogue.numbers("wavelengths", config="llama-3.1-8b").to_dict()
    assert 64 - drawn["full_turns"] == 25


@pytest.mark.parametrize(("name", "index"), cases())
def test_turns_in_training_are_those_of_the_count(name: str, index: int) -> None:
    report = report_of(name, index)
    if report.trained is None:
        return
    assert report.description is not None
    turns = [pair.rotations for pair in report.description.pairs if pair.status != "unused"]
    assert sum(one is not None and one < 1 for one in turns) == report.trained.never


def test_turns_in_training_stop_at_the_window() -> None:
    (report,) = inspect(MISTRAL, extend="yarn", factor=4).groups
    assert report.extension is not None
    for found in (report.description, report.extension.before, report.extension.after):
        assert found is not None
        first = found.pairs[0]
        assert first.wavelength is not None
        assert first.rotations == pytest.approx(4096 / first.wavelength)


@pytest.mark.parametrize("name", ["deepseek-v3", "glm-4-9b", "llama-2-7b"])
def test_channels_of_a_head(name: str) -> None:
    found = inspect(name)
    (report,) = found.groups
    said = {"deepseek-v3": "64 of 192", "glm-4-9b": "64 of 128", "llama-2-7b": "128 of 128"}[name]
    assert dict(list_facts(report))["channels"].startswith(f"{said} rotate")
    chart = plots.inspection(found.to_dict()).to_dict()
    assert f"{said} channels" in chart["title"]["subtitle"][0]
    shown = api.answer_report(ExplorerState(), {"source": {"preset": name}})
    assert dict(shown["groups"][0]["facts"])["channels"].startswith(f"{said} rotate")
    words = "all 128" if said == "128 of 128" else said
    assert f"rotate {words} channels of a head" in found.verdict == shown["verdict"]


@pytest.mark.parametrize("by", ["yarn", "linear", "ntk_by_parts"])
@pytest.mark.parametrize("name", ["qwen3-8b", "mistral-7b-v0.3", "llama-2-7b"])
def test_an_extension_starts_from_one_length(name: str, by: str) -> None:
    found = inspect(name, extend=by, factor=4)
    (report,) = found.groups
    assert report.extension is not None
    choice = {"method": by, "factor": 4.0}
    asked = {"source": {"preset": name}, "length": report.extension.length}
    curve = api.answer_view(ExplorerState(), {**asked, "choices": [choice]})["curves"][1]
    assert curve["reach"] == report.extension.after.effective_context
    waves = [pair.new_wavelength for pair in report.extension.after.pairs]
    assert curve["wavelengths"] == pytest.approx(waves)
    shown = api.answer_report(ExplorerState(), {"source": {"preset": name}, "choice": choice})
    assert shown["verdict"] == found.verdict


@pytest.mark.parametrize("trained", [None, 32_768])
@pytest.mark.parametrize("name", ["qwen3-8b", "mistral-7b-v0.3", "llama-2-7b"])
def test_an_extension_leaves_the_turns_of_the_published_config(
    name: str, trained: int | None
) -> None:
    (plain,) = inspect(name, trained=trained).groups
    (report,) = inspect(name, trained=trained, extend="ntk_by_parts", factor=4).groups
    assert plain.description is not None
    assert report.extension is not None
    assert report.trained == plain.trained
    published = [pair.rotations for pair in plain.description.pairs]
    assert [pair.rotations for pair in report.extension.before.pairs] == published


def test_the_readme_says_which_error_is_promised_and_which_was_measured() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| whorl \|(.*)\|$", table.split("bench:accuracy")[1], re.M)
    measured = max(map(float, row.split("|")))
    promised = re.findall(r"within (\de-\d+) of the truth .* are promised", readme)
    said = re.findall(r"(\de-\d+) was measured", readme)
    assert [float(each) for each in (*promised, *said)] == [PROMISE, measured]
    assert measured <= PROMISE
    assert len(re.findall(r"\de-8", readme)) == 2
