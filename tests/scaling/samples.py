"""One or more of every scaling, for a head of 16 channels trained on 32 tokens."""

from whorl.scaling import (
    NTK,
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    YaRN,
)

SHORT, LONG = (1.0, 1.0, 1.1, 1.2, 1.3, 1.5, 1.5, 2.0), (1.0, 1.5, 2.0, 4.0, 6.0, 7.0, 8.0, 8.0)

SCALINGS: list[Scaling] = [
    Linear(4.0),
    DynamicLinear(32),
    NTK(4.0),
    DynamicNTK(4.0, 32),
    DynamicNTK(alpha=100.0),
    NTKByParts(4.0, 32, beta_fast=3.0),
    NTKByParts(4.0, 32, beta_fast=3.0, ramp="rotations"),
    YaRN(4.0, 32, beta_fast=3.0, truncate=False),
    YaRN(4.0, 32, beta_fast=3.0, mscale=0.7, mscale_all_dim=1.0, ramp="rotations"),
    DynamicYaRN(32, beta_fast=3.0),
    DynamicYaRN(32, beta_fast=3.0, mscale=0.7, mscale_rule="each", ramp="rotations"),
    Llama3(8.0, 32),
    LongRoPE(SHORT, LONG, 32, factor=8.0),
    LongRoPE(SHORT, LONG, 32, attention_factor=1.1, long_attention_factor=1.3),
    Proportional(0.5, factor=2.0),
]
FOLLOWING = [scaling for scaling in SCALINGS if scaling.follows_length]


def name_of(scaling: Scaling) -> str:
    """For the ids of tests."""
    return scaling.name
