"""The table of encodings says what the modules do."""

import inspect
from pathlib import Path

import pytest
import torch

import whorl
from whorl.encodings import base, cards

DOCS = Path(__file__).parents[2] / "docs" / "encodings"
ALL = sorted(base.get_classes().items())


def test_the_table_in_the_docs_is_the_one_of_the_code() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    table = text.split("<!-- cards -->\n")[1].split("<!-- /cards -->")[0]
    assert table.strip() == cards.render_markdown(), "run scripts/encoding-table"


@pytest.mark.parametrize(("name", "cls"), ALL)
def test_every_encoding_has_a_card_and_a_page(name: str, cls: type[whorl.Encoding]) -> None:
    assert cls.card is not None
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert ">>> " in page, "the page has no example"
    assert cls.card.url.removeprefix("https://") in page, "the page does not cite the paper"


@pytest.mark.parametrize(("name", "cls"), ALL)
def test_cards_say_whether_scores_are_relative(name: str, cls: type[whorl.Encoding]) -> None:
    """Move all tokens by the same amount: scores stay exactly where the card says so."""
    assert cls.card is not None
    torch.manual_seed(0)
    with torch.random.fork_rng():
        sizes = {"num_heads": 2, "head_dim": 8, "dim": 16, "max_length": 40}
        options = {k: v for k, v in sizes.items() if k in inspect.signature(cls).parameters}
        if name == "mrope":
            options |= {"sections": (1, 1, 2)}  # type: ignore[dict-item]
        encoding = cls(**options).double()
    x, weight = torch.randn(1, 6, 16).double(), torch.randn(2, 16, 16).double()
    at = torch.arange(6)
    axes = encoding.position_axes
    scores = []
    for move in (0, 20):
        places = (at + move).expand(axes, -1) if axes > 1 else at + move
        here = encoding.embed(x, at + move)
        q, k = ((here @ w).view(1, 6, 2, 8).transpose(1, 2) for w in weight)
        score = torch.matmul(*(t if n == 0 else t.mT for n, t in enumerate(encoding(q, k, places))))
        if (content := encoding.content_score(q, k, at + move, at + move)) is not None:
            score = score + content
        keys = at + move
        if (bias := encoding.distance_bias((at + move)[:, None] - keys[None, :])) is not None:
            score = score + bias
        scores.append(score.detach())
    assert torch.allclose(scores[0], scores[1], atol=1e-9) is cls.card.relative


@pytest.mark.parametrize(("name", "cls"), ALL)
def test_cards_say_whether_positions_have_axes(name: str, cls: type[whorl.Encoding]) -> None:
    assert cls.card is not None
    assert cls.card.many_axes is (cards.make_sample(cls).position_axes > 1 or name == "nope")


def test_an_option_without_size_is_named() -> None:
    class Odd(whorl.NoPE):
        def __init__(self, colour: str) -> None:
            super().__init__()

    with pytest.raises(ValueError, match=r"Odd: options colour have neither a default nor a size"):
        cards.make_sample(Odd)
