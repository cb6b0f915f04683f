"""DeBERTa: the definition in slow loops, shared projections, and what it refuses."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import whorl
from whorl.encodings import DeBERTa

from .content import filled, places, random, row, worst

AT = torch.arange(5)
Q, K = torch.zeros(2, 4, 5, 6), torch.zeros(2, 2, 5, 6)
LOG = {"buckets": "log", "max_distance": 40, "position_buckets": 8}


def bucket(distance: int, span: int, max_distance: int, kind: str) -> int:
    """The row of P, from the formula; far from ties, where float32 would not matter."""
    half = span // 2
    if kind == "log" and abs(distance) > half:
        share = math.log(abs(distance) / half) / math.log((max_distance - 1) / half)
        far = math.ceil(share * (half - 1) - 1e-6) + half
        distance = far if distance > 0 else -far
    return max(0, min(2 * span - 1, distance + span))


def oracle(enc: DeBERTa, q: Tensor, k: Tensor, at: Tensor, key_at: Tensor) -> Tensor:
    config = enc.config
    H, D = config.num_heads, config.head_dim
    P: Tensor = enc.vectors
    if config.norm == "layer_norm":
        apart = P - P.mean(-1, keepdim=True)
        P = apart / (apart.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt()
        P = P * enc.norm.weight + enc.norm.bias
    score = torch.zeros(2, H, q.shape[2], k.shape[2], dtype=torch.float64)
    for b in range(2):
        for t, i in enumerate(row(at, b)):
            for s, j in enumerate(row(key_at, b)):
                d = bucket(i - j, config.span, config.max_distance, config.buckets)
                e = bucket(j - i, config.span, config.max_distance, config.buckets)
                e = e if config.p2c_index == "paper" else d
                for h in range(H):
                    part = slice(h * D, h * D + D)
                    if "c2p" in config.terms:
                        linear: Any = enc.key
                        key = linear.weight[part] @ P[d] + linear.bias[part]
                        score[b, h, t, s] += q[b, h, t] @ key
                    if "p2c" in config.terms:
                        linear = enc.query
                        query = linear.weight[part] @ P[e] + linear.bias[part]
                        score[b, h, t, s] += k[b, h // (H // k.shape[1]), s] @ query
    return score


@given(data=st.data(), T=st.integers(1, 4), S=st.integers(1, 4))
@settings(max_examples=40)
def test_score_is_the_definition(data: st.DataObject, T: int, S: int) -> None:
    options: Any = data.draw(st.sampled_from([{"max_distance": 3}, {"max_distance": 60}, LOG]))
    terms = data.draw(st.sampled_from([("c2p",), ("p2c",), ("c2p", "p2c"), ("p2c", "c2p")]))
    norm: Any = data.draw(st.sampled_from(["none", "layer_norm"]))
    index: Any = data.draw(
        st.sampled_from(["released", "paper"] if "p2c" in terms else ["released"])
    )
    options = {**options, "terms": terms, "norm": norm, "norm_eps": 0.01, "p2c_index": index}
    enc = filled(DeBERTa(4, 3, dim=5, **options))
    at, key_at = data.draw(places(T)), data.draw(places(S))
    q, k = random(2, 4, T, 3), random(2, 2, S, 3, seed=1)
    want = oracle(enc, q, k, at, key_at)
    torch.testing.assert_close(enc.content_score(q, k, at, key_at), want, rtol=0, atol=1e-11)


@pytest.mark.parametrize("index", ["released", "paper"])
@pytest.mark.parametrize("options", [{"max_distance": 3}, {"max_distance": 60}, LOG])
def test_prepared_scores_are_the_definition(index: Any, options: Any) -> None:
    """Positions that count up by one are scored in C; keys begin before queries and after."""
    enc = filled(DeBERTa(4, 3, norm="layer_norm", p2c_index=index, **options))
    q, k = random(2, 4, 6, 3), random(2, 2, 9, 3, seed=1)
    for start in (0, 3, 20):
        at, key_at = torch.arange(6) + start, torch.arange(9)
        score = enc.scorer(q, k, key_at, (start - 8, start + 5))
        torch.testing.assert_close(
            score(q, k, at, key_at), oracle(enc, q, k, at, key_at), rtol=0, atol=1e-11
        )


def test_the_index_of_the_paper_is_another_one() -> None:
    """It mirrors the distance, of "p2c" alone: with the rows of P reversed it is the released one.

    Rows N - x and N + x change places; row 0 has no partner, so distances stay below N.
    """
    released, paper = (
        filled(DeBERTa(2, 4, terms=("p2c",), max_distance=9, p2c_index=index))
        for index in ("released", "paper")
    )
    q, at = random(2, 2, 5, 4), torch.arange(5)
    ours = paper.content_score(q, q, at, at)
    assert worst(ours, released.content_score(q, q, at, at)) > 0.1
    with torch.no_grad():
        released.vectors[1:] = released.vectors[1:].flip(0)
    torch.testing.assert_close(ours, released.content_score(q, q, at, at), rtol=0, atol=1e-12)
    assert DeBERTa(2, 4).config.p2c_index == "released"


@given(data=st.data(), step=st.integers(-(10**6), 10**6))
@settings(max_examples=25)
def test_scores_depend_on_differences_only(data: st.DataObject, step: int) -> None:
    options: Any = data.draw(st.sampled_from([{"max_distance": 9}, LOG]))
    enc = filled(DeBERTa(2, 4, **options))
    at, key_at = data.draw(places(4)), data.draw(places(5))
    q, k = random(2, 2, 4, 4), random(2, 2, 5, 4)
    near = enc.content_score(q, k, at, key_at)
    assert torch.equal(near, enc.content_score(q, k, at + step, key_at + step))


@given(half=st.integers(2, 40), more=st.integers(2, 2000))
def test_log_buckets_are_exact_then_slower_and_within_the_table(half: int, more: int) -> None:
    enc = DeBERTa(
        1, 2, buckets="log", position_buckets=2 * half, max_distance=half + more, terms=("c2p",)
    )
    far = torch.arange(-3 * (half + more), 3 * (half + more) + 1)
    index = enc._find_buckets(far, torch.zeros(1, dtype=torch.long)).squeeze(-1)
    exact = far.abs() <= half
    assert torch.equal(index[exact], far[exact] + 2 * half)
    assert int(index.diff().min()) >= 0
    assert int(index.min()) == 0
    assert int(index.max()) == 4 * half - 1


def test_scale_counts_the_terms() -> None:
    assert DeBERTa(2, 4).softmax_scale(4) == pytest.approx(1 / math.sqrt(12))
    assert DeBERTa(2, 4, terms=("c2p",)).softmax_scale(4) == pytest.approx(1 / math.sqrt(8))
    assert DeBERTa(2, 4).hooks == {"score", "scale"}


def test_only_rows_in_reach_are_projected_and_get_gradients() -> None:
    enc = filled(DeBERTa(2, 4, max_distance=50))
    q, at = random(1, 2, 6, 4), torch.arange(6)
    seen: list[int] = []

    def noted(which: Any, vectors: Tensor) -> Tensor:
        seen.append(vectors.shape[0])
        return DeBERTa._project(enc, which, vectors)

    enc._project = noted
    enc.content_score(q, q, at, at).sum().backward()
    assert seen == [11, 11]
    touched = enc.vectors.grad.abs().sum(-1).nonzero().flatten()
    assert touched.tolist() == list(range(45, 56))


def test_no_tensor_with_an_axis_for_both_pairs_and_channels() -> None:
    enc, T = DeBERTa(1, 64, max_distance=8), 512
    q, at = torch.zeros(1, 1, T, 64), torch.arange(T)
    with torch.profiler.profile(profile_memory=True) as profile:
        enc.content_score(q, q, at, at)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < T * T * 64


def test_parameters_and_their_start() -> None:
    torch.manual_seed(0)
    enc = DeBERTa(16, 32, norm="layer_norm", max_distance=64)
    hollow = copy.deepcopy(enc).to_empty(device="meta").to_empty(device="cpu")
    hollow.reset_parameters()
    for state in (enc.state_dict(), hollow.state_dict()):
        assert state["vectors"].shape == (128, 512)
        for name in ("vectors", "key.weight", "query.weight"):
            assert float(state[name].std()) == pytest.approx(0.02, rel=0.05)
            assert float(state[name].mean()) == pytest.approx(0, abs=0.001)
        for name in ("key.bias", "query.bias", "norm.bias"):
            assert not state[name].any()
        assert bool((state["norm.weight"] == 1).all())
    assert set(DeBERTa(2, 4, terms=("p2c",)).state_dict()) == {
        "vectors",
        "query.weight",
        "query.bias",
    }


def test_half_precision_rounds_once() -> None:
    enc = filled(DeBERTa(2, 16, max_distance=20)).float()
    q, k, at = random(1, 2, 30, 16).bfloat16(), random(1, 2, 30, 16).bfloat16(), torch.arange(30)
    exact = enc.content_score(q.double(), k.double(), at, at).detach()
    got = enc.content_score(q, k, at, at)
    assert got.dtype == torch.bfloat16
    assert worst(got, exact) <= whorl.testing.compute_rounding_tolerance(exact, torch.bfloat16)


class Layer(nn.Module):
    """An attention layer that lends its projections; its keys have half as many heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query_proj = nn.Linear(10, 24)
        self.key_proj = nn.Linear(10, 12)
        self.encoding = DeBERTa(4, 6, dim=10, max_distance=4, projections="shared")
        self.encoding.share(self.query_proj, self.key_proj)

    def score(self) -> Tensor:
        q, k = random(2, 4, 5, 6, dtype=torch.float32), random(2, 2, 5, 6, dtype=torch.float32)
        return self.encoding.content_score(q, k, AT, AT)


