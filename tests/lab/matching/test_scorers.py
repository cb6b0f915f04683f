"""Scorers: padding and order change nothing, training finds what there is to find."""

import pytest
import torch

from whorl.lab import RoFormerConfig
from whorl.lab.matching import (
    CharacterVocabulary,
    DocumentScorer,
    LabelledText,
    MatchingExample,
    SequenceScorer,
    Triplet,
    encode_examples,
    evaluate_matcher,
    make_triplets,
    train_matcher,
)
from whorl.lab.matching.characters import FIRST, SEPARATOR, UNKNOWN
from whorl.lab.matching.training import _draw_batches, _score_batch

VOCABULARY = CharacterVocabulary("abcdefgh")


def build_config(encoding: str = "rope") -> RoFormerConfig:
    return RoFormerConfig(
        vocab=VOCABULARY.size,
        width=16,
        layers=1,
        heads=2,
        inner=32,
        max_length=64,
        dropout=0.0,
        attention_dropout=0.0,
        encoding=encoding,
        padding_token=0,
    )


def test_a_vocabulary_of_what_is_seen_twice() -> None:
    known = CharacterVocabulary.from_texts(["abba", "c b", "\u539f\u539f"])
    assert known.size == 4 + 3
    assert known.encode("ba\u539fc", 4) == [4, 5, 6, UNKNOWN]  # b, a, then what is as frequent
    assert known.encode("abc", 2) == [5, 4]


def test_texts_as_tokens() -> None:
    triplet = Triplet("abc", "de", "fgh", 1)
    (alone,) = encode_examples([triplet], VOCABULARY, length=2)
    assert alone == MatchingExample((([4, 5], 2), ([7, 8], 2), ([9, 10], 2)), 1)
    (pairs,) = encode_examples([triplet], VOCABULARY, length=2, pairs=True)
    assert pairs.sequences[0] == ([FIRST, 4, 5, SEPARATOR, 7, 8], 4)
    assert pairs.sequences[1] == ([FIRST, 4, 5, SEPARATOR, 9, 10], 4)
    one, two = encode_examples(
        [LabelledText(("ab",), "x"), LabelledText(("a", "b"), "y")],
        VOCABULARY,
        length=9,
        labels=("x", "y"),
    )
    assert one == MatchingExample((([FIRST, 4, 5], 4),), 0)
    assert two == MatchingExample((([FIRST, 4, SEPARATOR, 5], 3),), 1)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("encoding", ["rope", "learned", "t5"])
@torch.no_grad()
def test_padding_and_the_order_of_texts_change_nothing(encoding: str, pairs: bool) -> None:
    config = build_config(encoding)
    model = SequenceScorer(config, choices=2) if pairs else DocumentScorer(config)
    model.reset_parameters(0)
    model.eval()
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "encoding" not in name:
            weight.mul_(10)  # so that scores differ by much more than rounding
    short, long = Triplet("abc", "de", "f", 0), Triplet("abcdefgh", "hgfedcba", "aaaabbbb", 1)
    swapped = Triplet(short.anchor, short.second, short.first, 1)
    encoded = encode_examples([short, long, swapped], VOCABULARY, length=9, pairs=pairs)
    together, answers = _score_batch(model, encoded)
    assert together.shape == (3, 2)
    assert answers.tolist() == [0, 1, 1]
    for n, one in enumerate(encoded):
        torch.testing.assert_close(_score_batch(model, [one])[0], together[n : n + 1])
    torch.testing.assert_close(together[2], together[0].flip(0))
    assert (together[0, 0] - together[0, 1]).abs() > 1e-4


def test_labels_have_a_logit_each() -> None:
    model = SequenceScorer(build_config(), classes=3)
    model.reset_parameters(0)
    texts = [LabelledText(("ab",), "x"), LabelledText(("abc", "d"), "z")]
    encoded = encode_examples(texts, VOCABULARY, length=9, labels=("x", "y", "z"))
    logits, answers = _score_batch(model, encoded)
    assert logits.shape == (2, 3)
    assert answers.tolist() == [0, 2]


def test_training_learns_which_letters_belong_together() -> None:
    """A is of the group of B; no letter is in both, so that it must be learned."""
    groups = ("abcd", "efgh")
    made = []
    for n in range(64):
        mine, other = groups[n % 2], groups[1 - n % 2]
        texts = (mine[2 + n // 2 % 2] * 3, other[2 + n // 4 % 2] * 3)
        nearer = n // 8 % 2
        made.append(Triplet(mine[n // 16 % 2] * 3, texts[nearer], texts[1 - nearer], nearer))
    encoded = encode_examples(made, VOCABULARY, length=8)
    runs = []
    for _ in range(2):
        model = DocumentScorer(build_config())
        model.reset_parameters(0)
        shown: list[tuple[int, float]] = []
        history = train_matcher(
            model,
            encoded,
            steps=60,
            batch=16,
            learning_rate=0.01,
            show=lambda *moment: shown.append(moment),  # noqa: B023  # called at once
        )
        assert [step for step, _ in shown] == list(range(1, 61))
        assert history.steps == [float(n) for n in range(3, 61, 3)]
        assert history.losses[-1] < 0.2 < history.losses[0]
        assert history.accuracy > 0.9
        runs.append(history.losses)
        assert sum(evaluate_matcher(model, encoded)) == 64
    assert runs[0] == runs[1]  # the same seed, the same numbers


def test_training_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    vocabulary = CharacterVocabulary.from_texts([make_triplets(1, 64, 0)[0].anchor])
    encoded = encode_examples(make_triplets(2, 64, 0), vocabulary, length=64)
    model = DocumentScorer(
        RoFormerConfig(vocab=vocabulary.size, width=8, layers=1, heads=1, inner=8)
    )
    train_matcher(model, encoded, steps=1, batch=2, learning_rate=0.1)
    assert torch.rand(1) != expected  # the weights of a new model are drawn from them
    torch.manual_seed(7)
    train_matcher(model, encoded, steps=1, batch=2, learning_rate=0.1)
    assert torch.rand(1) == expected


def test_every_example_is_taken_before_any_is_taken_again() -> None:
    taken = list(_draw_batches(10, 4, 5, seed=0))
    assert [len(batch) for batch in taken] == [4] * 5
    every = [n for batch in taken for n in batch]
    assert sorted(every[:10]) == sorted(every[10:]) == list(range(10))
    assert every[:10] != every[10:]
