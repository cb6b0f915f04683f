"""``whorl.identify``: what it says of whorl's own rotations is what they were made of."""

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from torch import Tensor

import whorl
from whorl.functions.frequency_rules import fit_rule
from whorl.functions.rounding import compute_frequencies, compute_tolerance

from .mistakes import D, frequencies, half_pairs_repeated_tables, nothing, sound, swapped_sign

EXACT: list[dict[str, Any]] = [
    {},
    {"base": 500_000.0, "layout": "interleaved"},
    {"rotary_dim": 32},
    {"rotary_dim": 16, "layout": "interleaved"},
    {"rotary_dim": 32, "rotary_start": 32},
    {"layout": "interleaved", "out_layout": "half"},
    {"layout": "half", "out_layout": "interleaved", "rotary_dim": 48},
    {"direction": "backward"},
    {"direction": "backward", "scaling": whorl.Linear(4.0)},
    {"scaling": whorl.Linear(8.0), "base": 1e6},
    {"scaling": whorl.Proportional(0.25)},
    {"scaling": whorl.Proportional(0.5, factor=8.0)},
    {"scaling": whorl.Proportional(0.25), "layout": "interleaved"},
    {"scaling": whorl.Llama3(8.0, 8192), "base": 500_000.0},
    {"scaling": whorl.Llama3(32.0, 8192), "base": 500_000.0},
    {"scaling": whorl.YaRN(4.0, 32_768), "base": 1e6},
    {"scaling": whorl.YaRN(40.0, 4096, attention_factor=1.0)},
    {"scaling": whorl.YaRN(16.0, 4096, truncate=False), "base": 150_000.0},
    {"scaling": whorl.NTKByParts(8.0, 4096)},
    {"scaling": whorl.YaRN(8.0, 4096, attention_factor=1.4)},
    {"scaling": whorl.YaRN(1.0, 2048, attention_factor=0.9)},
    {"scaling": whorl.DynamicNTK(4.0, 2048)},
    {"scaling": whorl.DynamicNTK(1.5, 100), "base": 1e6},
    {"scaling": whorl.DynamicLinear(333)},
    {"scaling": whorl.DynamicYaRN(1024)},
    {"scaling": whorl.DynamicYaRN(1000, ramp="rotations", beta_fast=4.0)},
]


@pytest.mark.parametrize("options", EXACT, ids=str)
def test_the_config_comes_back(options: dict[str, Any]) -> None:
    rope = whorl.RoPE(D, **options)
    found = whorl.identify(rope.rotate, D)
    wanted = rope.config
    built: Any = found.build()
    if isinstance(wanted.scaling, whorl.YaRN) and wanted.scaling.attention_factor == 1.0:
        assert found.scaling == whorl.NTKByParts(40.0, 4096)  # the same in fewer words
    else:
        assert built.to_dict() == whorl.RoPE(**{"head_dim": D, **_explicit(rope)}).to_dict()
    assert found.exact
    assert found.error < 1e-12
    assert found.departs == ()
    assert json.loads(json.dumps(found.to_dict()))["encoding"] == "rope"


def _explicit(rope: whorl.RoPE) -> dict[str, Any]:
    """Its options, with defaults that mean the same as what is found."""
    plain = rope.to_dict()
    plain.pop("name")
    if plain["out_layout"] == plain["layout"]:
        plain["out_layout"] = None
    if plain["rotary_dim"] == D - plain["rotary_start"]:
        plain["rotary_dim"] = None
    return plain


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_ntk_is_a_larger_base(factor: float) -> None:
    found = whorl.identify(whorl.RoPE(D, scaling=whorl.NTK(factor)).rotate, D)
    assert found.scaling is None
    assert found.base == pytest.approx(10_000 * factor ** (D / (D - 2)), rel=1e-9)
    assert f"NTK(factor={factor:g}) on 10,000" in " ".join(found.notes)
    assert found.exact


def test_longrope_lists_and_switch() -> None:
    short, long = [1 + i / 50 for i in range(32)], [1 + i / 5 for i in range(32)]
    scaling = whorl.LongRoPE(short, long, 4096, factor=32.0)
    found = whorl.identify(whorl.RoPE(D, scaling=scaling).rotate, D)
    got = found.scaling
    assert isinstance(got, whorl.LongRoPE)
    assert got.short_factors == pytest.approx(short, rel=1e-9)
    assert got.long_factors == pytest.approx(long, rel=1e-9)
    assert (got.original_context, got.factor) == (4096, 32.0)
    assert found.exact


