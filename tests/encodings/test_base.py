"""The registry, composition and the hooks that encodings may use."""

from dataclasses import dataclass
from typing import ClassVar

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


class Warm(Toy):
    """Sets the softmax scale only, and is excused from two checks."""

    exempt: ClassVar = {"empty": "needs a token", "compiles": "talks to the disk"}

    def softmax_scale(self, head_dim: int) -> float:
        return 2.0


class Late(Toy):
    """Scales queries only, takes whole positions, and is excused from one check."""

    fractional: ClassVar[bool] = False
    exempt: ClassVar = {"empty": "needs a position"}

    def query_scale(self, positions: Tensor) -> Tensor:
        return 1.0 + positions.double()


class Added(Toy):
    """Adds the position to the embedding."""

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        return x + 1


def test_names_and_make() -> None:
    assert {"nope", "rope"} <= set(whorl.names())
    assert whorl.names() == sorted(whorl.names())
    rope = whorl.make("rope", head_dim=64, layout="interleaved", scaling=whorl.Linear(2.0))
    assert isinstance(rope, whorl.RoPE)
    assert repr(rope) == "RoPE(64, layout='interleaved', scaling=Linear(factor=2.0))"
    assert whorl.from_dict(rope.to_dict()).config == rope.config


def test_make_says_what_is_near() -> None:
    with pytest.raises(
        ValueError, match=r"unknown encoding 'rop'; did you mean 'rope'\? Known: .*nop"
    ):
        whorl.make("rop", head_dim=8)
    with pytest.raises(ValueError, match=r"unknown encoding 'zzz'\. Known: .*nope, .*rope"):
        whorl.make("zzz")
    with pytest.raises(TypeError, match=r"'rope' has no option 'theta'\. It has: head_dim, base, "):
        whorl.make("rope", head_dim=8, theta=10_000.0)
    with pytest.raises(TypeError, match=r"no option 'rotary_dims'; did you mean 'rotary_dim'\?"):
        whorl.make("rope", head_dim=8, rotary_dims=4)


