"""Folds: which examples are tested, and which are trained on, without a text in both.

Released triplets share texts: 500 of CAIL2019-SCM are made of 227, and each is in 6.6 triplets on
average. In folds of single triplets a model need not read: whoever counts how often each text was
the nearer one in training, and never looks at A, is right in 75 % of them (``score_unread``). So
the *texts* are divided into groups of about equal size. Fold n tests the examples whose texts are
all in group n, and trains on those without any text of it; the others are left out of it.

Groups grow in turns, each by the text that completes most examples, so that many can be tested.
Where examples share no texts, every one is tested once.
"""

import hashlib
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Protocol, TypeVar

from .triplets import Triplet

__all__ = ["group_texts", "score_unread", "split_fold"]


class HasTexts(Protocol):
    """An example that is made of texts."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All its texts."""


Example = TypeVar("Example", bound=HasTexts)


def split_fold(
    examples: Sequence[Example], fold: int, *, folds: int = 5, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Examples to train on, and those of ``fold`` to test; no text is in both.

    seed: for another division into groups.
    """
    if not 0 <= fold < folds:
        raise ValueError(f"fold must be from 0 to {folds - 1}; got {fold}.")
    mine = group_texts(examples, folds, seed)[fold]
    test = [one for one in examples if mine.issuperset(one.texts)]
    train = [one for one in examples if mine.isdisjoint(one.texts)]
    if not train or not test:
        raise ValueError(
            f"data.files: fold {fold} of {folds} has {len(train)} examples to train on and"
            f" {len(test)} to test, because no text may be in both; give more examples, or some"
            " that share fewer texts."
        )
    return train, test


def group_texts(examples: Sequence[HasTexts], folds: int, seed: int) -> list[set[str]]:
    """All texts in ``folds`` groups of about equal size, with many examples inside one group."""
    members = [{*one.texts} for one in examples]
    known: dict[str, list[int]] = {}
    for n, texts in enumerate(members):
        for text in texts:
            known.setdefault(text, []).append(n)
    order = {text: n for n, text in enumerate(sorted(known, key=lambda text: _hash(text, seed)))}
    fresh = sorted(range(len(members)), key=lambda n: min(order[text] for text in members[n]))
    groups = [_TextGroup(members, known, order) for _ in range(folds)]
    free = dict.fromkeys(order)
    while free:
        group = min(groups, key=lambda one: len(one.texts))
        chosen = group.find_next(free)
        if chosen is None:
            while fresh and not members[fresh[0]] <= free.keys():
                fresh.pop(0)
            chosen = members[fresh[0]] if fresh else {next(iter(free))}
        group.add(chosen)
        for text in chosen:
            del free[text]
    return [one.texts for one in groups]


class _TextGroup:
    """A group of texts that grows; waiting: texts of examples of which it has a part, in a heap."""

    def __init__(
        self, members: list[set[str]], known: dict[str, list[int]], order: dict[str, int]
    ) -> None:
        self.members, self.known, self.order = members, known, order
        self.texts: set[str] = set()
        self.waiting: list[tuple[int, int, int, str]] = []

    def find_next(self, free: dict[str, None]) -> set[str] | None:
        """The free text that completes most examples, or else is in most that have a part here."""
        while self.waiting:
            entry = heappop(self.waiting)
            if entry[-1] in free and entry == self._rank(entry[-1]):  # else it is out of date
                return {entry[-1]}
        return None

    def add(self, texts: set[str]) -> None:
        self.texts |= texts
        touched = {n for text in texts for n in self.known[text]}
        for text in {text for n in touched for text in self.members[n]} - self.texts:
            heappush(self.waiting, self._rank(text))

    def _rank(self, text: str) -> tuple[int, int, int, str]:
        missing = [len(self.members[n] - self.texts) for n in self.known[text]]
        started = sum(
            count < len(self.members[n]) for n, count in zip(self.known[text], missing, strict=True)
        )
        return -missing.count(1), -started, self.order[text], text


def score_unread(triplets: Sequence[Triplet], *, folds: int = 5, seed: int = 0) -> float:
    """Share of right answers of a rule that never reads A, in folds of single triplets.

    It counts how often each text was the nearer one in training, less how often it was not, and
    takes the text with the higher count; equal counts are half right. More than a half says that
    shared texts give answers away.
    """
    order = sorted(range(len(triplets)), key=lambda n: _hash("\0".join(triplets[n].texts), seed))
    right = 0.0
    for fold in range(folds):
        tested = {*order[fold::folds]}
        counts: dict[str, int] = {}
        for n, one in enumerate(triplets):
            if n not in tested:
                for answer, text in enumerate(one.texts[1:]):
                    counts[text] = counts.get(text, 0) + (1 if answer == one.nearer else -1)
        for n in tested:
            first, second = (counts.get(text, 0) for text in triplets[n].texts[1:])
            right += 0.5 if first == second else float((second > first) == triplets[n].nearer)
    return right / len(triplets)


def _hash(text: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
