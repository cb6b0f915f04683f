"""``whorl extend --search``: the row, the verdict, what to write, and what it refuses."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.extend.weights import TEXT, save_llama
from whorl.configs import read_config

from .conftest import Whorl


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    save_llama(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(2 * TEXT, encoding="utf-8")
    quick = ["--methods", "yarn", "--windows", "1", "--search", "text", "--evaluations", "3"]
    return ["extend", "tiny", "--to", "4x", "--text", "text.txt", *quick]


def test_a_search(whorl: Whorl, command: list[str], tmp_path: Path) -> None:
    done = whorl(*command)
    assert done.code == 0, done.err
    page = " ".join(done.out.split())
    assert "YaRN tuned by as many evaluations (3) at 256 tokens of held-out text" in page
    assert "What to write for searched" in page
    assert '"long_factor": [' in page
    assert "kept in runs/extend-tiny-256-searched" in page
    assert "--method searched" not in page  # which no config alone can ask for
    rows = [line.split()[0] for line in done.out.splitlines() if line.split()]
    assert {"searched", "tuned_yarn", "yarn"} <= set(rows)
    folder = tmp_path / "runs" / "extend-tiny-256-searched"
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "YaRN tuned by as many evaluations (3)" in report
    written = json.loads((folder / "config.searched.json").read_text(encoding="utf-8"))
    (group,) = read_config(written).groups
    assert group.rotation is not None
    again = whorl(*command, "--json")
    found = json.loads(again.out)["search"]
    scaling = group.rotation.options["scaling"].to_dict()
    assert list(scaling["long_factors"]) == list(found["searched"]["scaling"]["long_factors"])
    assert found["settings"]["evaluations"] == 3
    assert {each["framework"] for each in found["recipes"]} >= {"transformers 5", "vLLM"}


@pytest.mark.slow
def test_needles_search_for_a_critical_pair(whorl: Whorl, command: list[str]) -> None:
    needles = ["--to", "4x", "--search", "needles", "--evaluations", "2", "--retrieval", "0"]
    done = whorl(*command, *needles, "--json")
    found = json.loads(done.out)["search"]
    pair = found["searched"]["critical_pair"]
    assert found["verdict"].endswith(f" The critical pair is number {pair} from 0.")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--search", "words"], "--search must be one of text, needles; got 'words'."),
        (["--evaluations", "0"], "--evaluations must be a whole number of at least 1; got 0."),
        (["--minutes", "1e-9"], "lower --evaluations or windows, or raise --minutes."),
    ],
)
def test_a_wrong_search(whorl: Whorl, command: list[str], more: list[str], message: str) -> None:
    done = whorl(*command, *more)
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.split())


def test_a_search_needs_weights_and_its_settings_a_search(whorl: Whorl) -> None:
    done = whorl("extend", "qwen3-8b", "--to", "4x", "--search", "text")
    assert done.code == 2
    assert (
        "--search and --force are about weights; add --text FILE, or leave them out."
        in " ".join(done.err.split())
    )
    done = whorl("extend", "qwen3-8b", "--to", "4x", "--evaluations", "8")
    assert done.code == 2
    assert "--evaluations is about a search; add --search text, or leave it out." in done.err
