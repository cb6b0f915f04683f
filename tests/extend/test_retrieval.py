"""Passkey texts, and shares of right answers by models that know or do not know the answer."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whorl.extend.evaluation.loading import LoadedModel
from whorl.extend.evaluation.passkeys import build_passkey_text, measure_passkeys


class Reader(nn.Module):
    """A model of bytes that finds the digits after ``is``, up to some distance."""

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
            known = bytes(self.seen[: len(self.seen) - logits_to_keep + n + 1])
            near = known[-self.sight :]
            place = near.find(b"key is ")
            answer = known.rpartition(b"pass key is")[2]
            digits = b" " + near[place + 7 : place + 12] if place >= 0 else b"?"
            logits[0, n, digits[len(answer) % len(digits)]] = 1.0
        return SimpleNamespace(logits=logits, past_key_values=self)


def load_reader(sight: int) -> LoadedModel:
    return LoadedModel("reader", Reader(sight), None, {}, "")


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_text_has_the_asked_length_and_depth(depth: float) -> None:
    tokens, answer = build_passkey_text(load_reader(9), 400, depth, 3)
    text = bytes(tokens.tolist()).decode()
    assert len(tokens) == 401
    key = text[-5:]
    assert answer == 6  # a blank and five digits
    assert text.count(key) == 3
    assert text.endswith(f"What is the pass key? The pass key is {key}")
    room = 401 - len(f"The pass key is {key}. Remember it. {key} is the pass key. ") - 43
    assert text.index("The pass key is") == pytest.approx(depth * room, abs=1)
    other, _ = build_passkey_text(load_reader(9), 400, depth, 4)
    assert bytes(other.tolist())[-5:] != bytes(tokens.tolist())[-5:]


def test_answers_are_right_where_the_model_sees_the_key() -> None:
    assert measure_passkeys(load_reader(10_000), 600, (0.1, 0.9), 2) == [1.0, 1.0]
    assert measure_passkeys(load_reader(200), 600, (0.1, 0.9), 2) == [0.0, 1.0]


def test_a_text_that_cannot_hold_the_question() -> None:
    with pytest.raises(ValueError, match=r"^passkey texts must have at least \d+ tokens .* got 40"):
        build_passkey_text(load_reader(9), 40, 0.5, 0)
