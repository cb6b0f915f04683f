"""Lengths in requests, as people type them: 128k, 1e5, 1_000."""

from typing import Any

import pytest

from whorl.configs import ConfigError
from whorl.explore import _checks, api
from whorl.explore.state import ExplorerState


def view(**more: Any) -> dict[str, Any]:
    return api.answer_view(ExplorerState(), {"source": {"preset": "llama-3.1-8b"}, **more})


@pytest.mark.parametrize(
    ("typed", "tokens"), [("128k", 131_072), ("1e5", 100_000), ("1_000", 1000), (512, 512)]
)
def test_lengths_as_people_type_them(typed: Any, tokens: int) -> None:
    assert view(length=typed)["length"] == tokens
    assert view(distance=typed)["distance"] == tokens
    asked = {"source": {"preset": "gemma-3-4b"}, "trained": typed, "length": typed}
    assert api.answer_view(ExplorerState(), asked)["trained"] == tokens
    assert api.answer_report(ExplorerState(), asked)["problem"] is None
    if tokens < 65_536:
        found = api.answer_bias(ExplorerState(), {"encodings": ["alibi"], "length": typed})
        assert found["length"] == tokens
    assert api.answer_length(ExplorerState(), {"text": str(typed)}) == {"length": tokens}


def test_lengths_that_are_none() -> None:
    words = r"length: a length must be a whole number of tokens above 0, .* got 'ten'\."
    with pytest.raises(_checks.RequestError, match=words):
        view(length="ten")
    with pytest.raises(_checks.RequestError, match="length must be a whole number from 1 to"):
        view(length="64M")
    with pytest.raises(ConfigError, match=r"a length must be .* got 'ten'\."):
        api.answer_length(ExplorerState(), {"text": "ten"})
    with pytest.raises(_checks.RequestError, match="text must be a string, such as '128k'"):
        api.answer_length(ExplorerState(), {"text": 3})
