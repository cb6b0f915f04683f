"""Terms of a score: named as they should be, and adding up to what attention computes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from whorl.analysis import terms
from whorl.testing.inputs import set_random_parameters

HEADS, WIDTH, LENGTH = 4, 8, 6
SIZE = HEADS * WIDTH
ATTENDING: list[tuple[whorl.Encoding, set[str]]] = [
    (whorl.NoPE(), {"content-content"}),
    (whorl.RoPE(WIDTH), {"content-content", "interaction"}),
    (
        whorl.RoPE(WIDTH, scaling=whorl.DynamicNTK(factor=2.0, original_context=2)),
        {"content-content", "interaction"},
    ),
    (whorl.XPos(WIDTH), {"content-content", "interaction"}),
    (whorl.ALiBi(HEADS), {"content-content", "position-position"}),
    (whorl.T5Bias(HEADS), {"content-content", "position-position"}),
    (whorl.Kerple(HEADS), {"content-content", "position-position"}),
    (whorl.Shaw(HEADS, WIDTH, left=3), {"content-content", "content-position"}),
    (
        whorl.TransformerXL(HEADS, WIDTH),
        {"content-content", "content-position", "position-content", "position-position"},
    ),
    (
        whorl.DeBERTa(HEADS, WIDTH, max_distance=4),
        {"content-content", "content-position", "position-content"},
    ),
    (
        whorl.DeBERTa(HEADS, WIDTH, max_distance=4, terms=("p2c",)),
        {"content-content", "position-content"},
    ),
    (
        whorl.RoPE(WIDTH) + whorl.T5Bias(HEADS) + whorl.ALiBi(HEADS),
        {
            *("content-content", "rope: interaction"),
            *("t5: position-position", "alibi: position-position"),
        },
    ),
    (
        whorl.Shaw(HEADS, WIDTH) + whorl.ALiBi(HEADS),
        {"content-content", "shaw: content-position", "alibi: position-position"},
    ),
]


def attended(encoding: whorl.Encoding, q: Tensor, k: Tensor, at: Tensor) -> Tensor:
    """The score as an attention layer forms it, hook by hook."""
    scale = encoding.softmax_scale(WIDTH)
    turned_q, turned_k = encoding(q, k, at)
    score = turned_q @ turned_k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
    if (content := encoding.content_score(q, k, at, at)) is not None:
        score = score + content
    score = score * (WIDTH**-0.5 if scale is None else scale)
    if (bias := encoding.distance_bias(at[..., :, None] - at[..., None, :])) is not None:
        score = score + (bias.transpose(0, 1) if bias.dim() == 4 else bias)
    return score


def pair(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(2, HEADS, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    return q, torch.randn(2, 2, LENGTH, WIDTH, generator=generator, dtype=torch.float64)


def named(value: object) -> str:
    """The same in every process, where the order of a set is not."""
    return repr(sorted(value) if isinstance(value, set) else value)[:60]


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize(("encoding", "names"), ATTENDING, ids=named)
def test_terms_add_up_to_the_score(
    encoding: whorl.Encoding, names: set[str], per_row: bool
) -> None:
    q, k = pair()
    at = torch.tensor([0, 1, 2, 5, 9, 4])
    at = at + torch.tensor([[3], [0]]) if per_row else at
    set_random_parameters(encoding)
    found = terms(encoding, q, k, at)
    want = attended(encoding.double(), q, k, at).detach()
    assert set(found) == names
    torch.testing.assert_close(found.score, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.total(), want, rtol=1e-12, atol=1e-12)
    assert all(term.shape == want.shape for term in found.terms.values())
    assert len(found) == len(names)
    assert found.sizes().keys() == names
    assert min(found.sizes().values()) > 0


def test_content_terms_come_from_where_they_say() -> None:
    q, k = pair()
    at = torch.arange(LENGTH)
    xl = set_random_parameters(whorl.TransformerXL(HEADS, WIDTH)).double()
    found = terms(xl, q, k)
    assert isinstance(xl, whorl.TransformerXL)
    keys = k.repeat_interleave(2, 1)
    offered = (xl.u[None, :, None] * keys).sum(-1)[:, :, None, :] * WIDTH**-0.5
    torch.testing.assert_close(found["position-content"], offered.expand_as(found.score).detach())
    moved = terms(xl, q, k, at + 7)
    torch.testing.assert_close(moved["position-position"], found["position-position"])


@pytest.mark.parametrize(
    "encoding",
    [
        whorl.Sinusoidal(SIZE),
        whorl.Learned(SIZE, max_length=LENGTH),
        whorl.Learned(SIZE, max_length=LENGTH) + whorl.RoPE(WIDTH) + whorl.ALiBi(HEADS),
        whorl.Sinusoidal(SIZE) + whorl.Learned(SIZE, max_length=LENGTH),
    ],
    ids=repr,
)
@pytest.mark.parametrize("bias", [False, True])
def test_inputs_with_positions_give_four_terms(encoding: whorl.Encoding, bias: bool) -> None:
    torch.manual_seed(0)
    query = nn.Linear(SIZE, SIZE, bias=bias, dtype=torch.float64)
    key = nn.Linear(SIZE, SIZE // 2, bias=bias, dtype=torch.float64)
    x = torch.randn(2, LENGTH, SIZE, dtype=torch.float64)
    encoding = set_random_parameters(encoding).double()
    found = terms(encoding, x=x, query_proj=query, key_proj=key, num_heads=HEADS)
    whole = encoding.embed(x)
    q, k = (
        proj(whole).unflatten(-1, (-1, WIDTH)).transpose(1, 2).detach() for proj in (query, key)
    )
    want = attended(encoding, q, k, torch.arange(LENGTH)).detach()
    torch.testing.assert_close(found.score, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.total(), want, rtol=1e-12, atol=1e-12)
    endings = {name.split(": ")[-1] for name in found}
    assert endings >= {
        *("content-content", "content-position", "position-content", "position-position"),
    }
    weights = terms(encoding, x=x, query_proj=query.weight, key_proj=key.weight, num_heads=HEADS)
    assert torch.equal(weights.score, found.score) is not bias


def test_several_axes() -> None:
    q, k = pair()
    at = torch.stack((torch.arange(LENGTH) // 3, torch.arange(LENGTH) % 3))
    found = terms(whorl.AxialRoPE(WIDTH) + whorl.ALiBi(HEADS), q, k, at)
    assert list(found) == ["content-content", "axial_rope: interaction", "alibi: position-position"]
    torch.testing.assert_close(found.total(), found.score)


def test_same_part_twice_has_two_names() -> None:
    q, k = pair()
    found = terms(whorl.ALiBi(HEADS) + whorl.ALiBi(HEADS), q, k)
    assert list(found) == [
        *("content-content", "alibi: position-position", "alibi 2: position-position"),
    ]


def test_leaves_the_encoding_alone() -> None:
    encoding = whorl.T5Bias(HEADS)
    terms(encoding, *pair())
    assert {p.dtype for p in encoding.parameters()} == {torch.float32}


class Gate(whorl.Encoding):
    """Multiplies embeddings instead of adding to them."""

    name = "gate"
    config = whorl.Config()

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("encoding", "arguments", "message"),
    [
        (
            whorl.Sinusoidal(SIZE),
            {"q": 1},
            r"acts on embeddings, so its terms need x=, query_proj=",
        ),
        (whorl.RoPE(WIDTH), {}, r"pass q \[B, H, T, D\] and k \[B, G, S, D\]; or x="),
        (whorl.RoPE(WIDTH), {"x": 1, "q": 1}, r"or x with its projections, not both; with x, pos"),
        (whorl.RoPE(WIDTH), {"q": 2, "k": 1}, r"q must be a tensor \[B, H, T, D\]; got \[6, 8\]"),
        (whorl.RoPE(WIDTH), {"q": 1, "k": 3}, r"heads of k must divide those of q; got 3 and 4"),
        (whorl.NoPE(), {"x": 1}, r"x= needs query_proj= and key_proj=.*got None, None, None"),
        (whorl.NoPE(), {"x": 1, "w": 5}, r"query_proj must be nn\.Linear or .* E = 32, the width"),
        (whorl.NoPE(), {"x": 1, "w": SIZE, "h": 3}, r"query_proj must give 3 heads of equal width"),
        (Gate(), {"x": 1, "w": SIZE, "h": 4}, r"does more to embeddings than add positions"),
    ],
)
def test_errors(encoding: whorl.Encoding, arguments: dict[str, int], message: str) -> None:
    q, k = pair()
    given: dict[str, Any] = {}
    if "q" in arguments:
        given["q"] = q if arguments["q"] == 1 else q[0, 0]
    if "k" in arguments:
        given["k"] = k if arguments["k"] == 1 else k[:, [0, 0, 1]]
    if "x" in arguments:
        given["x"] = torch.ones(2, LENGTH, SIZE)
    if "w" in arguments:
        given |= dict.fromkeys(("query_proj", "key_proj"), torch.ones(SIZE, arguments["w"]))
        given["num_heads"] = arguments.get("h", HEADS)
    with pytest.raises(ValueError, match="terms: .*" + message):
        terms(encoding, **given)


def test_refuses_what_is_no_encoding() -> None:
    with pytest.raises(TypeError, match=r"terms: encoding must be a whorl\.Encoding; got 3"):
        terms(3)  # type: ignore[arg-type]


def test_fewer_queries_are_the_last_ones() -> None:
    q, k = pair()
    encoding = whorl.RoPE(WIDTH) + whorl.ALiBi(HEADS)
    whole, last = terms(encoding, q, k), terms(encoding, q[:, :, 4:], k)
    for name in whole:
        torch.testing.assert_close(last[name], whole[name][:, :, 4:])
    given = terms(encoding, q[:, :, 4:], k, torch.arange(4, 6), torch.arange(6))
    torch.testing.assert_close(given.score, last.score)
    for wrong in ((q, k[:, :, :4]), (q[:, :, :3], k, torch.arange(3))):
        with pytest.raises(ValueError, match=r"terms: . queries and . keys do not determine"):
            terms(encoding, *wrong)
    at = torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=r"as many queries as keys if positions have several"):
        terms(whorl.AxialRoPE(WIDTH), q[:, :, :4], k, at, torch.zeros(2, 6, dtype=torch.long))


def test_far_distances_stay_exact() -> None:
    q, k = pair()
    at = torch.arange(LENGTH) * 100_003
    both = whorl.ALiBi(HEADS, max_bias=7.3) + whorl.ALiBi(HEADS, max_bias=3.3)
    found = terms(both, q, k, at)
    torch.testing.assert_close(found.total(), found.score, rtol=1e-14, atol=0)
    slopes = whorl.ALiBi(HEADS, max_bias=7.3).distance_bias(torch.ones(1, dtype=torch.float64))
    want = slopes[..., None] * (at[:, None] - at[None, :]).abs().double()
    got = found["alibi: position-position"][0]
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)


def test_shapes_that_do_not_belong_together() -> None:
    q, k = pair()
    with pytest.raises(ValueError, match=r"q and k must have the same batch size and head width"):
        terms(whorl.NoPE(), q, k[:1])
    with pytest.raises(ValueError, match=r"terms: ALiBi\(3\) is for 3 heads but q has 4"):
        terms(whorl.ALiBi(3), q, k)


def test_more_queries_than_keys_where_both_are_placed() -> None:
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 4, 3, 8)
    found = whorl.analysis.terms(whorl.ALiBi(4), q, k, torch.arange(5), torch.arange(3))
    assert found.score.shape == (1, 4, 5, 3)
    with pytest.raises(ValueError, match=r"5 queries and 3 keys do not determine the positions"):
        whorl.analysis.terms(whorl.ALiBi(4), q, k)


@pytest.mark.parametrize(
    ("x", "error"), [("text", TypeError), (torch.zeros(3, 8), ValueError)], ids=["str", "rank"]
)
def test_embeddings_are_a_tensor(x: Any, error: type[Exception]) -> None:
    weight = torch.zeros(8, 8)
    with pytest.raises(error, match=r"terms: x must be a tensor of embeddings \[B, T, E\]; got"):
        whorl.analysis.terms(whorl.NoPE(), x=x, query_proj=weight, key_proj=weight, num_heads=2)
