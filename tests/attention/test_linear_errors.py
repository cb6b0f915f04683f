"""Every sentence that linear attention refuses a call with."""

import inspect
import re
from typing import Any

import pytest
import torch

import whorl
from whorl.attention.linear.attention import linear_attention

D, H = 8, 4


def run(*args: Any, T: int = 6, S: int = 6, heads: int = H, **options: Any) -> Any:
    q, k, v = torch.randn(2, H, T, D), torch.randn(2, heads, S, D), torch.randn(2, heads, S, 5)
    return linear_attention(q, k, v, *args, **options)


@pytest.mark.parametrize(
    "encoding",
    [
        whorl.T5Bias(H),
        whorl.make("kerple", num_heads=H),
        whorl.make("relative_bias", num_heads=H, max_distance=8),
        whorl.make("shaw", num_heads=H, head_dim=D),
        whorl.make("transformer_xl", num_heads=H, head_dim=D),
        whorl.make("deberta", num_heads=H, head_dim=D),
        whorl.RoPE(D) + whorl.T5Bias(H),
    ],
    ids=lambda encoding: encoding.name,
)
@pytest.mark.parametrize("causal", [False, True])
def test_scores_inside_the_softmax(encoding: whorl.Encoding, causal: bool) -> None:
    message = (
        r"linear_attention: encoding must not act on the scores of pairs of tokens, because .*"
        r" got .* Use whorl\.attention, or a rotation such as RoPE, or under causal"
    )
    with pytest.raises(ValueError, match=message):
        run(encoding, causal=causal)


def test_every_encoding_works_or_is_refused_by_its_card() -> None:
    sizes = {"num_heads": H, "head_dim": D, "dim": 16, "max_length": 8, "max_distance": 8}
    for name, cls in whorl.encodings.base.get_classes().items():
        needed: dict[str, Any] = {
            option: sizes[option]
            for option, p in inspect.signature(cls).parameters.items()
            if p.default is p.empty and option in sizes
        }
        if name == "mrope":
            needed["sections"] = (2, 1, 1)
        encoding = whorl.make(name, **needed)
        positions = whorl.positions.grid(2, 3) if name == "axial_rope" else None
        assert encoding.card is not None
        allowed = encoding.card.linear_attention
        for causal in (False, True):
            if allowed == "yes" or (allowed == "causal" and causal):
                assert run(encoding, causal=causal, positions=positions).isfinite().all()
            elif "input" not in encoding.hooks:
                with pytest.raises(ValueError, match=r"linear_attention: "):
                    run(encoding, causal=causal, positions=positions)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (whorl.ALiBi(H), r"causal must be True for ALiBi\(4\), because exp\(-m \|i - j\|\) is a"),
        (whorl.RoPE(D) + whorl.ALiBi(H), r"Use whorl\.attention, or RoPE\."),
        (
            whorl.XPos(D),
            r"causal must be True for XPos\(8\), because the score of a key",
        ),
    ],
)
def test_causal_only(encoding: whorl.Encoding, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(encoding)
    assert run(encoding, causal=True).shape == (2, H, 6, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"feature_map": "exp"},
            r"feature_map must be 'elu', 'relu', 'cosine' or RandomFeatures; got 'exp'\.",
        ),
        ({"eps": -1.0}, r"eps must be a finite number >= 0; got -1\.0\."),
        ({"chunk": 0}, r"chunk must be a positive int up to 2\^62; got 0\."),
        (
            {"encoding": whorl.ALiBi(3)},
            r"q must have 3 heads for ALiBi\(3\); got 4\. Build the enc",
        ),
        (
            {"encoding": whorl.ALiBi(H) + whorl.ALiBi(H)},
            r"at most one ALiBi; got ALiBi\(4\) and ALiBi\(4\)\. Their slopes add up: build one",
        ),
        (
            {
                "encoding": whorl.MRoPE(D, sections=(2, 1, 1)) + whorl.ALiBi(H),
                "positions": torch.zeros(3, 6, dtype=torch.int64),
            },
            r"positions must be \[T\] or \[B, T\] with ALiBi, .* got \[3, 6\] on 3 axes\. Leave"
            r" ALiBi out, or with MRoPE pass positions \[T\], as of text\.",
        ),
        (
            {"T": 7},
            r"q must not be longer than k under causal=True, .* got 7 queries and 6",
        ),
        ({"heads": 3}, r"shapes must be q \[B, H, T, D\], .*; got \[2, 4, 6, 8\], \[2, 3, 6, 8\]"),
        (
            {"mask": torch.ones(6, 6).bool()},
            r"mask must be \[B, S\], here \[2, 6\]; got \[6, 6\]\. There are no scores to mask",
        ),
        (
            {"positions": torch.tensor([0, 1, 2, 0, 1, 2])},
            r"positions must not decrease under causal=True, .* got positions that",
        ),
        (
            {"positions": torch.arange(4), "T": 4},
            r"key_positions must be given with .* q has 4 tokens and k has 6; got None",
        ),
        (
            {"positions": torch.arange(6), "key_positions": torch.arange(6) + 1},
            r"positions must be the last of key_positions .* Leave positions out, or use whorl",
        ),
        ({"positions": torch.arange(5)}, r"linear_attention: positions must be \[T\] or \[B, T\]"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**{"encoding": whorl.RoPE(D), "causal": True, **options})


