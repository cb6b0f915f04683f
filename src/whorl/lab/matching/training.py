"""Training and testing of a scorer: examples as tokens, batches with padding, AdamW."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .characters import FIRST, PADDING, SEPARATOR, CharacterVocabulary
from .labelled import LabelledText
from .triplets import Triplet

__all__ = [
    "MatchingExample",
    "MatchingHistory",
    "encode_examples",
    "evaluate_matcher",
    "train_matcher",
]

_WARMUP = 0.1  # of the steps
_WEIGHT_DECAY = 0.01
_GRADIENT_LIMIT = 1.0
_CURVE_POINTS = 20
_TEST_BATCH = 32


@dataclass(frozen=True)
class MatchingExample:
    """Sequences of tokens that are scored together, and the right answer.

    sequences: tokens, and the position where the second text of the sequence begins.
    """

    sequences: tuple[tuple[list[int], int], ...]
    answer: int


@dataclass(frozen=True)
class MatchingHistory:
    """What happened in training: means of the loss over parts of the steps, by the last step.

    accuracy: in the last quarter of the steps, before each update.
    """

    steps: list[float]
    losses: list[float]
    accuracy: float
    seconds: float


def encode_examples(
    examples: Sequence[Triplet] | Sequence[LabelledText],
    vocabulary: CharacterVocabulary,
    *,
    length: int,
    labels: Sequence[str] = (),
    pairs: bool = False,
) -> list[MatchingExample]:
    """The examples as tokens; of every text the first ``length`` characters.

    pairs: triplets as the sequences "A, B" and "A, C" for a ``SequenceScorer``, instead of three
    texts for a ``DocumentScorer``. labels: all labels of labelled texts.
    """
    found = []
    for one in examples:
        if isinstance(one, LabelledText):
            sequences = (_join_texts(one.texts, vocabulary, length),)
            found.append(MatchingExample(sequences, labels.index(one.label)))
        elif pairs:
            texts = ((one.anchor, other) for other in (one.first, one.second))
            joined = tuple(_join_texts(both, vocabulary, length) for both in texts)
            found.append(MatchingExample(joined, one.nearer))
        else:
            alone = tuple((vocabulary.encode(text, length), length) for text in one.texts)
            found.append(MatchingExample(alone, one.nearer))
    return found


def _join_texts(
    texts: Sequence[str], vocabulary: CharacterVocabulary, length: int
) -> tuple[list[int], int]:
    """Tokens of one or two texts after the first token, and where the second begins."""
    tokens = [FIRST, *vocabulary.encode(texts[0], length)]
    begin = len(tokens) + 1
    for text in texts[1:]:
        tokens += [SEPARATOR, *vocabulary.encode(text, length)]
    return tokens, begin


def train_matcher(
    model: nn.Module,
    examples: Sequence[MatchingExample],
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int = 0,
    show: Callable[[int, float], None] | None = None,
) -> MatchingHistory:
    """Train ``model`` by cross entropy of the right answer, and say what happened.

    Examples are taken in random order, each once before any is taken again. The learning rate rises
    during a tenth of the steps and then falls to 0. show: called with the step and the loss.
    """
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, weight_decay=_WEIGHT_DECAY)
    warmup = max(1, round(_WARMUP * steps))
    losses, right = [], []
    began = time.monotonic()
    model.train()
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)  # for dropout
        for step, chosen in enumerate(_draw_batches(len(examples), batch, steps, seed), start=1):
            rate = min(step / warmup, (steps + 1 - step) / max(1, steps + 1 - warmup))
            for group in optimizer.param_groups:
                group["lr"] = rate * learning_rate
            logits, answers = _score_batch(model, [examples[n] for n in chosen])
            loss = F.cross_entropy(logits, answers)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), _GRADIENT_LIMIT)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            right.append((logits.argmax(-1) == answers).float().mean().item())
            if show is not None:
                show(step, losses[-1])
    tail = right[-max(1, steps // 4) :]
    points = _average_parts(losses)
    seconds = time.monotonic() - began
    return MatchingHistory(*points, accuracy=sum(tail) / len(tail), seconds=seconds)


@torch.no_grad()
def evaluate_matcher(
    model: nn.Module,
    examples: Sequence[MatchingExample],
    show: Callable[[int], None] | None = None,
) -> list[bool]:
    """Whether the answer with the highest score is right, for each example."""
    model.eval()
    found: list[bool] = []
    for begin in range(0, len(examples), _TEST_BATCH):
        logits, answers = _score_batch(model, examples[begin : begin + _TEST_BATCH])
        found += (logits.argmax(-1) == answers).tolist()
        if show is not None:
            show(len(found))
    return found


def _score_batch(model: nn.Module, examples: Sequence[MatchingExample]) -> tuple[Tensor, Tensor]:
    """Logits and right answers of some examples."""
    rows = [sequence for one in examples for sequence in one.sequences]
    longest = max(1, *(len(tokens) for tokens, _ in rows))
    tokens = torch.full((len(rows), longest), PADDING)
    types = torch.zeros_like(tokens)
    for n, (row, begin) in enumerate(rows):
        tokens[n, : len(row)] = torch.tensor(row, dtype=torch.long)
        types[n, begin:] = 1
    mask = (tokens != PADDING).long()
    full = bool(mask.all())
    answers = torch.tensor([one.answer for one in examples])
    return model(tokens, mask=None if full else mask, token_types=types), answers


def _draw_batches(count: int, batch: int, steps: int, seed: int) -> Iterator[list[int]]:
    """Numbers of the examples of each step."""
    source = torch.Generator().manual_seed(seed)
    left: list[int] = []
    for _ in range(steps):
        while len(left) < batch:
            left += torch.randperm(count, generator=source).tolist()
        yield left[:batch]
        left = left[batch:]


def _average_parts(losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """The last step and the mean loss of each of up to twenty parts of the steps."""
    size = max(1, -(-len(losses) // _CURVE_POINTS))
    parts = [losses[n : n + size] for n in range(0, len(losses), size)]
    ends = [float(min(len(losses), (n + 1) * size)) for n in range(len(parts))]
    return ends, [sum(part) / len(part) for part in parts]
