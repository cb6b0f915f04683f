"""Scores of hidden statements, by models that see the whole text or only the end of it."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whorl.extend.evaluation.effective import compute_means, find_effective_lengths
from whorl.extend.evaluation.loading import LoadedModel
from whorl.extend.evaluation.retrieval import build_texts, score_text
from whorl.extend.evaluation.settings import ExtensionTest

TEST = ExtensionTest(texts=2, depths=(0.1, 0.9))


class Reader(nn.Module):
    """A model of bytes that answers every form from what it has read, up to some distance."""

    def __init__(self, sight: int) -> None:
        super().__init__()
        self.sight = sight
        self.seen: list[int] = []

    def forward(
        self, input_ids: Tensor, past_key_values: Any, use_cache: bool, logits_to_keep: int
    ) -> Any:
        self.seen = ([] if past_key_values is None else self.seen) + input_ids[0].tolist()
        logits = torch.zeros(1, logits_to_keep, 256)
        for n in range(logits_to_keep):
            known = bytes(self.seen[: len(self.seen) - logits_to_keep + n + 1]).decode()
            logits[0, n, ord(self.answer(known))] = 1.0
        return SimpleNamespace(logits=logits, past_key_values=self)

    def answer(self, known: str) -> str:
        near = known[-self.sight :]
        if asked := re.search(r"The (\w+ key) is( ?\d*)$", known):
            found = re.search(rf"The {asked[1]} is( \d{{5}})\.", near)
            return found[1][len(asked[2])] if found else "?"
        asked = re.search(r"the value (\d{5})\? They are(.*)$", known)
        if asked is None:
            return "?"
        names, source = "", asked[1]
        while found := re.search(rf"VAR (\w+) = {source}\.", near):
            names, source = f"{names} {found[1]}", f"VAR {found[1]}"
        return names[len(asked[2])] if len(names) > len(asked[2]) else "?"


def load_reader(sight: int) -> LoadedModel:
    return LoadedModel("reader", Reader(sight), None, {}, "")


def measure(sight: int, form: str, length: int, window: int | None = None) -> list[float]:
    loaded = load_reader(sight)
    return [
        sum(score_text(loaded, text, window) for text in build_texts(loaded, form, length, d, TEST))
        / TEST.texts
        for d in TEST.depths
    ]


@pytest.mark.parametrize("form", ["passkey", "several_keys", "variable_tracking"])
def test_answers_are_right_where_the_model_sees_the_evidence(form: str) -> None:
    assert measure(10_000, form, 700) == [1.0, 1.0]
    assert measure(300, form, 700) == [0.0, 1.0]


@pytest.mark.parametrize("form", ["passkey", "several_keys", "variable_tracking"])
def test_a_window_loses_what_lies_before_it(form: str) -> None:
    assert measure(10_000, form, 700, window=300) == [0.0, 1.0]


def test_an_answer_in_parts_counts_in_parts() -> None:
    loaded = load_reader(10_000)
    (text, _) = build_texts(loaded, "variable_tracking", 700, 0.0, TEST)
    first, end = text.spans[2]
    changed = [*text.tokens]
    changed[first + 1 : end] = b"zzz"
    assert score_text(loaded, type(text)(changed, text.spans)) == 0.8


def test_texts_follow_the_seed() -> None:
    loaded = load_reader(9)
    other = ExtensionTest(texts=2, depths=(0.1, 0.9), seed=1)
    mine, again, others = (
        [text.tokens for text in build_texts(loaded, "passkey", 300, 0.5, test)]
        for test in (TEST, TEST, other)
    )
    assert mine == again != others
    assert mine[0] != mine[1]


def test_effective_lengths() -> None:
    forms = {
        "passkey": {"none": {"64": [1.0, 1.0], "128": [0.0, 1.0]}, "yarn": {"64": [1.0, 1.0]}},
        "several_keys": {"none": {"64": [1.0, 0.5], "128": [0.5, 0.5]}, "yarn": {"64": [0.0, 0.5]}},
    }
    means = compute_means(forms)
    assert means == {"none": {"64": 0.875, "128": 0.5}, "yarn": {"64": 0.625}}
    assert find_effective_lengths(means, own=0.875) == {
        "none": {"threshold": 64, "own": 64},
        "yarn": {"threshold": None, "own": None},
    }
    # 85 % of a model's own score is less than RULER's threshold, which itself is not enough.
    assert find_effective_lengths({"yarn": {"64": 0.856}}, own=1.0) == {
        "yarn": {"threshold": None, "own": 64}
    }