def test_shared_projections_are_used_and_trained_but_not_owned() -> None:
    layer = Layer()
    assert set(layer.encoding.state_dict()) == {"vectors"}
    assert not any(name.startswith("encoding.q") for name, _ in layer.named_parameters())
    own = DeBERTa(4, 6, dim=10, max_distance=4)
    key = layer.key_proj
    own.load_state_dict(
        {
            "vectors": layer.encoding.vectors,
            "query.weight": layer.query_proj.weight,
            "query.bias": layer.query_proj.bias,
            "key.weight": key.weight.view(2, 6, 10).repeat_interleave(2, 0).flatten(0, 1),
            "key.bias": key.bias.view(2, 6).repeat_interleave(2, 0).flatten(),
        }
    )
    q, k = random(2, 4, 5, 6, dtype=torch.float32), random(2, 2, 5, 6, dtype=torch.float32)
    torch.testing.assert_close(layer.score(), own.content_score(q, k, AT, AT))
    layer.score().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_the_model_uses_the_projections_of_the_copy(copied: Any) -> None:
    layer = Layer()
    before = layer.score()
    again = copied(layer)
    assert torch.equal(again.score(), before)
    with torch.no_grad():
        again.query_proj.weight.add_(1)
        again.key_proj.weight.add_(1)
    assert torch.equal(layer.score(), before)
    assert worst(again.score(), before) > 1e-3
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again.score(), before)
    layer.to_empty(device="meta")
    q = torch.zeros(2, 4, 5, 6, device="meta")
    at = AT.to("meta")
    assert layer.encoding.content_score(q, q, at, at).is_meta  # it followed the layer


