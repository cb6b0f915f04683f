"""transformers' own functions as oracle, in its float32 and, by exchanging dtypes, in float64."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from hypothesis import strategies as st
from torch import Tensor
from transformers import modeling_rope_utils

import whorl
from tests.peers import TRANSFORMERS
from whorl.scaling import Scaling

PRECISIONS: tuple[whorl.Precision, ...] = ("float32", "float64")
#: Theirs and ours take other roundings on the way; float32 ladders themselves are bit-equal.
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


class _Wide(Tensor):
    """A tensor whose ``.float()`` is float64."""

    def float(self) -> Tensor:
        return self.as_subclass(Tensor).double()


class _WideTorch:
    """torch with float64 under the name of float32."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def arange(self, *args: Any, **kwargs: Any) -> Tensor:
        return torch.arange(*args, **kwargs).as_subclass(_Wide)


def theirs(
    rope_type: str,
    head: "Head",
    precision: str = "float32",
    seq_len: int | None = None,
    max_position_embeddings: int = 2048,
    **parameters: Any,
) -> tuple[Tensor, float]:
    """inv_freq and attention scale of ROPE_INIT_FUNCTIONS[rope_type]."""
    config = SimpleNamespace(
        head_dim=head.width,
        hidden_size=head.width,
        num_attention_heads=1,
        max_position_embeddings=max_position_embeddings,
        standardize_rope_params=lambda: None,
        rope_parameters={
            "rope_type": rope_type,
            "rope_theta": head.base,
            "partial_rotary_factor": head.partial,
            **parameters,
        },
    )
    if TRANSFORMERS == 4:  # in whose words the same is beside each other
        config.rope_theta, config.partial_rotary_factor = head.base, head.partial
        config.rope_scaling = {"rope_type": rope_type, **parameters}
        if rope_type == "longrope" and "original_max_position_embeddings" in parameters:
            config.original_max_position_embeddings = parameters["original_max_position_embeddings"]
    arithmetic = torch if precision == "float32" else _WideTorch()
    with mock.patch.object(modeling_rope_utils, "torch", arithmetic):
        function = modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope_type]
        inv_freq, scale = function(config, torch.device("cpu"), seq_len=seq_len)
    return inv_freq.as_subclass(Tensor).double(), float(scale)


class Head(SimpleNamespace):
    """Width of a head, the part of it that turns, and the base."""

    width: int
    partial: float
    base: float

    def rope(self, scaling: Scaling | None, precision: whorl.Precision) -> whorl.RoPE:
        turning = int(self.width * self.partial)
        return whorl.RoPE(
            self.width,
            rotary_dim=turning,
            base=self.base,
            scaling=scaling,
            precision=precision,
            table_length=0,
        )


def heads(smallest: int = 4) -> st.SearchStrategy[Head]:
    """Heads with an even number of turning channels, at least ``smallest``."""
    drawn = st.builds(
        Head,
        width=st.integers(2, 128).map(lambda n: 2 * n),
        partial=st.sampled_from([1.0, 0.25, 0.5, 0.4, 0.75]),
        base=st.floats(10.0, 1e8),
    )

    def fits(head: Head) -> bool:
        turning = int(head.width * head.partial)
        return turning % 2 == 0 and turning >= smallest

    return drawn.filter(fits)


def check(
    scaling: Scaling,
    head: Head,
    precision: whorl.Precision,
    expected: tuple[Tensor, float],
    context_length: int | None = None,
) -> None:
    """Refuse frequencies or a scale that differ from theirs."""
    got = head.rope(scaling, precision).frequencies(context_length)
    tolerance = TOLERANCE[precision]
    torch.testing.assert_close(got.inv_freq, expected[0], rtol=tolerance, atol=0)
    assert abs(float(got.attention_scale) - expected[1]) <= 1e-12 * expected[1]
