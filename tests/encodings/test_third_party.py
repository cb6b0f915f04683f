"""The tutorial of CONTRIBUTING, as a third party would follow it: one file, one line, the suite."""

import re
from pathlib import Path

import pytest
import torch

import whorl
from whorl.encodings import base

TUTORIAL = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The file of the tutorial, importable, with a registry of its own."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    (code,) = re.findall(
        r"```python\n(\"\"\"Logarithmic.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "log_bias.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "log_bias", raising=False)
    __import__("log_bias")
    return "log_bias"


def test_it_is_made_by_name_and_passes_the_suite(module: str) -> None:
    encoding = whorl.make(module, num_heads=4)
    assert module in whorl.names()
    assert repr(encoding) == "LogBias(4)"
    results = whorl.testing.check_encoding(encoding)
    assert len(results) == len(whorl.testing.list_checks())
    assert not any(result.exempt for result in results)


def test_it_composes_and_is_analysed(module: str) -> None:
    both = whorl.RoPE(16) + whorl.make(module, num_heads=4)
    whorl.testing.check_encoding(both, only=("config_round_trip", "chunks", "gradients"))
    q, k = torch.randn(1, 4, 5, 16), torch.randn(1, 4, 5, 16)
    found = whorl.analysis.terms(both, q, k)
    assert list(found) == ["content-content", "rope: interaction", "log_bias: position-position"]
    again = whorl.from_dict(both.to_dict())
    assert again.to_dict() == both.to_dict()


def test_bad_options_are_refused(module: str) -> None:
    with pytest.raises(ValueError, match=r"LogBias: num_heads must be a positive int; got 0"):
        whorl.make(module, num_heads=0)
    with pytest.raises(TypeError, match=r"'log_bias' has no option 'heads'; did you mean"):
        whorl.make(module, heads=3)
