"""Generation: with a cache the same tokens as without, and what cannot be cached is refused."""

from typing import Any

import pytest
import torch

import whorl
from whorl.lab import Model
from whorl.lab.decoding import CachePolicy, DecodingState
from whorl.lab.generate import generate_tokens

from .test_model import built, tokens


def randomized(encoding: Any, **options: Any) -> Model:
    """A model whose weights are large enough for its choices to depend on positions."""
    model = built(encoding, **options)
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.4 if "encoding" in name else 0.2, generator=source)
    return model


def read_in_parts(model: Model, text: torch.Tensor, *policy: Any) -> torch.Tensor:
    """Logits of all tokens, read through a state."""
    state = DecodingState(model, CachePolicy(*policy))
    with torch.no_grad():
        return torch.cat([model(part, state=state) for part in state.split(text)], 1)


@pytest.mark.parametrize("name", [*whorl.names(), "learned+rope", "rope+alibi"])
def test_a_dense_cache_gives_the_same_tokens(name: str) -> None:
    model = randomized(name, encoding_per="layer", kv_heads=None if name == "deberta" else 2)
    prompt = tokens(9)
    plain = model.generate(prompt, 12)
    assert plain.shape == (2, 21)
    assert torch.equal(plain[:, :9], prompt)
    assert torch.equal(model.generate(prompt, 12, cache="dense"), plain)
    with torch.no_grad():
        expected = [model(plain[:, :n])[:, -1].argmax(-1) for n in range(9, 21)]
    assert torch.equal(plain[:, 9:], torch.stack(expected, 1))
    assert len(set(plain[:, 9:].flatten().tolist())) > 3  # not one token again and again


