"""What every scaling does alike: dictionaries, repr, rows, dtypes, compilation, no memory."""

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl import scaling as scalings
from whorl.scaling import Frequencies, Ladder, Linear, LongRoPE, Scaling, YaRN, base, from_dict
from whorl.scaling.by_parts import ByPartsOptions

from .samples import FOLLOWING, LONG, SCALINGS, SHORT, name_of

LADDER = Ladder.of(16)


def numbers(f: Frequencies) -> tuple[Any, Any]:
    scale = f.attention_scale
    return f.inv_freq.tolist(), scale.tolist() if isinstance(scale, Tensor) else scale


def test_every_registered_scaling_has_a_sample() -> None:
    assert {scaling.name for scaling in SCALINGS} == set(scalings.names())
    assert scalings.names() == [
        "dynamic_linear",
        "dynamic_ntk",
        "dynamic_yarn",
        "linear",
        "llama3",
        "longrope",
        "ntk",
        "ntk_by_parts",
        "proportional",
        "yarn",
    ]


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_copies_are_equal_and_nothing_can_be_changed(scaling: Scaling) -> None:
    plain = scaling.to_dict()
    through_json = json.loads(json.dumps(plain))
    assert through_json == plain
    for again in (
        from_dict(through_json),
        eval(repr(scaling), vars(scalings)),
        pickle.loads(pickle.dumps(scaling)),
        copy.deepcopy(scaling),
    ):
        assert again == scaling
        assert hash(again) == hash(scaling)
    for field in dataclasses.fields(scaling):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(scaling, field.name, None)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(YaRN(4.0, 4096)) == "YaRN(factor=4.0, original_context=4096)"
    changed = YaRN(4.0, 4096, truncate=False, attention_factor=1.0)
    words = "YaRN(factor=4.0, original_context=4096, truncate=False, attention_factor=1.0)"
    assert repr(changed) == words


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
@pytest.mark.parametrize("own", [False, True], ids=["base", "own frequencies"])
def test_each_row_is_as_it_would_be_alone(scaling: Scaling, own: bool) -> None:
    ladder = Ladder(LADDER.inv_freq, None) if own else LADDER
    if own and isinstance(scaling, ByPartsOptions):
        scaling = dataclasses.replace(scaling, ramp="rotations")  # the other needs a base
    lengths = [1, 31, 32, 33, 100, 5000]
    rows = scaling.frequencies(ladder, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone = scaling.frequencies(ladder, length)
        single = scaling.frequencies(ladder, torch.tensor(length))
        for got in (single, scaling.frequencies(ladder, torch.tensor([length]))):
            flat = got.inv_freq.reshape(-1)
            torch.testing.assert_close(flat, alone.inv_freq, rtol=1e-14, atol=0)
        assert single.inv_freq.shape == (8,)
        of_row = rows.inv_freq[row] if scaling.follows_length else rows.inv_freq
        torch.testing.assert_close(of_row, alone.inv_freq, rtol=1e-14, atol=0)
        scale = rows.attention_scale
        of_row_scale = float(scale[row] if isinstance(scale, Tensor) else scale)
        assert of_row_scale == pytest.approx(float(alone.attention_scale), rel=1e-14)
    assert rows.inv_freq.shape == ((6, 8) if scaling.follows_length else (8,))
    if isinstance(rows.attention_scale, Tensor):
        assert rows.attention_scale.shape == (6,)
        assert rows.attention_scale.dtype == torch.float64


@pytest.mark.parametrize("scaling", FOLLOWING, ids=name_of)
def test_no_length_stands_for_a_short_one(scaling: Scaling) -> None:
    short = numbers(scaling.frequencies(LADDER, None))
    assert short == numbers(scaling.frequencies(LADDER, 1))
    assert short == numbers(scaling.frequencies(LADDER, 32))
    assert short != numbers(scaling.frequencies(LADDER, 64))


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_earlier_calls_change_nothing(scaling: Scaling) -> None:
    before = LADDER.inv_freq.clone()
    first = numbers(scaling.frequencies(LADDER, 20))
    scaling.frequencies(LADDER, torch.tensor([7, 100_000]))
    assert numbers(scaling.frequencies(LADDER, 20)) == first
    assert torch.equal(LADDER.inv_freq, before)


@pytest.mark.parametrize("length", [20, 100, torch.tensor([20, 100]), torch.tensor(100)], ids=str)
@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_float32_ladders_give_float32_frequencies(scaling: Scaling, length: Any) -> None:
    single = Ladder(base.compute_frequencies(16, 10_000.0, torch.float32), 10_000.0)
    got, want = scaling.frequencies(single, length), scaling.frequencies(LADDER, length)
    assert got.inv_freq.dtype == torch.float32
    assert want.inv_freq.dtype == torch.float64
    torch.testing.assert_close(got.inv_freq.double(), want.inv_freq, rtol=2e-6, atol=0)


@pytest.mark.parametrize("shape", [(), (3,)], ids=["one length", "rows"])
@pytest.mark.parametrize("scaling", FOLLOWING, ids=name_of)
def test_lengths_that_are_tensors_compile_into_one_graph(
    scaling: Scaling, shape: tuple[int, ...]
) -> None:
    torch._dynamo.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    def turns(length: Tensor) -> tuple[Tensor, Tensor]:
        f = scaling.frequencies(LADDER, length)
        scale = torch.as_tensor(f.attention_scale, dtype=torch.float64)
        return f.inv_freq, scale

    compiled = torch.compile(turns, fullgraph=True, backend=backend)
    for length in (8, 33, 500):
        now = torch.full(shape, length)
        for got, want in zip(compiled(now), turns(now), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-14, atol=0)
    assert len(graphs) == 1


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_meta_tensors_and_default_devices_are_welcome(scaling: Scaling) -> None:
    with torch.device("meta"):
        assert scaling.frequencies(LADDER, 100).inv_freq.device.type == "cpu"
    if scaling.follows_length:
        hollow = scaling.frequencies(LADDER, torch.empty(3, dtype=torch.int64, device="meta"))
        assert hollow.inv_freq.shape == (3, 8)
        assert hollow.inv_freq.is_meta


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"factor": 2.0}, ValueError, r"needs a 'name', one of dynamic_linear, .*; got \{'factor'"),
        (
            {"name": "yarm"},
            ValueError,
            r"unknown scaling 'yarm'; did you mean 'yarn'\? Known: dynamic_linear, ",
        ),
        ({"name": "?"}, ValueError, r"unknown scaling '\?'\. Known: dynamic_linear, "),
        (
            {"name": "linear", "facto": 2.0},
            TypeError,
            r"scaling 'linear' has no option 'facto'; did you mean 'factor'\? It has: factor\.",
        ),
        (
            {"name": "yarn", "factor": 2.0, "xyz": 0},
            TypeError,
            r"scaling 'yarn' has no option 'xyz'\. It has: beta_fast, beta_slow, ",
        ),
        (
            {"name": "yarn", "factor": 2.0},
            TypeError,
            r"scaling 'yarn' needs the option 'original_context'; got \{'name': 'yarn'",
        ),
    ],
)
def test_dictionaries_that_name_nothing(options: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        from_dict(options)


def test_a_name_serves_one_scaling() -> None:
    with pytest.raises(ValueError, match=r"'linear' is registered already, as Linear; choose ano"):
        base.register("linear")(YaRN)
    assert from_dict({"name": "linear", "factor": 2.0}) == Linear(2.0)
    assert YaRN.name == "yarn"


def test_factors_are_frozen_whatever_they_came_as() -> None:
    want = LongRoPE(SHORT, LONG, 32, factor=8.0)
    tensors: Any = torch.tensor([SHORT, LONG], dtype=torch.float64)
    for short, long in ((list(SHORT), list(LONG)), tensors, tensors.numpy()):
        assert LongRoPE(short, long, 32, factor=8.0) == want
    assert want.to_dict()["short_factors"] == list(SHORT)


def test_a_scaling_of_your_own_needs_frequencies_only() -> None:
    @dataclasses.dataclass(frozen=True)
    class Halved(Scaling):
        def frequencies(self, ladder: Ladder, context_length: Any) -> Frequencies:
            return Frequencies(ladder.inv_freq / 2)

    assert not Halved().follows_length
    assert Halved().describe(LADDER).counts["interpolated"] == 8
    with pytest.raises(NotImplementedError):
        Scaling().frequencies(LADDER, None)