def test_constructors_name_the_encoding_in_errors() -> None:
    with pytest.raises(TypeError, match=r"^RoPE: got an unexpected keyword argument 'bse'\."):
        whorl.RoPE(8, bse=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^RoPE: missing a required argument: 'head_dim'\."):
        whorl.RoPE()  # type: ignore[call-arg]


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
    both = Added() + rope + Slope() + Cool() + Slope()
    assert [type(part) for part in both.parts] == [Added, whorl.RoPE, Slope, Cool, Slope]
    x, q = torch.zeros(1, 3, 5), torch.randn(1, 4, 3, 8)
    at = torch.arange(3)
    assert torch.equal(both.embed(x), x + 1)
    assert torch.equal(both(q, q, offset=2)[0], rope.rotate(q, offset=2))
    distance = at[:, None] - at[None, :]
    bias = both.distance_bias(distance)
    assert bias is not None
    assert torch.equal(bias, 2 * Slope().distance_bias(distance))
    asking = Slope() + Lookback() + Lookback()
    content, value = asking.content_score(q, q, at, at), asking.value_term(q @ q.mT, at, at)
    assert content is not None
    assert torch.equal(content, 2 * Lookback().content_score(q, q, at, at))
    assert value is not None
    assert both.content_score(q, q, at, at) is None
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
    with pytest.raises(ValueError, match=r"both would set the softmax scale; keep one of them"):
        Cool() + Warm()
    with pytest.raises(ValueError, match=r"because both would scale the queries; keep one of them"):
        Late() + Late()
    with pytest.raises(
        ValueError, match=r"cannot compose RoPE\(8\) with Lookback.* has rotated; k"
    ):
        Lookback() + whorl.RoPE(8)
    with pytest.raises(ValueError, match=r"their num_heads differ: 3 and 4; build both for the"):
        Slope(3) + whorl.RoPE(8) + Slope(4)
    with pytest.raises(TypeError):
        whorl.RoPE(8) + 1  # type: ignore[operator]


def test_the_two_scales_may_come_from_two_parts() -> None:
    both = Warm() + Late()
    assert both.softmax_scale(8) == 2.0
    scale = both.query_scale(torch.arange(3))
    assert scale is not None
    assert scale.tolist() == [1.0, 2.0, 3.0]


def test_composition_declares_what_its_parts_declare() -> None:
    both = whorl.RoPE(8) + Warm() + Late()
    assert both.exempt == {
        "empty": "needs a token; needs a position",
        "compiles": "talks to the disk",
    }
    assert (Warm() + Added() + Slope()).exempt == Warm.exempt
    assert not both.fractional
    assert (whorl.RoPE(8) + Slope()).fractional
    (result,) = whorl.testing.check_encoding(both, only=("compiles",))
    assert result.exempt
    assert result.message == "talks to the disk"


def test_from_dict_refuses_what_a_composition_does_not_have() -> None:
    options = (whorl.NoPE() + whorl.RoPE(8)).to_dict()
    with pytest.raises(
        TypeError, match=r"composition has no option 'junk', 'base'\. It has: parts"
    ):
        whorl.from_dict({**options, "junk": 1, "base": 2.0})
    with pytest.raises(TypeError, match=r"'rope' has no option 'junk'"):
        whorl.from_dict({**options, "parts": [{"name": "rope", "head_dim": 8, "junk": 1}]})
    with pytest.raises(
        ValueError, match=r"composition must have 'parts', a list .*; got None\. Tak"
    ):
        whorl.from_dict({"name": "composition"})
    for wrong in ("nope", ["nope"], {"name": "nope"}):
        with pytest.raises(ValueError, match=r"must have 'parts', a list with the dictionary of"):
            whorl.from_dict({"name": "composition", "parts": wrong})


def test_segments_go_through_a_composition() -> None:
    xl = whorl.TransformerXL(2, 4, segments="xlnet")
    q, at, ids = torch.randn(1, 2, 3, 4), torch.arange(3), torch.tensor([0, 0, 1])
    both = xl + whorl.ALiBi(2)
    want = xl.content_score(q, q, at, at, segments=ids)
    got = both.content_score(q, q, at, at, segments=ids)
    assert got is not None
    assert torch.equal(got, want)
    with pytest.raises(
        TypeError, match=r"Shaw\(2, head_dim=4\) has no 'segments' in content_score"
    ):
        (whorl.Shaw(2, 4) + whorl.ALiBi(2)).content_score(q, q, at, at, segments=ids)


def test_bad_names_and_dictionaries_are_refused() -> None:
    with pytest.raises(TypeError, match=r"register needs the name of the encoding"):
        whorl.register(Slope)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"from_dict: an encoding must be a dictionary, as to_dict"):
        whorl.from_dict(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"needs a 'name', one of alibi, .* or 'composition'; got"):
        whorl.from_dict({"head_dim": 8})
    with pytest.raises(ValueError, match=r"a composition needs at least one encoding; got none"):
        whorl.Composition()
    with pytest.raises(TypeError, match=r"a composition is made of encodings; got 3"):
        whorl.Composition(whorl.NoPE(), 3)  # type: ignore[arg-type]


def test_a_softmax_scale_that_is_left_to_others_is_no_conflict() -> None:
    both = whorl.T5Bias(2, scale=None) + whorl.DeBERTa(2, 4)
    assert both.softmax_scale(4) == whorl.DeBERTa(2, 4).softmax_scale(4)
    with pytest.raises(ValueError, match=r"both would set the softmax scale"):
        whorl.T5Bias(2) + whorl.DeBERTa(2, 4)
    assert whorl.T5Bias(2).hooks == {"score", "scale"}
    assert whorl.T5Bias(2, scale=None).hooks == {"score"}
    assert (whorl.RoPE(8) + whorl.ALiBi(2)).acts("distance_bias")
    assert not (whorl.RoPE(8) + whorl.ALiBi(2)).acts("content_score")
    whorl.Sinusoidal(16) + whorl.TransformerXL(2, 4, dim=6)  # its dim is that of its sinusoid
