"""``whorl.extend.search``: known optima are found, stopped searches go on, losses are true."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("transformers")

from tests.peers import needs_transformers_5
from whorl.extend.evaluation import ExtensionTest, LoadedModel, evaluate_methods, load_model
from whorl.extend.evaluation.results import ResultFile
from whorl.extend.search import (
    FactorSearch,
    SearchProgress,
    plan_outcomes,
    search_factors,
    split_text,
    write_search_verdict,
)
from whorl.extend.search.critical import CriticalFactors
from whorl.extend.search.evolution import SearchOutcome, run_evolution
from whorl.extend.search.spaces import PairFactors, SearchSpace, YaRNOptions
from whorl.extend.search.texts import build_search_texts
from whorl.scaling import LongRoPE, Scaling, YaRN

from .weights import TEXT, build_llama, save_llama

pytestmark = needs_transformers_5

PLANTED = (1.0, 1.0, 1.1, 1.3, 2.4, 3.1, 3.9, 4.8)
LINEAR, NTK = [4.0] * 8, [4 ** (n / 7) for n in range(8)]
QUICK = FactorSearch(evaluations=6, population=4, windows=1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(save_llama(tmp_path_factory.mktemp("llama") / "tiny"))


def compute_distance(scaling: Scaling) -> float:
    """Zero at PLANTED, and more the farther the factors are from it."""
    assert isinstance(scaling, LongRoPE)
    pairs = zip(scaling.long_factors, PLANTED, strict=True)
    return sum(math.log(a / b) ** 2 for a, b in pairs)


def run(
    space: SearchSpace, compute_loss: Any, folder: Path | None = None, **options: Any
) -> SearchOutcome:
    settings = FactorSearch(**options)
    results = ResultFile(folder, {"seed": settings.seed})
    return run_evolution(space, compute_loss, settings, results, lambda label, loss: None)


@pytest.mark.parametrize("seed", range(3))
def test_planted_factors_are_found(seed: int) -> None:
    space = PairFactors([LINEAR, NTK], trained=64, target=256)
    found = run(space, compute_distance, evaluations=800, seed=seed)
    assert isinstance(found.scaling, LongRoPE)
    assert len(found.losses) == 800
    assert found.loss == compute_distance(found.scaling) == found.losses[-1]
    assert found.scaling.long_factors == pytest.approx(PLANTED, rel=0.15)
    start = min(compute_distance(space.build_scaling(first)) for first in space.list_first())
    assert found.loss < start / 50


def test_planted_options_of_yarn_are_found() -> None:
    def compute(scaling: Scaling) -> float:
        assert isinstance(scaling, YaRN)
        options = (scaling.factor, scaling.beta_fast, scaling.beta_slow)
        return sum(math.log(a / b) ** 2 for a, b in zip(options, (6.0, 8.0, 2.0), strict=True))

    found = run(YaRNOptions(64, 256), compute, evaluations=200)
    assert isinstance(found.scaling, YaRN)
    options = (found.scaling.factor, found.scaling.beta_fast, found.scaling.beta_slow)
    assert options == pytest.approx((6.0, 8.0, 2.0), rel=0.1)
    assert found.losses[0] == compute(YaRN(4.0, 64))  # it starts with YaRN as it is


def test_a_search_depends_on_its_seed_alone() -> None:
    space = PairFactors([LINEAR, NTK], 64, 256)
    one, same, other = (run(space, compute_distance, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.scaling != other.scaling


@pytest.mark.parametrize("space", [PairFactors([LINEAR, NTK], 64, 256), YaRNOptions(64, 256)])
def test_candidates_stay_within_the_limits(space: SearchSpace) -> None:
    source = random.Random(0)
    known = space.list_first()
    for _ in range(300):
        one, other = source.choice(known), source.choice(known)
        for made in (space.mutate(one, source), space.cross(one, other, source)):
            scaling = space.build_scaling(made)  # YaRN refuses a beta_fast below beta_slow
            if isinstance(scaling, LongRoPE):
                assert list(made) == sorted(made)
                assert 1 <= made[0] <= made[-1] <= 1.25 * 4
            known.append(made)
    assert len(set(known)) > 300


# Rotations in 100 tokens: 15.9, 12.7, 9.5, 8.0, 1.6, 1.3, 0.95, 0.16.
INV_FREQ = (1.0, 0.8, 0.6, 0.5, 0.1, 0.08, 0.06, 0.01)


def build_critical() -> CriticalFactors:
    return CriticalFactors(INV_FREQ, trained=100, target=400)


def test_critical_pairs_lie_between_ten_rotations_and_one() -> None:
    space = build_critical()
    first = space.list_first()
    assert [space.find_critical_pair(each) for each in first] == [6, 5, 4, 3, 2]
    scaling = space.build_scaling((4.0, 5.0, 6.0, 6.0, 7.0))
    expected = [*(5 ** (n / 4) for n in range(4)), 5, 6, 6, 7]  # a raised base before pair 4
    assert scaling.long_factors == pytest.approx(expected, abs=1e-4)
    everywhere_fast = CriticalFactors((1.0, 0.9), trained=1000, target=2000)
    assert everywhere_fast.list_first() == [(1.0, 2.0)]


def test_factors_from_the_critical_pair_on_stay_within_the_limits() -> None:
    space, source = build_critical(), random.Random(0)
    known = space.list_first()
    for _ in range(300):
        one, other = source.choice(known), source.choice(known)
        for made in (space.mutate(one, source), space.cross(one, other, source)):
            critical, *factors = made
            assert 2 <= critical <= 6
            assert len(factors) == 8 - critical
            assert factors == sorted(factors)
            assert 4 <= factors[0] <= factors[-1] <= 8
            whole = space.build_scaling(made).long_factors
            assert list(whole) == sorted(whole)
            known.append(made)
    assert {each[0] for each in known} == {2, 3, 4, 5, 6}


def test_a_planted_critical_pair_is_found() -> None:
    space = build_critical()
    planted = space.build_scaling((3.0, 4.4, 4.4, 5.5, 6.0, 6.5)).long_factors

    def compute(scaling: Scaling) -> float:
        assert isinstance(scaling, LongRoPE)
        pairs = zip(scaling.long_factors, planted, strict=True)
        return sum(math.log(a / b) ** 2 for a, b in pairs)

    found = run(space, compute, evaluations=600)
    assert found.critical_pair == 3
    assert found.to_dict()["critical_pair"] == 3
    assert isinstance(found.scaling, LongRoPE)
    assert found.scaling.long_factors == pytest.approx(planted, rel=0.1)
    assert found == run(space, compute, evaluations=600)


@pytest.mark.parametrize("after", [1, 5, 17, 40])
def test_a_stopped_search_goes_on_with_the_same_bits(tmp_path: Path, after: int) -> None:
    space = PairFactors([LINEAR, NTK], 64, 256)
    calls = 0

    def stop(scaling: Scaling) -> float:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return compute_distance(scaling)

    with pytest.raises(KeyboardInterrupt):
        run(space, stop, tmp_path, evaluations=48)
    again: list[Scaling] = []

    def compute(scaling: Scaling) -> float:
        again.append(scaling)
        return compute_distance(scaling)

    found = run(space, compute, tmp_path, evaluations=48)
    assert len(again) == 48 - after
    assert found == run(space, compute_distance, evaluations=48)


def test_a_longer_search_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    space = PairFactors([LINEAR, NTK], 64, 256)
    run(space, compute_distance, tmp_path, evaluations=20)
    again: list[float] = []

    def compute(scaling: Scaling) -> float:
        again.append(compute_distance(scaling))
        return again[-1]

    assert run(space, compute, tmp_path, evaluations=50) == run(
        space, compute_distance, evaluations=50
    )
    assert len(again) == 30


def test_a_candidate_without_a_loss_is_the_worst(tmp_path: Path) -> None:
    space = PairFactors([LINEAR, NTK], 64, 256)

    def compute(scaling: Scaling) -> float:
        assert isinstance(scaling, LongRoPE)
        return math.nan if scaling.long_factors[0] > 1.0 else compute_distance(scaling)

    found = run(space, compute, tmp_path, evaluations=20)
    assert math.isfinite(found.loss)
    assert run(space, compute, tmp_path, evaluations=20) == found  # the file has null for NaN


def test_the_loss_is_that_of_a_config_with_the_factors(loaded: LoadedModel) -> None:
    moments: list[SearchProgress] = []
    found = search_factors(loaded, TEXT, to="4x", settings=QUICK, progress=moments.append)
    scaling = found.searched.scaling
    assert isinstance(scaling, LongRoPE)
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "short_factor": list(scaling.short_factors),
        "long_factor": list(scaling.long_factors),
        "original_max_position_embeddings": 64,
    }
    other = build_llama(max_position_embeddings=256, rope_parameters=rope)
    (text,) = build_search_texts(loaded, loaded.encode(TEXT), 64, 256, QUICK)
    with torch.no_grad():
        logits = other(text.tokens[None, :-1], use_cache=False).logits[0]
    losses = F.cross_entropy(logits, text.tokens[1:], reduction="none")[64:]
    assert found.searched.loss == pytest.approx(float(losses.mean()), rel=1e-4)
    assert len(found.searched.losses) == len(found.tuned_yarn.losses) == 6
    assert found.tuned_yarn.losses[0] >= found.tuned_yarn.loss
    assert [moment.done for moment in moments] == list(range(1, 13))
    assert {moment.label for moment in moments} == {"searched", "tuned_yarn"}
    assert moments[-1].total == 12


def test_a_stopped_search_on_weights_goes_on(loaded: LoadedModel, tmp_path: Path) -> None:
    def stop(moment: SearchProgress) -> None:
        if moment.done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_factors(loaded, TEXT, to="4x", settings=QUICK, folder=tmp_path, progress=stop)
    found = search_factors(loaded, TEXT, to="4x", settings=QUICK, folder=tmp_path)
    assert found == search_factors(loaded, TEXT, to="4x", settings=QUICK)
    other = FactorSearch(evaluations=6, population=4, windows=1, seed=1)
    with pytest.raises(ValueError, match="results of other settings: seed is 0 there, 1 here"):
        search_factors(loaded, TEXT, to="4x", settings=other, folder=tmp_path)


def test_needles(loaded: LoadedModel) -> None:
    settings = FactorSearch(objective="needles", windows=3)
    texts = build_search_texts(loaded, loaded.encode(TEXT), 64, 256, settings)
    depths = []
    for text in texts:
        assert len(text.tokens) == 257
        words = bytes(text.tokens.tolist()).decode()
        answer = bytes(text.tokens[text.first + 1 :].tolist()).decode()
        assert answer.strip().isdigit()
        assert words.count(answer) == 2  # stated once, asked once
        assert words.endswith(f"is{answer}")
        depths.append(words.index(answer) / 257)
    assert depths == sorted(depths)
    assert depths[0] < 0.35
    assert depths[-1] > 0.5
    found = search_factors(
        loaded,
        TEXT,
        to="4x",
        settings=FactorSearch(objective="needles", evaluations=3, population=4, windows=3),
    )
    assert math.isfinite(found.searched.loss)
    assert found.searched.critical_pair is not None
    assert found.tuned_yarn.critical_pair is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "words"}, r"objective must be one of text, needles; got 'words'\."),
        ({"evaluations": 0}, r"evaluations must be a whole number of at least 1; got 0\."),
        ({"population": 3}, r"population must be a whole number of at least 4; got 3\."),
        ({"windows": True}, r"windows must be a whole number of at least 1; got True\."),
        ({"seed": -1}, r"seed must be a whole number of at least 0; got -1\."),
        ({"minutes": 0}, r"minutes must be a number greater than 0; got 0\."),
        ({"minutes": math.nan}, r"minutes must be a number greater than 0; got nan\."),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FactorSearch(**options)


def test_what_a_search_refuses(loaded: LoadedModel) -> None:
    message = (
        r"the search would take about [\d,]+ minutes: 192 evaluations of 4 windows of 256 tokens,"
        r" [\d.e-]+ s each, and minutes is 1e-09. Search on a smaller model, lower evaluations or"
        r" windows, or raise minutes\."
    )
    with pytest.raises(ValueError, match=message):
        search_factors(loaded, TEXT, to="4x", settings=FactorSearch(minutes=1e-9))
    with pytest.raises(ValueError, match="the text must have at least 257 tokens"):
        search_factors(loaded, TEXT[:100], to="4x")
    needles = FactorSearch(objective="needles")
    with pytest.raises(ValueError, match=r"texts with needles must have at least [0-9]+ tokens"):
        search_factors(loaded, TEXT, to=65, settings=needles)


def test_the_text_of_the_search_is_not_held_out() -> None:
    searched, held_out = split_text(TEXT)
    assert searched + held_out == TEXT
    assert 0.3 < len(searched) / len(TEXT) < 0.34


def test_what_to_write(loaded: LoadedModel) -> None:
    found = search_factors(loaded, TEXT, to="4x", settings=QUICK)
    plans = plan_outcomes(loaded.config, found)
    plan = plans["searched"]
    assert plan.chosen == "searched"
    assert "transformers 5" in plan.methods[0].run_by
    scaling = found.searched.scaling
    assert isinstance(scaling, LongRoPE)
    written = plan.configs["transformers 5"]["rope_parameters"]
    assert written["long_factor"] == list(scaling.long_factors)
    lines = next(r.text for r in plan.recipes if r.framework == "transformers 5")
    assert lines is not None
    assert '"short_factor": [1.0, 1.0, 1.0, 1.0]' in lines
    assert plans["tuned_yarn"].configs["transformers 5"]["rope_parameters"]["rope_type"] == "yarn"
    test = ExtensionTest(methods=("yarn",), windows=1, scored=16, texts=0)
    methods = [each.methods[0] for each in plans.values()]
    document = evaluate_methods(loaded, TEXT, to="4x", test=test, more=methods)
    rows = [row["name"] for row in document["rows"]]
    assert rows == ["yarn", "none", "searched", "tuned_yarn", "sliding_window"]
    assert "YaRN tuned by as many evaluations (6)" in write_search_verdict(document, 6)


@pytest.mark.parametrize(
    ("searched", "said"),
    [
        (-0.5, "beat YaRN tuned by as many evaluations (9) at 256 tokens of held-out text"),
        (0.5, "are worse than YaRN tuned by as many evaluations (9)"),
        (0.0, "did not clearly beat YaRN tuned by as many evaluations (9)"),
    ],
)
def test_the_verdict_follows_from_the_blocks(searched: float, said: str) -> None:
    noise = [0.1, -0.1, 0.05, -0.05]
    rival = [1.0, 2.0, 1.5, 1.2]
    own = [b + searched + n for b, n in zip(rival, noise, strict=True)]

    def make(name: str, blocks: list[float]) -> dict[str, Any]:
        cell = {"loss": sum(blocks) / len(blocks), "blocks": blocks}
        return {"name": name, "by_length": {"256": cell}}

    rows = [make("searched", own), make("tuned_yarn", rival), make("yarn", [25.0] * 4)]
    words = write_search_verdict({"target": 256, "rows": rows}, 9)
    assert said in words
    assert words.endswith("YaRN untuned has e^25.")
    assert write_search_verdict({"target": 256, "rows": rows[:2]}, 9).endswith("4.16.")
