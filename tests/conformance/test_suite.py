"""Every registered encoding, in its variants, passes the whole conformance suite."""

import pytest
from torch import nn

import whorl
from whorl import scaling as scalings
from whorl.testing import check_encoding, list_checks

SCALINGS: list[whorl.Scaling] = [
    whorl.Linear(factor=4.0),
    whorl.DynamicLinear(original_context=8),
    whorl.NTK(factor=2.0),
    whorl.DynamicNTK(factor=2.0, original_context=8),
    whorl.DynamicNTK(alpha=50.0),
    whorl.NTKByParts(factor=4.0, original_context=64),
    whorl.YaRN(factor=4.0, original_context=64),
    whorl.YaRN(factor=4.0, original_context=64, ramp="rotations"),
    whorl.DynamicYaRN(original_context=8),
    whorl.Llama3(factor=8.0, original_context=64),
    whorl.LongRoPE(
        short_factors=[1.0] * 8, long_factors=[2.0] * 8, original_context=16, factor=4.0
    ),
    whorl.Proportional(0.5, factor=2.0),
]
VARIANTS: dict[str, list[whorl.Encoding]] = {
    "alibi": [
        whorl.ALiBi(4),
        whorl.ALiBi(6, slopes="trained"),
    ],
    "axial_rope": [
        whorl.AxialRoPE(16, base=100.0),
        whorl.AxialRoPE(
            24, axes=3, order="alternating", layout="interleaved", base=(9.0, 99.0, 1e3)
        ),
        whorl.AxialRoPE(20, widths=(4, 10), rotary_dim=14, rotary_start=2, impl="reference"),
        whorl.AxialRoPE(16, frequencies="mixed", num_kv_heads=2, base=10.0),
        whorl.AxialRoPE(16, frequencies="mixed", num_kv_heads=1, impl="reference", axes=3),
    ],
    # Small, because every weight is gradchecked.
    "deberta": [
        whorl.DeBERTa(2, 4, max_distance=5),
        whorl.DeBERTa(2, 4, max_distance=5, norm="layer_norm", p2c_index="paper"),
        whorl.DeBERTa(
            2, 4, dim=6, max_distance=5, terms=("p2c",), norm="layer_norm", norm_eps=1e-3
        ),
        whorl.DeBERTa(2, 4, terms=("c2p",), buckets="log", max_distance=9, position_buckets=4),
        whorl.DeBERTa(4, 4, dim=6, max_distance=7, projections="shared").share(
            nn.Linear(6, 16), nn.Linear(6, 8, bias=False)
        ),
    ],
    "kerple": [
        whorl.Kerple(4),
        whorl.Kerple(3, kind="power"),
    ],
    # Narrow, because every weight is gradchecked; one as long as the furthest position needs.
    "learned": [
        whorl.Learned(2, max_length=3072),
        whorl.Learned(2, max_length=300, init="sinusoidal", std=1.0),
    ],
    "mrope": [
        whorl.MRoPE(16, sections=(2, 3, 3)),
        whorl.MRoPE(16, sections=(2, 3, 3), impl="reference", table_length=7),
        whorl.MRoPE(
            16, sections=(4, 4), order="interleaved", layout="interleaved", precision="float32"
        ),
        whorl.MRoPE(16, sections=(1, 2, 2, 1, 2), axes=(0, 1, 2, 0, 3), out_layout="interleaved"),
        whorl.MRoPE(16, sections=(2, 3, 3), table="precomputed", table_length=8192),
        whorl.MRoPE(
            16, sections=(3, 3, 2), scaling=whorl.DynamicNTK(factor=2.0, original_context=8)
        ),
    ],
    "nope": [whorl.NoPE()],
    "relative_bias": [
        whorl.RelativeBias(4, max_distance=4),
        whorl.RelativeBias(3, max_distance=3, max_future=0, std=0.0),
    ],
    "rope": [
        whorl.RoPE(16),
        whorl.RoPE(16, impl="reference"),
        whorl.RoPE(16, layout="interleaved", base=500.0),
        whorl.RoPE(16, out_layout="interleaved", precision="float32"),
        whorl.RoPE(24, rotary_dim=6, rotary_start=18, table="on_the_fly"),
        whorl.RoPE(16, table="precomputed", table_length=8192),
        whorl.RoPE(16, table_length=7),
        whorl.RoPE(16, frequencies="trained"),
        whorl.RoPE(
            16,
            frequencies="trained",
            impl="reference",
            scaling=whorl.DynamicNTK(factor=4.0, original_context=16),
        ),
        *(whorl.RoPE(16, scaling=scaling) for scaling in SCALINGS if scaling.follows_length),
    ],
    "shaw": [
        whorl.Shaw(4, 6),
        whorl.Shaw(4, 6, left=3, right=0, values="trained", heads="own"),
        whorl.Shaw(3, 6, left=2, right=5, keys="sinusoidal", values="sinusoidal"),
        whorl.Shaw(4, 6, left=0, right=2, keys="sinusoidal", values="trained"),
    ],
    "sinusoidal": [
        whorl.Sinusoidal(16),
        whorl.Sinusoidal(16, order="concatenated", table_length=7),
        whorl.Sinusoidal(16, first="cos", spacing="endpoints", table_length=0),
    ],
    "t5": [
        whorl.T5Bias(4),
        whorl.T5Bias(3, direction="causal", scale=None),
    ],
    "transformer_xl": [
        whorl.TransformerXL(2, 4),
        whorl.TransformerXL(2, 4, dim=6, clamp=4, base=100.0),
        whorl.TransformerXL(3, 4, dim=6, segments="xlnet"),
    ],
    "xpos": [
        whorl.XPos(16),
        whorl.XPos(16, layout="interleaved", impl="reference"),
        whorl.XPos(24, rotary_dim=12, rotary_start=4, gamma=0.8, scale_base=2000.0, table_length=9),
    ],
}
CASES = [encoding for many in VARIANTS.values() for encoding in many]
CASES += [
    whorl.RoPE(16) + whorl.ALiBi(4),
    whorl.RoPE(16) + whorl.T5Bias(4, scale=None),
    whorl.MRoPE(16, sections=(2, 3, 3)) + whorl.ALiBi(4),
    whorl.AxialRoPE(16) + whorl.Kerple(4),
    whorl.XPos(16) + whorl.ALiBi(4),
    whorl.Sinusoidal(64) + whorl.RoPE(16),
    whorl.Sinusoidal(2) + whorl.Learned(2, max_length=300),
    whorl.Sinusoidal(8) + whorl.Shaw(2, 4, left=3),
    whorl.DeBERTa(2, 4, max_distance=3) + whorl.ALiBi(2),
]
#: Differ from one above in numbers or in their order: graphs and derivatives are those of that one.
OF_NUMBERS: list[whorl.Encoding] = [
    whorl.ALiBi(3, max_bias=6.0, slope_scale=0.25),
    whorl.AxialRoPE(8, inv_freq=[3.0, 2.0, 1.0, 0.0], fastest=2.0, table_length=5),
    whorl.AxialRoPE(12, widths=(8, 4), within="axis", fastest=(1.0, 0.5)),
    whorl.MRoPE(16, sections=(4, 2, 2), order="interleaved", base=500.0),
    whorl.MRoPE(20, sections=(3, 3, 2), order="alternating", axes=(1, 2, 0), rotary_dim=16),
    whorl.MRoPE(16, sections=(2, 3, 3), table="on_the_fly", scaling=whorl.Linear(factor=4.0)),
    whorl.RelativeBias(2, max_distance=2, max_future=5),
    whorl.RoPE(8, inv_freq=[1.0, 0.5, 0.1, 0.0]),
    *(whorl.RoPE(16, scaling=scaling) for scaling in SCALINGS if not scaling.follows_length),
    whorl.Sinusoidal(16, base=100.0, scale=0.25, precision="float32"),
    whorl.T5Bias(2, num_buckets=6, max_distance=5, scale=0.5, std=0.5),
    whorl.NoPE() + whorl.RoPE(16),
    whorl.RoPE(16) + whorl.RelativeBias(4, max_distance=3),
    whorl.Kerple(4) + whorl.T5Bias(4),
]
#: The checks that take by far the longest.
COSTLY = ("compiles", "gradients")
PAIRS = [(encoding, check) for encoding in CASES for check in list_checks()]
PAIRS += [
    (encoding, check) for encoding in OF_NUMBERS for check in list_checks() if check not in COSTLY
]


def test_every_registered_encoding_is_here() -> None:
    assert set(whorl.names()) == VARIANTS.keys()


def test_every_registered_scaling_is_here() -> None:
    assert {scaling.name for scaling in SCALINGS} == set(scalings.names())


def test_costly_checks_are_checks() -> None:
    assert set(COSTLY) <= set(list_checks())


PARAMETERS = [
    pytest.param(*pair, id=str(pair), marks=[pytest.mark.slow] if pair[1] in COSTLY else [])
    for pair in PAIRS
]


@pytest.mark.parametrize(("encoding", "check"), PARAMETERS)
def test_conformance(encoding: whorl.Encoding, check: str) -> None:
    check_encoding(encoding, only=(check,))