def test_two_lengths_without_positions() -> None:
    unclear = r"positions must be given, because q has {} tokens and k has 6, which does not say"
    for T in (3, 8):
        remedy = r" where .* got None\. Pass positions= and key_positions=\."
        with pytest.raises(ValueError, match=unclear.format(T) + remedy):
            run(whorl.RoPE(D), T=T)
        both: dict[str, Any] = {"positions": torch.arange(T) + 2, "key_positions": torch.arange(6)}
        assert run(whorl.RoPE(D), T=T, **both).shape == (2, H, T, 5)
        with pytest.raises(
            ValueError, match=r"key_positions must be given with positions, because"
        ):
            run(whorl.RoPE(D), T=T, positions=both["positions"])
    assert run(T=3).shape == (2, H, 3, 5)  # nothing here asks where they are


def test_what_is_no_encoding() -> None:
    with pytest.raises(
        TypeError, match=r"encoding must be a whorl\.Encoding such as .*; got 'rope'\. whorl\.make"
    ):
        run("rope")


def test_what_is_no_mask() -> None:
    for mask, came in (
        (torch.ones(2, 6), r"torch\.float32 on cpu"),
        ("causal", "'causal'"),
        (torch.ones(2, 6, device="meta").bool(), r"torch\.bool on meta"),
    ):
        message = r"mask must be a tensor, boolean or integers, .*, on cpu; got " + came
        with pytest.raises(TypeError, match=message):
            run(mask=mask)


def test_tensors() -> None:
    x = torch.randn(1, 1, 3, D)
    flat = r"linear_attention: k must be \[B, heads, tokens, channels\]; got \[3, 8\]\. Reshape"
    with pytest.raises(ValueError, match=flat):
        linear_attention(x, x[0, 0], x)
    mixed = (
        r"one dtype and device; got torch\.float32 on cpu, torch\.float64 on cpu, torch\.float32"
    )
    with pytest.raises(TypeError, match=mixed):
        linear_attention(x, x.double(), x)
    with pytest.raises(TypeError, match=r"q must be float32, .* or float16; got torch\.int32\."):
        linear_attention(x.int(), x.int(), x.int())
    with pytest.raises(TypeError, match=r"v must be a tensor \[B, heads, .*\]; got list\."):
        linear_attention(x, x, [x])  # type: ignore[call-overload]


def test_states() -> None:
    options: dict[str, Any] = {"causal": True, "return_state": True}
    _, state = run(whorl.RoPE(D), **options)
    with pytest.raises(ValueError, match=r"causal must be True with a state, which holds earlier"):
        run(whorl.RoPE(D), state=state)
    with pytest.raises(ValueError, match=r"causal must be True with a state, which holds earlier"):
        run(whorl.RoPE(D), return_state=True)
    with pytest.raises(
        ValueError, match=r"feature_map must be that of the state, 'elu'; got 'relu'"
    ):
        run(whorl.RoPE(D), state=state, feature_map="relu", **options)
    wrong = (
        r"state must have the batch, heads .* a numerator \[2, 2, 8, 5\]; got \[2, 4, 8, 5\]\."
        r" Start without a state, or use"
    )
    with pytest.raises(ValueError, match=wrong):
        run(whorl.RoPE(D), state=state, heads=2, **options)
    q = torch.zeros(2, H, 1, D).double()
    wide = r"state must be torch\.float64 on cpu for these tokens; got torch\.float32 on cpu\. S"
    with pytest.raises(TypeError, match=wide):
        linear_attention(q, q, q[..., :5], whorl.RoPE(D), state=state, **options)
    with pytest.raises(
        TypeError, match=r"state must be a LinearState, from return_state=True; got"
    ):
        run(whorl.RoPE(D), state=state.numerator, **options)
    with pytest.raises(TypeError, match=r"must be a LinearState, from return_state=True; got int"):
        run(whorl.RoPE(D), state=3, **options)
    past = r"must not decrease .* got position 2 after a state that ends at 5\. Sort the tok"
    with pytest.raises(ValueError, match=past):
        run(whorl.RoPE(D), state=state, offset=2, **options)
    with pytest.raises(ValueError, match=r"must not decrease .* got positions that do"):
        run(whorl.RoPE(D), state=state, positions=torch.arange(6), **options)


def test_states_of_another_encoding() -> None:
    options: dict[str, Any] = {"causal": True, "return_state": True}
    rope = whorl.RoPE(D)
    _, state = run(rope, **options)
    assert state.reorder([1, 0]).detach().encoding is rope
    for same in (rope, whorl.RoPE(D), rope + whorl.NoPE(), whorl.Sinusoidal(32) + rope):
        assert run(same, state=state, **options)[0].isfinite().all()
    other = [None, whorl.ALiBi(H), whorl.XPos(D), whorl.RoPE(D, base=500.0), rope + whorl.ALiBi(H)]
    for encoding in other:
        expected = re.escape(f"must be that of the state, {rope!r}, because its sums hold rotated")
        with pytest.raises(ValueError, match=f"{expected} keys; got {re.escape(repr(encoding))}"):
            run(encoding, state=state, **options)
    _, plain = run(**options)
    assert run(whorl.NoPE(), state=plain, **options)[0].isfinite().all()
    with pytest.raises(ValueError, match=r"that of the state, None, because .* got RoPE\(8\)\."):
        run(rope, state=plain, **options)
