"""The registry, composition and the hooks that encodings may use."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import whorl
from whorl.encodings import base


@dataclass(frozen=True)
class ToyConfig(whorl.Config):
    """Options of the toys below."""

    num_heads: int = 4


class Toy(whorl.Encoding):
    name = "toy"
    config: ToyConfig

    def __init__(self, num_heads: int = 4) -> None:
        super().__init__()
        self.config = ToyConfig(num_heads)


class Slope(Toy):
    """A bias that falls with distance."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return -distance.abs().expand(self.config.num_heads, *distance.shape).double()


class Lookback(Toy):
    """Adds to scores and to outputs from content."""

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        return q.sum(-1, keepdim=True) * (positions[:, None] - key_positions[None, :])

    def value_term(self, weights: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        return (weights * (positions[:, None] - key_positions[None, :])).sum(-1, keepdim=True)


class Cool(Toy):
    """Sets the softmax scale and a scale per query."""

    def softmax_scale(self, head_dim: int) -> float:
        return 1.0

    def query_scale(self, positions: Tensor) -> Tensor:
        return 1.0 + positions.double() / 100


class Added(Toy):
    """Adds the position to the embedding."""

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        return x + 1


def test_names_and_make() -> None:
    assert whorl.names() == ["nope", "rope"]
    rope = whorl.make("rope", head_dim=64, layout="interleaved", scaling=whorl.Linear(2.0))
    assert isinstance(rope, whorl.RoPE)
    assert repr(rope) == "RoPE(64, layout='interleaved', scaling=Linear(factor=2.0))"
    assert whorl.from_dict(rope.to_dict()).config == rope.config


def test_make_says_what_is_near() -> None:
    with pytest.raises(
        ValueError, match=r"unknown encoding 'rop'; did you mean 'rope'\? Known: nop"
    ):
        whorl.make("rop", head_dim=8)
    with pytest.raises(ValueError, match=r"unknown encoding 'zzz'\. Known: nope, rope\."):
        whorl.make("zzz")
    with pytest.raises(TypeError, match=r"'rope' has no option 'theta'\. It has: head_dim, base, "):
        whorl.make("rope", head_dim=8, theta=10_000.0)
    with pytest.raises(TypeError, match=r"no option 'rotary_dims'; did you mean 'rotary_dim'\?"):
        whorl.make("rope", head_dim=8, rotary_dims=4)


def test_register_takes_new_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    whorl.register("slope")(Slope)
    assert isinstance(whorl.make("slope", num_heads=2), Slope)
    with pytest.raises(
        ValueError, match=r"encoding 'slope' is registered already, as Slope; choose"
    ):
        whorl.register("slope")(Cool)


def test_hooks_are_what_a_class_overrides() -> None:
    assert whorl.NoPE().hooks == frozenset()
    assert whorl.RoPE(8).hooks == {"rotation"}
    assert Slope().hooks == {"score"}
    assert Lookback().hooks == {"score", "value"}
    assert Cool().hooks == {"scale"}
    assert (whorl.RoPE(8) + Slope() + Added()).hooks == {"input", "rotation", "score"}


def test_composition_goes_through_every_hook() -> None:
    rope = whorl.RoPE(8)
    both = Added() + rope + Slope() + Lookback() + Cool() + Slope()
    assert [type(part) for part in both.parts] == [Added, whorl.RoPE, Slope, Lookback, Cool, Slope]
    x, q = torch.zeros(1, 3, 5), torch.randn(1, 4, 3, 8)
    at = torch.arange(3)
    assert torch.equal(both.embed(x), x + 1)
    assert torch.equal(both(q, q, offset=2)[0], rope.rotate(q, offset=2))
    distance = at[:, None] - at[None, :]
    bias = both.distance_bias(distance)
    assert bias is not None
    assert torch.equal(bias, 2 * Slope().distance_bias(distance))
    content, value = both.content_score(q, q, at, at), both.value_term(q @ q.mT, at, at)
    assert content is not None
    assert content.shape == (1, 4, 3, 3)
    assert value is not None
    assert both.softmax_scale(8) == 1.0
    assert both.query_scale(at) is not None
    plain = whorl.NoPE() + whorl.NoPE()
    assert plain.distance_bias(distance) is None
    assert plain.permutation == "equivariant"
    assert both.permutation == "sensitive"


def test_composition_round_trips() -> None:
    both = whorl.NoPE() + whorl.RoPE(8, base=500.0)
    assert repr(both) == "NoPE() + RoPE(8, base=500.0)"
    again = whorl.from_dict(both.to_dict())
    assert again.config == both.config
    assert isinstance(again, whorl.Composition)


def test_composition_refuses_what_makes_no_sense() -> None:
    with pytest.raises(
        ValueError, match=r"cannot compose RoPE\(8\) with RoPE\(8\), because both would"
    ):
        whorl.RoPE(8) + whorl.RoPE(8)
    with pytest.raises(ValueError, match=r"because both would set the scale; keep one of them"):
        Cool() + Cool()
    with pytest.raises(TypeError):
        whorl.RoPE(8) + 1  # type: ignore[operator]