def test_other_modules_than_linear_are_called() -> None:
    q_proj, k_proj = nn.Sequential(nn.Linear(10, 24)), nn.Sequential(nn.Linear(10, 24))
    enc = DeBERTa(4, 6, dim=10, max_distance=4, projections="shared").share(q_proj, k_proj)
    want = copy.deepcopy(enc).share(q_proj[0], k_proj[0])
    q = random(2, 4, 5, 6, dtype=torch.float32)
    got = enc.content_score(q, q, AT, AT)
    torch.testing.assert_close(got, want.content_score(q, q, AT, AT), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"DeBERTa: num_heads must be an int >= 1; got 0"),
        ({"head_dim": None}, r"DeBERTa: head_dim must be an int >= 1; got None"),
        ({"dim": 2.5}, r"DeBERTa: dim must be an int >= 1; got 2\.5"),
        ({"max_distance": 0}, r"DeBERTa: max_distance must be an int >= 1; got 0"),
        ({"p2c_index": "theirs"}, r"p2c_index must be 'released' or 'paper'; got 'theirs'"),
        (
            {"terms": ("c2p",), "p2c_index": "paper"},
            r"p2c_index='paper' changes the term 'p2c' only, .*got \('c2p',\)\. Add 'p2c', or",
        ),
        ({"terms": ()}, r"terms must be \('c2p', 'p2c'\) or one of the two in a tuple; got \(\)"),
        ({"terms": ("c2p", "p2p")}, r"terms must be .*got \('c2p', 'p2p'\)"),
        ({"terms": ("c2p", "c2p")}, r"terms must be .*got \('c2p', 'c2p'\)"),
        ({"terms": "c2p|p2c"}, r"got 'c2p\|p2c'\. Split a 'c2p\|p2c' of another config at '\|'"),
        ({"buckets": "t5"}, r"DeBERTa: buckets must be 'clipped' or 'log'; got 't5'"),
        ({"projections": "none"}, r"projections must be 'own' or 'shared'; got 'none'"),
        ({"norm": "rms"}, r"DeBERTa: norm must be 'none' or 'layer_norm'; got 'rms'"),
        ({"norm_eps": -1e-7}, r"DeBERTa: norm_eps must be a finite number above 0; got -1e-07"),
        ({"position_buckets": 256}, r"goes with buckets='log', because clipped.*1024 rows.*256"),
        ({"buckets": "log"}, r"position_buckets must be an even int >= 4 with buckets='log'.*None"),
        ({"buckets": "log", "position_buckets": 7}, r"even int >= 4.*got 7\. DeBERTa-v3 has 256"),
        ({"buckets": "log", "position_buckets": 2}, r"even int >= 4.*got 2"),
        ({**LOG, "max_distance": 5}, r"at least position_buckets / 2 \+ 2.*up to 4 are exact.*5"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeBERTa(**{"num_heads": 4, "head_dim": 6, **options})


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"k": Q[:, :3]}, ValueError, r"DeBERTa\.content_score: the heads of k must divide the 4"),
        ({"positions": AT.float()}, TypeError, r"must be integers, because a distance chooses a"),
        ({"key_positions": AT.double()}, TypeError, r"must be integers.*got torch\.float64"),
        ({"key_positions": None}, TypeError, r"key_positions must be a tensor.*got None"),
    ],
)
def test_inputs(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    inputs = {"q": Q, "k": K, "positions": AT, "key_positions": AT, **change}
    with pytest.raises(kind, match=message):
        DeBERTa(4, 6).content_score(**inputs)


def test_sharing_says_what_is_wrong() -> None:
    linear = nn.Linear(24, 24)
    with pytest.raises(ValueError, match=r"projections of its own; build it with projections='sh"):
        DeBERTa(4, 6).share(linear, linear)
    enc = DeBERTa(4, 6, projections="shared")
    with pytest.raises(RuntimeError, match=r"none came; call encoding\.share\(layer\.query_proj, "):
        enc.content_score(Q, K, AT, AT)
    with pytest.raises(TypeError, match=r"key_proj must be a module such as nn\.Linear; got Para"):
        enc.share(linear, linear.weight)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"query_proj must take the 24 channels.*got 10\. Build .*"
    ):
        enc.share(nn.Linear(10, 24), linear)
    for wrong in (20, 18, 3):
        enc.share(linear, nn.Linear(24, wrong))
        with pytest.raises(ValueError, match=rf"shared key projection must give head_dim.*{wrong}"):
            enc.content_score(Q, K, AT, AT)