@pytest.mark.parametrize(("offset", "seen"), [(1, 1), (-3, -3), (1000, 1000), (0.5, 0.5)])
def test_offset(offset: float, seen: float) -> None:
    rope = whorl.RoPE(D)
    found = whorl.identify(lambda x, p: rope.rotate(x, p + offset), D)
    assert found.offset == seen
    assert len(found.departs) == 1
    assert f"with positions {offset:+g}, where it differs by 0" in found.departs[0]
    assert not found.exact


def test_frequencies_of_its_own() -> None:
    values = [1 / (1 + i) for i in range(32)]
    found = whorl.identify(whorl.RoPE(D, inv_freq=values).rotate, D)
    assert found.base is None
    assert found.inv_freq == pytest.approx(values, rel=1e-12)
    assert found.config is not None
    assert found.config["inv_freq"] == pytest.approx(values, rel=1e-12)
    assert found.hf is not None
    assert found.hf["rope_type"] == "longrope"
    assert found.exact


def test_xpos() -> None:
    xpos = whorl.XPos(D, gamma=0.3, scale_base=256.0, layout="interleaved")
    found = whorl.identify(lambda x, p: xpos.rotate(x, p, role="query"), D)
    assert found.encoding == "xpos"
    assert found.config is not None
    assert found.config["gamma"] == 0.3
    assert found.config["scale_base"] == 256.0
    assert found.exact
    found = whorl.identify(xpos, D, kind="qk")
    assert (found.encoding, found.exact) == ("xpos", True)


def test_what_is_no_rotation() -> None:
    found = whorl.identify(nothing, D)
    assert (found.encoding, found.config, found.rotary_dim) == ("nope", {}, 0)
    assert isinstance(found.build(), whorl.NoPE)
    found = whorl.identify(lambda x, p: x.cumsum(-1), D)
    assert found.encoding is None
    assert "mixes" in found.departs[0]
    with pytest.raises(ValueError, match="no rotation of pairs, so there is no encoding to build"):
        found.build()


def test_the_closest_and_where_it_departs() -> None:
    found = whorl.identify(half_pairs_repeated_tables, D)
    assert not found.exact
    assert "the two channels of pair" in found.departs[0]
    assert "NOT the same" in str(found)
    found = whorl.identify(swapped_sign, D)
    assert (found.sign, found.hf, found.exact) == (-1, None, True)
    assert "direction     backwards" in str(found)


def float32(x: Any, positions: Any) -> Any:
    """All of it in float32 NumPy."""
    inverse = np.float32(500_000.0) ** -(np.arange(0, D, 2, dtype=np.float32) / np.float32(D))
    angles = positions.astype(np.float32)[:, None] * inverse
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., : D // 2].astype(np.float32), x[..., D // 2 :].astype(np.float32)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1).astype(x.dtype)


def test_precision_of_the_frequencies() -> None:
    exact = frequencies(500_000.0)
    wide = whorl.identify(whorl.RoPE(D, base=500_000.0).rotate, D)
    assert float((torch.tensor(wide.inv_freq, dtype=exact.dtype) / exact - 1).abs().max()) < 1e-12
    narrow = whorl.identify(float32, D)
    assert narrow.precision == "float32"
    assert narrow.base == 500_000.0
    assert float((torch.tensor(narrow.inv_freq, dtype=exact.dtype) / exact - 1).abs().max()) < 1e-6


def test_half_precision_frequencies_are_seen_through() -> None:
    rates = frequencies().bfloat16().double().tolist()
    found = whorl.identify(whorl.RoPE(D, inv_freq=rates).rotate, D)
    assert found.base == 10_000.0
    assert not found.exact


def test_only_the_first_position_counts() -> None:
    def run(x: Tensor, positions: Tensor) -> Tensor:
        return whorl.RoPE(D).rotate(x, offset=int(positions[0]))

    found = whorl.identify(run, D)
    assert found.exact
    assert "only the first position of a call counts" in " ".join(found.notes)


