"""Options for models of others: turning backward, and one length for a whole batch."""

from typing import Any

import pytest
import torch

import whorl
from whorl.scaling import NTK, DynamicLinear, DynamicNTK, DynamicYaRN, LongRoPE, Proportional

Q = torch.randn(2, 2, 9, 16, generator=torch.Generator().manual_seed(0))
AT = torch.stack([torch.arange(9), torch.arange(40, 49)])
SCALINGS: list[whorl.Scaling | None] = [
    *(None, whorl.Linear(2.0), NTK(3.0), DynamicNTK(2.0, 16), whorl.YaRN(4.0, 32)),
    *(whorl.Llama3(8.0, 32), Proportional(0.5), DynamicYaRN(16), DynamicLinear(16)),
    LongRoPE([1.0] * 8, [3.0] * 8, 16, factor=4.0),
]
FOLLOWING = [scaling for scaling in SCALINGS if scaling is not None and scaling.follows_length]


@pytest.mark.parametrize("scaling", SCALINGS, ids=repr)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_backward_is_forward_at_minus_the_position(
    scaling: whorl.Scaling | None, precision: whorl.Precision
) -> None:
    forward = whorl.RoPE(16, scaling=scaling, precision=precision)
    backward = whorl.RoPE(16, scaling=scaling, precision=precision, direction="backward")
    length = AT.amax(-1) + 1
    expected = forward.rotate(Q, -AT, context_length=length)
    torch.testing.assert_close(backward.rotate(Q, AT), expected, rtol=0, atol=1e-6)
    for now in (None, 40):
        there, back = forward.frequencies(now), backward.frequencies(now)
        assert torch.equal(back.inv_freq, -there.inv_freq)
        assert back.attention_scale == there.attention_scale


def test_backward_is_an_option_like_others() -> None:
    rope = whorl.RoPE(16, direction="backward")
    assert repr(rope) == "RoPE(16, direction='backward')"
    assert whorl.from_dict(rope.to_dict()).config == rope.config
    assert "kept" in str(
        whorl.RoPE(16, direction="backward", scaling=whorl.YaRN(4.0, 32)).describe()
    )
    own = whorl.RoPE(4, inv_freq=[1.0, 0.5], direction="backward")
    assert own.frequencies().inv_freq.tolist() == [-1.0, -0.5]
    with pytest.raises(ValueError, match="direction must be 'forward' or 'backward'; got 'back'"):
        whorl.RoPE(16, direction="back")  # type: ignore[arg-type]


@pytest.mark.parametrize("scaling", FOLLOWING, ids=repr)
@pytest.mark.parametrize("make", [whorl.RoPE, whorl.MRoPE], ids=["rope", "mrope"])
def test_one_length_for_the_batch_is_the_longest(scaling: whorl.Scaling, make: type) -> None:
    options = {"scaling": scaling, **({"sections": (2, 3, 3)} if make is whorl.MRoPE else {})}
    at = AT.expand(3, -1, -1) if make is whorl.MRoPE else AT
    rows, batch = make(16, **options), make(16, lengths="batch", **options)
    assert torch.equal(batch.rotate(Q, at), rows.rotate(Q, at, context_length=49))
    assert not torch.equal(batch.rotate(Q, at), rows.rotate(Q, at))
    given = torch.tensor([9, 49])
    assert torch.equal(batch.rotate(Q, at, context_length=given), rows.rotate(Q, at))
    assert torch.equal(batch.rotate(Q, offset=3), rows.rotate(Q, offset=3))


def test_one_length_for_the_batch_compiled() -> None:
    rope = whorl.RoPE(16, scaling=DynamicNTK(2.0, 16), lengths="batch")
    compiled = torch.compile(rope.rotate, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(Q, AT), rope.rotate(Q, AT), rtol=0, atol=1e-6)


def test_lengths_are_rows_or_batch() -> None:
    with pytest.raises(ValueError, match="lengths must be 'rows' or 'batch'; got 'all'"):
        whorl.RoPE(16, lengths="all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encoding", "scaling"),
    [
        (whorl.RoPE(8, scaling=whorl.Linear(2.0)), whorl.Linear(2.0)),
        (whorl.MRoPE(8, sections=(2, 1, 1), scaling=whorl.Linear(2.0)), whorl.Linear(2.0)),
        (whorl.RoPE(8), None),
        (whorl.XPos(8), None),
        (whorl.AxialRoPE(8), None),
    ],
    ids=repr,
)
def test_every_rotary_config_has_a_scaling(encoding: Any, scaling: whorl.Scaling | None) -> None:
    assert encoding.config.scaling == scaling
    assert ("scaling" in encoding.to_dict()) == isinstance(encoding, whorl.RoPE | whorl.MRoPE)
