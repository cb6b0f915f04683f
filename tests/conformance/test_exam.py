"""Every registered encoding, in its variants, sits the whole exam."""

import pytest

import whorl
from whorl.testing import check_encoding, checks

VARIANTS: dict[str, list[whorl.Encoding]] = {
    "nope": [whorl.NoPE()],
    "rope": [
        whorl.RoPE(16),
        whorl.RoPE(16, impl="reference"),
        whorl.RoPE(16, layout="interleaved", base=500.0),
        whorl.RoPE(16, out_layout="interleaved", precision="float32"),
        whorl.RoPE(24, rotary_dim=6, rotary_start=18, table="on_the_fly"),
        whorl.RoPE(16, table="precomputed", table_length=8192),
        whorl.RoPE(16, table_length=7),
        whorl.RoPE(16, frequencies="trained"),
        whorl.RoPE(8, inv_freq=[1.0, 0.5, 0.1, 0.0]),
        whorl.RoPE(16, scaling=whorl.Linear(factor=4.0)),
        whorl.RoPE(16, scaling=whorl.NTK(factor=2.0)),
        whorl.RoPE(16, scaling=whorl.DynamicNTK(factor=2.0, original_context=8)),
        whorl.RoPE(
            16,
            frequencies="trained",
            impl="reference",
            scaling=whorl.DynamicNTK(factor=4.0, original_context=16),
        ),
    ],
}
CASES = [encoding for many in VARIANTS.values() for encoding in many]
CASES += [whorl.NoPE() + whorl.RoPE(16)]


def test_every_registered_encoding_is_here() -> None:
    assert set(whorl.names()) == VARIANTS.keys()


@pytest.mark.parametrize("check", checks())
@pytest.mark.parametrize("encoding", CASES, ids=repr)
def test_exam(encoding: whorl.Encoding, check: str) -> None:
    check_encoding(encoding, only=(check,))