def test_projected_vectors_are_used_again_until_something_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a write through .data, which no version counter shows."""
    enc = filled(
        DeBERTa(2, 4, buckets="log", position_buckets=8, max_distance=20, norm="layer_norm")
    )
    calls = []
    project = DeBERTa._project_rows

    def count(self: DeBERTa, *rest: Any) -> Any:
        calls.append(rest)
        return project(self, *rest)

    monkeypatch.setattr(DeBERTa, "_project_rows", count)
    q, at = random(1, 2, 12, 4), torch.arange(12)

    def score() -> Tensor:
        with torch.no_grad():
            return enc.scorer(q, q, at, (-11, 11))(q, q, at, at)

    def compute() -> Tensor:
        with torch.no_grad():
            return enc.content_score(q, q, at, at)

    for change in (None, "vectors", "key.weight", "query.bias", "norm.weight", "norm.bias"):
        if change is not None:
            enc.get_parameter(change).data.flatten()[3] += 1
        calls.clear()
        first, second = score(), score()
        assert len(calls) == 1, change
        torch.testing.assert_close(first, compute(), rtol=0, atol=1e-11)
        assert torch.equal(first, second)
    # What is made without gradients does not stand in the way of those of the tokens.
    with torch.inference_mode():
        enc.float().requires_grad_(False)
        score()
    x = q.float().requires_grad_()
    enc.scorer(x, x, at, (-11, 11))(x, x, at, at).sum().backward()
    assert x.grad is not None
    assert copy.deepcopy(enc)._memory._entry is None
