"""The lab's model: every encoding at its hook, equal starts, and the parts of a gradient."""

from typing import Any

import pytest
import torch

import whorl
from whorl.lab import Model, ModelConfig
from whorl.lab.encodings import build_encoding, format_title, split_spec
from whorl.lab.model import NORM_EPS, RMSNorm


def built(encoding: Any = "rope", seed: int = 0, **options: Any) -> Model:
    shape = {"layers": 2, "width": 48, "heads": 4, **options}
    model = Model(ModelConfig(encoding=encoding, **shape), vocab=50, longest=64)
    model.reset_parameters(seed)
    return model.eval()


def tokens(length: int = 40) -> torch.Tensor:
    return torch.randint(0, 50, (2, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", whorl.names())
def test_every_encoding_trains(name: str) -> None:
    model = built(name)
    loss = model.loss(tokens(), tokens())
    assert abs(float(loss.detach()) - torch.tensor(50.0).log()) < 0.2
    loss.backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # ALiBi and its kind train nothing; rows of a table that no token reaches have no gradient.
    assert missing == []


@pytest.mark.parametrize("name", whorl.names())
def test_a_decoder_does_not_see_the_future(name: str) -> None:
    model, text = built(name), tokens()
    with torch.no_grad():
        whole, start = model(text), model(text[:, :25])
    torch.testing.assert_close(whole[:, :25], start, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", [n for n in whorl.names() if n != "xpos"])
def test_an_encoder_does(name: str) -> None:
    model, text = built(name, kind="encoder"), tokens()
    other = text.clone()
    other[:, -1] = (other[:, -1] + 1) % 50
    with torch.no_grad():
        assert (model(text)[:, 0] - model(other)[:, 0]).abs().max() > 1e-8


@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "learned", "xpos", "sinusoidal+rope"])
@pytest.mark.parametrize("feature_map", ["elu", "cosine", "favor"])
def test_linear_attention(name: str, feature_map: str) -> None:
    if (name, feature_map) == ("xpos", "favor"):
        with pytest.raises(
            ValueError, match=r"must be 'elu', .* with model.encoding 'xpos', whose"
        ):
            built(name, attention="linear", feature_map=feature_map)
        return
    model, text = built(name, attention="linear", feature_map=feature_map), tokens()
    with torch.no_grad():
        whole, start = model(text), model(text[:, :25])
    torch.testing.assert_close(whole[:, :25], start, rtol=0, atol=2e-5)


def test_positions_matter() -> None:
    text = tokens()
    flipped = text.clone()
    flipped[:, :39] = text[:, :39].flip(1)
    with torch.no_grad():
        for name in whorl.names():
            model = built(name, layers=1, kind="encoder" if name != "xpos" else "decoder")
            for weight in model.encoding.parameters():
                weight.normal_(generator=torch.Generator().manual_seed(3))
            apart = float((model(text)[:, -1] - model(flipped)[:, -1]).abs().max())
            assert (apart > 1e-7) == (name != "nope"), name


def test_equal_starts_whatever_the_encoding() -> None:
    rope, learned = built("rope"), built("learned")
    theirs = dict(learned.named_parameters())
    for name, weight in rope.named_parameters():
        assert torch.equal(weight, theirs[name]), name
    assert torch.equal(built("learned").encoding.weight, learned.encoding.weight)  # type: ignore[arg-type]
    other = built("rope", seed=1)
    assert not torch.equal(other.head.weight, rope.head.weight)


def test_a_start_leaves_the_generator_alone() -> None:
    model = built("learned")
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    model.reset_parameters(0)
    assert torch.equal(torch.rand(1), expected)


def test_encodings_by_layer() -> None:
    shared, own = built("t5"), built("t5", encoding_per="layer")
    count = sum(p.numel() for p in shared.encoding.parameters())
    more = sum(p.numel() for p in own.parameters()) - sum(p.numel() for p in shared.parameters())
    assert more == count  # two layers, two tables
    for name in ("rope", "learned"):
        assert len(built(name, encoding_per="layer").layer_encodings) == 0
    both = built("learned+t5", encoding_per="layer")
    assert repr(both.layer_encodings[0]).startswith("T5Bias")
    both.loss(tokens(), tokens()).backward()
    assert all(p.grad is not None for p in both.parameters())
    assert not torch.equal(own.encoding.weight, own.layer_encodings[0].weight)  # type: ignore[arg-type]


def test_grouped_keys_and_tied_weights() -> None:
    model = built("rope", kv_heads=2, tied=True)
    assert model.head.weight is model.embedding.weight
    assert model(tokens()).shape == (2, 40, 50)


def test_dropout_is_for_training() -> None:
    model = built("rope", dropout=0.5)
    assert torch.equal(model(tokens()), model(tokens()))
    model.train()
    assert not torch.equal(model(tokens()), model(tokens()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_norm_is_computed_in_float32_or_wider(dtype: torch.dtype) -> None:
    norm, x = RMSNorm(12), 300 * torch.randn(3, 5, 12).to(dtype)
    with torch.no_grad():
        norm.weight.normal_()
    roots = (x.double().square().mean(-1, keepdim=True) + NORM_EPS).sqrt()
    expected = (x.double() / roots * norm.weight).to(dtype)
    assert norm(x).dtype == dtype
    torch.testing.assert_close(norm(x), expected)


def test_the_mlp_is_swiglu() -> None:
    x = torch.randn(2, 5, 48)
    block: Any = built("nope").blocks[0]
    block.out.weight.data.zero_()  # so that attention adds nothing
    gate, up = block.gate_up(block.mlp_norm(x)).chunk(2, -1)
    expected = x + block.down(gate / (1 + (-gate).exp()) * up)
    torch.testing.assert_close(block(x, built("nope").encoding, None, None), expected)


def test_parts() -> None:
    model = built("learned")
    found = {model.name_part(name) for name, _ in model.named_parameters()}
    assert found == {"attention", "embedding", "encoding", "head", "mlp", "norms"}


def test_what_is_not_asked_does_not_count() -> None:
    model, text = built(), tokens()
    targets = torch.full_like(text, -1)
    targets[:, 3] = text[:, 3]
    expected = torch.nn.functional.cross_entropy(model(text)[:, 3], text[:, 3])
    torch.testing.assert_close(model.loss(text, targets), expected)


def test_specs() -> None:
    assert format_title("learned + rope") == "learned+rope"
    assert split_spec({"name": "rope", "base": 5.0}) == [{"name": "rope", "base": 5.0}]
    assert format_title([{"name": "rope", "base": 5.0}, "alibi"]) == "rope(base=5.0)+alibi"
    shape = ModelConfig(width=48, heads=4)
    assert repr(build_encoding({"name": "rope", "base": 5.0}, shape, 64)) == "RoPE(12, base=5.0)"
    assert build_encoding("t5", shape, 64).softmax_scale(12) is None


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "rop",
            ValueError,
            r"model.encoding: 'rop' is unknown; did you mean 'rope'\? Known: alibi, ",
        ),
        ({"base": 3.0}, ValueError, r"model.encoding as a table needs a name; got \{'base': 3.0\}"),
        (
            {"name": "rope+alibi", "base": 3.0},
            ValueError,
            r"a table must name one encoding.*; write",
        ),
        ({"name": "rope", "bse": 3.0}, ValueError, r"model.encoding: encoding 'rope' has no opti"),
        (3, TypeError, r"model.encoding must be a name such as 'rope' or 'learned\+rope'"),
        ([], TypeError, r"model.encoding must be a name such as 'rope' or 'learned\+rope'"),
    ],
)
def test_bad_specs(spec: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        built(spec)


def test_an_encoder_refuses_what_is_causal() -> None:
    with pytest.raises(ValueError, match=r"'xpos' is for causal attention only, and an encoder"):
        built("xpos", kind="encoder")


@pytest.mark.parametrize("name", ["t5", "kerple", "shaw", "deberta", "rope+t5"])
def test_linear_attention_refuses_scores_by_pair(name: str) -> None:
    with pytest.raises(ValueError, match=r"scores pairs of tokens, which linear attention never"):
        built(name, attention="linear")
    with pytest.raises(ValueError, match=r"'alibi' is for causal attention only, and an encoder"):
        built("alibi", attention="linear", kind="encoder")
