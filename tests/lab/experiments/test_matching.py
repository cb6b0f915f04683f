"""The experiment ``matching``: rows on made triplets and on files, its report, its errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from whorl import plots
from whorl.lab.experiments import (
    ExperimentPlan,
    RowMeasurement,
    RowRequest,
    find_experiment,
    load_result,
)
from whorl.lab.experiments.document import build_result
from whorl.lab.experiments.jobs import RowJob, check_jobs, list_configs, list_jobs, read_rows
from whorl.lab.experiments.matching import (
    PUBLISHED,
    check_row,
    find_line,
    list_published,
    run_row,
    shorten_row,
)
from whorl.lab.experiments.results import RowResults
from whorl.lab.experiments.tables import render_markdown
from whorl.lab.matching import TfIdf, make_triplets, read_triplets, split_fold
from whorl.lab.matching.options import MatchingOptions, list_texts, load_split

pytest.importorskip("altair")

TINY: dict[str, Any] = {
    "model": {"width": 8, "heads": 1},
    "training": {"length": 64, "steps": 2, "batch": 2},
    "data": {"length": 64, "tested": 5, "folds": 2},
}
TFIDF: dict[str, Any] = {**TINY, "model": {"scorer": "tf-idf"}}


def write_triplets(path: Path, count: int = 12) -> Path:
    """A file of made triplets in which B is the nearer one, as in CAIL2019-SCM."""
    lines = []
    for one in make_triplets(count, 128, seed=5):
        near, far = (one.second, one.first) if one.nearer else (one.first, one.second)
        lines.append(json.dumps({"A": one.anchor, "B": near, "C": far}))
    path.write_text("\n".join(lines))
    return path


def run(tables: dict[str, Any], folder: Path, seed: int = 0) -> RowMeasurement:
    return run_row(RowRequest(tables, seed, folder, lambda moment: None))


def test_rows_on_made_triplets(tmp_path: Path) -> None:
    found = run(TINY, tmp_path)
    assert 0 <= found.values["accuracy"] <= 1
    assert found.facts["trained_on"] == 4
    assert found.facts["tested"] == 5
    assert found.facts["parameters"] > 1000
    assert found.curves["training loss"]["x"] == [1.0, 2.0]
    assert run(TINY, tmp_path).values == found.values
    plain = run(TFIDF, tmp_path)
    made = load_split(MatchingOptions.from_tables(TFIDF), 0)
    expected = TfIdf(made.texts, length=64).test_triplets(made.test)  # type: ignore[arg-type]
    assert plain.values["accuracy"] == sum(expected) / 5
    assert "parameters" not in plain.facts
    pairs = {**TINY, "model": {**TINY["model"], "scorer": "sequences", "encoding": "learned"}}
    assert run(pairs, tmp_path).facts["parameters"] > found.facts["parameters"]


def test_seeds_are_folds_of_a_file(tmp_path: Path) -> None:
    path = write_triplets(tmp_path / "triplets.jsonl")
    tables = {**TFIDF, "data": {"files": [str(path)], "folds": 3}}
    options = MatchingOptions.from_tables(tables)
    splits = [load_split(options, seed) for seed in range(6)]
    for fold in range(3):
        assert splits[fold].test == split_fold(read_triplets(path), fold, folds=3)[1]
    assert sum(len(one.test) for one in splits[:3]) == 12
    again = split_fold(read_triplets(path, seed=1), 0, folds=3, seed=1)
    assert (splits[3].train, splits[3].test) == again
    found = run(tables, tmp_path)
    assert found.facts["file"] == 1
    assert found.facts["every"] == 12
    every = TfIdf(list_texts(splits[0].every), length=64).test_triplets(read_triplets(path))
    assert found.facts["every_accuracy"] == sum(every) / 12
    assert found.facts["unread"] == 0.5  # no text is in two triplets
    table = list_published([RowResults("tf-idf, 64", {0: found})], tmp_path)[1]
    assert table.title == "All 12 triplets of the file"
    assert table.rows[0] == ("tf-idf, 64", f"{100 * sum(every) / 12:.1f} %")
    assert table.rows[1] == ("texts counted, A not read", "50.0 %")


def test_a_plan_with_a_file(tmp_path: Path) -> None:
    path = write_triplets(tmp_path / "triplets.jsonl")
    plan = ExperimentPlan.from_budget("matching", "smoke", files=[str(path)])
    data = plan.rows[0].tables["data"]
    assert data["title"] == "triplets.jsonl: 12 triplets"
    assert check_jobs(plan, list_configs(plan)) == {
        "title": data["title"],
        "unit": "characters",
        "sha256": data["sha256"],
    }
    for job in list_jobs(plan):
        assert isinstance(job, RowJob)
        if "tf-idf" in job.name:
            (tmp_path / "runs" / job.name).mkdir(parents=True)
            job.write(tmp_path / "runs" / job.name, run(job.tables, tmp_path))
    rows, missing = read_rows(plan, tmp_path / "runs")
    assert [row.name for row in rows] == ["tf-idf, 128", "tf-idf, 256"]
    assert missing == ["rope-128-seed0", "rope-256-seed0"]
    where = {"date": "", "cpu": "", "cores": 1, "whorl": "", "torch": "", "python": ""}
    result = build_result(plan, rows, tmp_path, corpus={}, environment=where)
    assert [row["line"] for row in result["rows"]] == [
        {"name": "tf-idf", "x": 128},
        {"name": "tf-idf", "x": 256},
    ]
    assert plots.list_experiment_lines(result) == ["accuracy"]
    line = json.dumps(plots.experiment_lines(result, "accuracy").to_dict())
    for row, length in zip(rows, (128, 256), strict=True):
        point = {"x": length, "y": row.get_values("accuracy")[0]}
        assert json.dumps(point)[1:-1] in line
    assert result["settings"]["width"] == 16
    assert "length" not in result["settings"]
    path.write_text(path.read_text() + "\n")
    with pytest.raises(ValueError, match=r"has changed since the experiment began; start it again"):
        load_split(MatchingOptions.from_tables(plan.rows[0].tables), 0)


def test_labelled_texts_through_the_head_for_classification(tmp_path: Path) -> None:
    lines = [f"{'good' if n % 3 else 'bad'} film {n}\t{int(n % 3 > 0)}" for n in range(30)]
    path = tmp_path / "sst.tsv"
    path.write_text("sentence\tlabel\n" + "\n".join(lines))
    plan = ExperimentPlan.from_budget("matching", "smoke", files=[str(path)])
    tables = plan.rows[0].tables
    assert tables["data"]["title"] == "sst.tsv: 30 labelled texts"
    more = {**tables, "training": {**tables["training"], "steps": 40, "learning_rate": 0.01}}
    for one in (more, {**more, "model": {"scorer": "tf-idf"}}):
        found = run(one, tmp_path)
        assert found.values["accuracy"] == 1.0
        assert found.facts["labels"] == 2
        assert 0.4 < found.facts["guess"] < 1
    (table,) = list_published([RowResults("rope, 128", {0: found})], tmp_path)
    assert table.rows[0][0] == "rope, 128"
    assert len(table.rows) == 1  # the published ones are about triplets
    assert "Always the most frequent label:" in table.note


def test_published_rows_stand_below_ours(tmp_path: Path) -> None:
    facts = {"length": 64.0, "tested": 100.0, "trained_on": 300.0, "file": 1.0}
    facts |= {"labels": 0.0, "training_accuracy": 0.75}
    seeds = {n: RowMeasurement({"accuracy": 0.6 + n / 100}, facts=facts) for n in range(3)}
    (table,) = list_published([RowResults("rope, 64", seeds)], tmp_path)
    assert table.rows[0] == (
        "rope, 64",
        "64 characters",
        "300 triplets",
        "100 x 3",
        "61.0 % [58.5, 63.5]",
        "75.0 %",
    )
    assert table.rows[1] == (
        "BERT, published",
        "512 tokens of two texts together",
        "pre-trained, CAIL2019-SCM",
        "validation / test",
        "64.13 % / 67.77 %",
        "\u2013",
    )
    assert len(table.rows) == 1 + len(PUBLISHED)
    assert "Su et al. 2021, RoFormer, table 5" in table.note


def test_lines_and_shorter_rows() -> None:
    assert find_line(TINY) == ("rope", 64)
    assert find_line(TFIDF) == ("tf-idf", 64)
    sequences = {**TINY, "model": {"scorer": "sequences", "encoding": "learned"}}
    assert find_line(sequences) == ("learned, sequences", 64)
    long = {**TINY, "training": {"length": 64, "steps": 90}}
    assert shorten_row(long)["training"] == {"length": 64, "steps": 30}
    assert shorten_row(TINY)["training"]["steps"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"scorer": "document"}}, "model.scorer 'document' is unknown; did you mean"),
        ({"model": {"encoding": "rop"}}, "'rop'"),
        ({"model": {"width": 0}}, "model.width must be a whole number of at least 1; got 0"),
        ({"model": {"dropout": 2}}, "model.dropout must be a number from 0 to 0.95; got 2"),
        ({"training": {"steps": "x"}}, "training.steps must be a whole number"),
        ({"training": {"step": 3}}, r"\[training\] has no option 'step'; did you mean 'steps'"),
        ({"training": {"learning_rate": 0}}, "training.learning_rate must be a number above 0"),
        ({"data": {"folds": 1}}, "data.folds must be a whole number of at least 2; got 1"),
        ({"data": {"tested": 0}}, "data.tested must be a whole number of at least 1; got 0"),
        ({"data": {"files": "x"}}, "data.files must be a list; got 'x'"),
        ({"evaluation": {}}, "the table 'evaluation' is unknown"),
    ],
)
def test_wrong_rows(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_row({**TINY, **change})


def test_wrong_files(tmp_path: Path) -> None:
    describe = find_experiment("matching").describe_files
    assert describe is not None
    with pytest.raises(ValueError, match=r"matching reads one file, .* got 2\.$"):
        describe(["a.jsonl", "b.jsonl"])
    with pytest.raises(ValueError, match=r"the name must end in \.jsonl .* got 'a\.txt'\."):
        describe(["a.txt"])
    with pytest.raises(ValueError, match=r"'a\.tsv' cannot be read"):
        describe(["a.tsv"])


@pytest.mark.parametrize("name", ["made", "cail"])
def test_published_results_are_those_of_the_page(name: str) -> None:
    """The numbers of docs/matching.md are in the files that it names."""
    root = Path(__file__).parents[3]
    page = (root / "docs" / "matching.md").read_text(encoding="utf-8")
    (path,) = (root / "benchmarks").glob(f"*-matching-{name}-experiment.json")
    assert path.name in page
    result = load_result(path)
    assert result["sentence"] in page
    assert result["sentence"] in render_markdown(result)
    for row in result["rows"]:
        share = 100 * row["values"]["accuracy"]["mean"]
        assert f"| {share:.1f} %" in page