@pytest.mark.parametrize("feature_map", ["elu", "cosine", "favor"])
@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "xpos", "learned", "mrope"])
def test_linear_attention_remembers_sums(name: str, feature_map: str) -> None:
    if (name, feature_map) == ("xpos", "favor"):
        pytest.skip("refused by the model, as tests/lab/test_model.py shows")
    model = randomized(name, attention="linear", feature_map=feature_map)
    plain = model.generate(tokens(9), 12)
    assert torch.equal(model.generate(tokens(9), 12, cache="dense"), plain)
    read = read_in_parts(model, plain, "dense")
    torch.testing.assert_close(read, model(plain).detach(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "shaw", "transformer_xl", "xpos", "mrope"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_window_is_that_of_attention(
    name: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one layer and in two: every layer masks the keys that the window has dropped."""
    model, text = randomized(name, layers=layers), tokens(40)
    found = read_in_parts(model, text, "window", 7)
    with torch.no_grad():
        whole = model(text)
        attend = whorl.attention
        monkeypatch.setattr(whorl, "attention", lambda *a, **k: attend(*a, **k, window=7))
        expected = model(text)
        monkeypatch.setattr(whorl, "attention", lambda *a, **k: attend(*a, **k, window=8))
        wrong = model(text)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert (found - whole)[:, 10:].abs().max() > 0.01
    assert (found - wrong)[:, 10:].abs().max() > 0.01  # one key more is noticed


@pytest.mark.parametrize("name", ["rope", "alibi", "t5"])
def test_one_layer_with_sinks_reads_what_it_holds_as_a_text(name: str) -> None:
    model, text = randomized(name, layers=1), tokens(40)
    found = read_in_parts(model, text, "sinks", 8, 3)
    with torch.no_grad():
        for n in range(40):
            held = (
                text[:, : n + 1] if n < 8 else torch.cat((text[:, :3], text[:, n - 4 : n + 1]), 1)
            )
            torch.testing.assert_close(found[:, n], model(held)[:, -1], rtol=0, atol=1e-4)


def test_generation_with_little_memory() -> None:
    """In one layer a window gives what reading the window afresh gives; the rest is remembered."""
    one, two = (randomized("rope", layers=layers) for layers in (1, 2))
    options: dict[str, Any] = {"window": 6}
    afresh = one.generate(tokens(9), 12, cache="recomputed", **options)
    assert torch.equal(one.generate(tokens(9), 12, cache="window", **options), afresh)
    text = tokens(9)
    for _ in range(12):
        with torch.no_grad():
            text = torch.cat((text, two(text[:, -6:])[:, -1:].argmax(-1)), 1)
    assert torch.equal(two.generate(tokens(9), 12, cache="recomputed", **options), text)
    assert two.generate(tokens(9), 12, cache="sinks", sinks=2, **options).shape == (2, 21)


def test_dynamic_frequencies_follow_the_length_in_one_layer() -> None:
    scaling = {"name": "dynamic_ntk", "factor": 2.0, "original_context": 8}
    model = randomized({"name": "rope", "scaling": scaling}, layers=1)
    plain = model.generate(tokens(9), 12)
    assert torch.equal(model.generate(tokens(9), 12, cache="dense"), plain)


def test_sampling_follows_the_seed() -> None:
    model = randomized("rope")
    first, again, other = (
        model.generate(tokens(9), 20, cache="dense", temperature=1.0, seed=seed)
        for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    cold = model.generate(tokens(9), 20, temperature=1e-4)
    assert torch.equal(cold, model.generate(tokens(9), 20))


def test_drawn_tokens_have_the_shares_of_the_softmax() -> None:
    model = randomized("rope")
    prompt = tokens(9)[:1]
    drawn = model.generate(prompt.expand(4000, -1), 1, temperature=1.5)[:, -1]
    found = torch.bincount(drawn, minlength=50) / 4000
    with torch.no_grad():
        expected = (model(prompt)[0, -1] / 1.5).softmax(-1)
    assert (found - expected).abs().sum() < 0.12


def test_rows_end_at_the_stop_token() -> None:
    model = randomized("rope")
    plain = model.generate(tokens(9), 30)
    stop = int(plain[0, 12])
    found = model.generate(tokens(9), 30, cache="dense", stop=stop)
    for row, free in zip(found, plain, strict=True):
        new = free[9:].tolist()
        ends = new.index(stop) + 1 if stop in new else len(new)
        assert row[9 : 9 + ends].tolist() == new[: len(row) - 9][:ends]
        assert set(row[9 + ends :].tolist()) <= {stop}
    alone = model.generate(tokens(9)[:1], 30, stop=stop)
    assert alone.shape == (1, 9 + plain[0, 9:].tolist().index(stop) + 1)


def test_the_training_mode_comes_back_and_progress_is_told() -> None:
    model, seen = randomized("rope", dropout=0.5).train(), []
    generate_tokens(model, tokens(3), 4, progress=lambda *done: seen.append(done))
    assert model.training
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert torch.equal(model.generate(tokens(3), 4), model.eval().generate(tokens(3), 4))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"encoding": "rope", "kind": "encoder"}, {}, r"the model must be a decoder, because an enc"),
    (
        {"encoding": "learned"},
        {"steps": 57},
        r"at most 64 tokens with no cache, because Learned\(48.*; got 65\. Choose the cache 'rec",
    ),
    ({"encoding": "learned"}, {"steps": 57, "cache": "window", "window": 8}, r"the cache 'window'"),
    (
        {"encoding": "mrope"},
        {"cache": "sinks", "window": 8},
        r"cache must not be 'sinks' for MRoPE.*3 axes cannot be counted.*Choose 'window'",
    ),
    (
        {"encoding": "rope", "attention": "linear"},
        {"cache": "window", "window": 8},
        r"cache must be 'dense' or 'recomputed' with linear attention.*; got 'window'",
    ),
    (
        {
            "encoding": {
                "name": "rope",
                "scaling": {"name": "dynamic_ntk", "factor": 2.0, "original_context": 8},
            },
            "attention": "linear",
        },
        {"cache": "dense"},
        r"cache must be None or 'recomputed' with linear attention and RoPE.*; got 'dense'",
    ),
    ({}, {"cache": "dens"}, r"cache: 'dens' is unknown; did you mean 'dense'\? Known: dense, win"),
    ({}, {"cache": "dense", "window": 8}, r"window must be None with the cache 'dense'.*; got 8"),
    ({}, {"window": 8}, r"window must be None without a cache.*; got 8\. Leave it out"),
    ({}, {"cache": "window"}, r"window must be a positive int with the cache 'window'.*got None"),
    ({}, {"cache": "sinks", "window": 4}, r"sinks must be an int from 1 to 3, fewer than the win"),
    ({}, {"steps": 0}, r"steps must be a whole number of at least 1; got 0"),
    ({}, {"seed": -1}, r"seed must be a whole number of at least 0; got -1"),
    ({}, {"temperature": -1.0}, r"temperature must be 0, for the most likely token.*; got -1\.0"),
    ({}, {"stop": 50}, r"stop must be a token from 0 to 49, or None; got 50"),
    ({}, {"tokens": torch.tensor([[3, 50]])}, r"tokens must be from 0 to 49.*; got 50"),
    ({}, {"tokens": torch.tensor([[-2, 5]])}, r"tokens must be from 0 to 49.*; got -2"),
    (
        {},
        {"tokens": torch.empty(1, 0, dtype=torch.long)},
        r"tokens must not be empty.*; got \[1, 0\]",
    ),
]


@pytest.mark.parametrize(("shape", "options", "message"), REFUSED)
def test_refusals(shape: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built(**shape).generate(**{"tokens": tokens(9), "steps": 2, **options})


def test_a_learned_table_serves_a_recomputed_window() -> None:
    model = built("learned")
    assert model.generate(tokens(9), 70, cache="recomputed", window=8).shape == (2, 79)
    assert model.generate(tokens(9), 56, cache="dense").shape == (2, 65)  # the last is not read


@pytest.mark.parametrize("wrong", [[1, 2], torch.zeros(3, dtype=torch.long), torch.zeros(1, 3)])
def test_tokens_of_another_shape(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"tokens must be a tensor \[B, T\] of int64"):
        built().generate(wrong, 1)