def test_a_table_that_ends() -> None:
    found = whorl.identify(lambda x, p: sound(x, torch.arange(300)[p]), D)
    assert found.reach == 300
    assert "answers contexts up to 300 tokens" in " ".join(found.notes)


CONTEXTS = st.integers(64, 200_000)
FACTORS = st.floats(1.1, 64.0).map(lambda f: round(f, 2))
BASES = st.sampled_from([10_000.0, 500_000.0, 1e6, 150_000.0, 12_345.678])


def limits(low: float, high: float) -> st.SearchStrategy[tuple[float, float]]:
    pair = st.tuples(st.floats(low, high), st.floats(low, high))
    return pair.map(lambda p: (round(max(p), 3), round(min(p), 3)))


@st.composite
def by_parts(draw: st.DrawFn) -> whorl.Scaling:
    fast, slow = draw(limits(0.5, 40.0))
    return whorl.YaRN(
        draw(FACTORS),
        draw(CONTEXTS),
        beta_fast=fast,
        beta_slow=slow,
        truncate=draw(st.booleans()),
        attention_factor=draw(st.none() | st.floats(0.5, 2.0).map(lambda a: round(a, 4))),
    )


@st.composite
def llama3(draw: st.DrawFn) -> whorl.Scaling:
    fast, slow = draw(limits(0.5, 10.0))
    return whorl.Llama3(draw(FACTORS), draw(CONTEXTS), slow, fast)


SCALINGS = st.one_of(
    st.none(),
    st.builds(whorl.Linear, FACTORS),
    st.builds(whorl.NTK, FACTORS),
    by_parts(),
    llama3(),
    st.builds(whorl.Proportional, st.sampled_from([0.25, 0.5, 0.75])),
)
LAYOUTS = st.sampled_from(["half", "interleaved"])


@pytest.mark.slow
@settings(max_examples=50)
@given(
    head_dim=st.sampled_from([16, 32, 64, 128]),
    base=BASES,
    layout=LAYOUTS,
    out_layout=LAYOUTS,
    part=st.sampled_from([(1, 0), (2, 0), (2, 1), (4, 0)]),
    scaling=SCALINGS,
)
def test_identify_undoes_make(
    head_dim: int, base: float, layout: Any, out_layout: Any, part: tuple[int, int], scaling: Any
) -> None:
    """Up to equivalence: the same rotation, in no more numbers than it was made of."""
    width = head_dim // part[0]
    proportional = isinstance(scaling, whorl.Proportional)
    # A single pair is of either layout, and without one nothing rotates.
    assume(not proportional or int(scaling.rotary_share * width // 2) >= 2)
    rope = whorl.RoPE(
        head_dim,
        base=base,
        layout=layout,
        out_layout=layout if proportional else out_layout,
        rotary_dim=width,
        rotary_start=part[1] * width,
        scaling=scaling,
    )
    found = whorl.identify(rope.rotate, head_dim)
    assert found.exact, str(found)
    assert found.layout == layout
    assert found.out_layout == rope.config.out_layout
    again: Any = found.build()
    mine, theirs = rope.frequencies(), again.frequencies()
    assert float(theirs.attention_scale) == pytest.approx(float(mine.attention_scale), rel=1e-8)
    turning = int((mine.inv_freq != 0).sum())
    got = theirs.inv_freq[: len(mine.inv_freq)]
    assert torch.allclose(got[:turning], mine.inv_freq[:turning], rtol=1e-9, atol=0)
    assert found.base is not None
    assert numbers(again.config.scaling) <= numbers(scaling)


def numbers(scaling: Any) -> int:
    """How many options differ from their defaults; equivalent families count alike."""
    if scaling is None or isinstance(scaling, whorl.NTK):
        return 0
    return 1 if isinstance(scaling, (whorl.Linear, whorl.Proportional)) else 7


def test_the_rules_can_fail() -> None:
    rates = compute_frequencies(10_000.0, 32)
    tight = compute_tolerance(rates, 2.0**-44)
    assert fit_rule(rates, tight).base == 10_000.0
    bent = rates.clone()
    bent[20] *= 1 + 1e-6
    assert fit_rule(bent, tight).base is None
