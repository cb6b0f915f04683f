"""Every scaling side by side: what ``describe`` says of each."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from torch import Tensor

import whorl
from whorl.analysis import extensions
from whorl.scaling import Frequencies, Ladder, Scaling, base


def test_every_registered_scaling_is_there() -> None:
    found = extensions(64, base=5e5, original_context=1024, factor=4.0)
    assert [each.name for each in found.extensions] == whorl.scaling.names()
    assert found.left_out == ()
    assert all(len(each.statuses) == len(each.factors) == 32 for each in found.extensions)
    assert found.wavelengths == tuple(Ladder.of(64, 5e5).wavelengths.tolist())


@pytest.mark.parametrize(
    "scaling",
    [
        whorl.Linear(8.0),
        whorl.NTK(8.0),
        whorl.YaRN(8.0, 4096),
        whorl.NTKByParts(8.0, 4096),
        whorl.Llama3(8.0, 4096),
        whorl.DynamicNTK(1.0, 4096),
        whorl.DynamicYaRN(4096),
        whorl.DynamicLinear(4096),
    ],
    ids=repr,
)
def test_is_what_describe_says(scaling: Scaling) -> None:
    (found,) = extensions(names=[scaling.name]).extensions
    own = None if getattr(scaling, "original_context", None) else 4096
    want = scaling.describe(Ladder.of(128), 8 * 4096, original_context=own)
    assert found.scaling == repr(scaling)
    assert found.statuses == tuple(pair.status for pair in want.pairs)
    assert found.factors == tuple(pair.factor for pair in want.pairs)
    assert (found.effective_context, found.attention_scale) == (
        want.effective_context,
        want.attention_scale,
    )


def test_reach_of_those_that_interpolate() -> None:
    reaches = {e.name: e.effective_context for e in extensions(factor=8.0).extensions}
    for name in ("linear", "yarn", "llama3", "ntk_by_parts", "dynamic_linear", "dynamic_yarn"):
        assert reaches[name] == 8 * 4096
    assert reaches["ntk"] is not None
    assert 4096 < reaches["ntk"] < 8 * 4096


@pytest.fixture
def odd() -> Iterator[None]:
    @base.register("odd")
    @dataclass(frozen=True)
    class Odd(Scaling):
        mystery: float

        def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
            return Frequencies(ladder.inv_freq)

    yield
    del base._REGISTRY["odd"]


@pytest.mark.usefixtures("odd")
def test_one_that_needs_more_is_left_out() -> None:
    assert extensions(names=["odd", "linear"]).left_out == ("odd",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0.5}, r"extensions: factor must be a number from 1 to 1,000,000; got 0\.5\."),
        ({"factor": float("inf")}, r"from 1 to 1,000,000; got inf\."),
        ({"original_context": 10**20}, r"original_context must be an int >= 2 and at most 1,099,"),
        ({"factor": True}, r"factor must be a number from 1 to 1,000,000; got True\."),
        ({"original_context": 1}, r"original_context must be an int >= 2 .*; got 1\."),
        ({"names": ["yran"]}, r"unknown scaling 'yran'; did you mean 'yarn'\?"),
    ],
)
def test_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        extensions(**options)  # type: ignore[arg-type]
