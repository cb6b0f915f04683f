"""score_mod: flex_attention gives what attention gives."""

import copy

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

import whorl
from whorl.attention import attention, score_mod
from whorl.testing.inputs import set_random_parameters


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("T", "S"), [(9, 9), (4, 9)])
@pytest.mark.parametrize(
    "encoding",
    [
        whorl.RoPE(16),
        whorl.ALiBi(2),
        whorl.T5Bias(2),
        whorl.Kerple(2),
        whorl.RoPE(16) + whorl.ALiBi(2),
    ],
    ids=repr,
)
def test_flex_attention_agrees(encoding: whorl.Encoding, T: int, S: int) -> None:
    encoding = set_random_parameters(copy.deepcopy(encoding)).requires_grad_(False)
    q, k, v = torch.randn(1, 2, T, 16), torch.randn(1, 2, S, 16), torch.randn(1, 2, S, 16)
    turned_q, turned_k = encoding(q, k, None, torch.arange(S), offset=S - T)
    got = flex_attention(
        turned_q,
        turned_k,
        v,
        score_mod=score_mod(encoding, T, S),
        scale=encoding.softmax_scale(16),
    )
    torch.testing.assert_close(got, attention(q, k, v, encoding), rtol=1e-4, atol=1e-5)


def test_refuses_what_distance_does_not_tell() -> None:
    with pytest.raises(
        ValueError, match=r"score_mod: encoding must only need .* got Shaw\(2, head_dim=8\)"
    ):
        score_mod(whorl.Shaw(2, 8), 4, 4)
    with pytest.raises(
        ValueError, match=r"score_mod: keys must be a positive int up to 2\^62; got 0"
    ):
        score_mod(whorl.ALiBi(2), 4, 0)
    with pytest.raises(ValueError, match=r"score_mod: offset must be an int, .*; got 1\.5\."):
        score_mod(whorl.ALiBi(2), 4, 4, offset=1.5)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"score_mod: encoding must be a whorl\.Encoding such as .*; got 'alibi'"
    ):
        score_mod("alibi", 4, 4)  # type: ignore[arg-type]
