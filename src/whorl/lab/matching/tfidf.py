"""The baseline that nothing is trained for: tf-idf of pairs of neighbouring characters.

    weight of a pair in a text = count * (1 + ln((1 + N) / (1 + texts with it))), N texts
    similarity = cosine of two texts

The inverse document frequencies are those of the training texts. For labelled texts, every class
is the mean of its texts, and a text belongs to the nearest one (Rocchio's rule); of two texts,
pairs of characters of the first, of the second and of both count apart.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .labelled import LabelledText
from .triplets import Triplet

__all__ = ["TfIdf"]

Weights = Mapping[str, float]


class TfIdf:
    """Similarity of texts by the pairs of characters that they share.

    length: how many characters of each text are read.

    >>> tfidf = TfIdf(["abab", "cdcd"], length=100)
    >>> tfidf.compare("ab", "abx") > tfidf.compare("ab", "cd") == 0.0
    True
    """

    def __init__(self, texts: Iterable[str], *, length: int) -> None:
        self.length, self.total = length, 0
        self.documents: Counter[str] = Counter()
        for text in texts:
            self.total += 1
            self.documents.update(set(self._list_pairs(text)))

    def weight(self, text: str) -> dict[str, float]:
        """Weights of all pairs of characters of a text, of length 1 together."""
        counts = Counter(self._list_pairs(text))
        return _normalize({one: count * self._get_idf(one) for one, count in counts.items()})

    def compare(self, one: str, other: str) -> float:
        """Similarity of two texts, from 0 to 1."""
        return _multiply(self.weight(one), self.weight(other))

    def test_triplets(self, triplets: Sequence[Triplet]) -> list[bool]:
        """Whether the more similar of two texts is the nearer one, for each triplet."""
        found = []
        for one in triplets:
            anchor = self.weight(one.anchor)
            scores = [_multiply(anchor, self.weight(text)) for text in (one.first, one.second)]
            found.append(int(scores[1] > scores[0]) == one.nearer)
        return found

    def test_labels(
        self, train: Sequence[LabelledText], test: Sequence[LabelledText]
    ) -> list[bool]:
        """Whether the class with the most similar mean is right, for each text of ``test``."""
        means: dict[str, dict[str, float]] = {}
        for one in train:
            mean = means.setdefault(one.label, {})
            for pair, weight in self._weight_all(one).items():
                mean[pair] = mean.get(pair, 0.0) + weight
        classes = {label: _normalize(mean) for label, mean in sorted(means.items())}
        found = []
        for one in test:
            weights = self._weight_all(one)
            found.append(one.label == max(classes, key=lambda x: _multiply(weights, classes[x])))
        return found

    def _weight_all(self, example: LabelledText) -> dict[str, float]:
        """Weights of all texts of an example; those of several texts are kept apart."""
        parts = [self.weight(text) for text in example.texts]
        if len(parts) == 1:
            return parts[0]
        found = {
            f"{n}{pair}": value for n, part in enumerate(parts) for pair, value in part.items()
        }
        shared = parts[0].keys() & parts[1].keys()
        return _normalize(found | {f"both{pair}": parts[0][pair] for pair in shared})

    def _list_pairs(self, text: str) -> list[str]:
        text = text[: self.length]
        return [text[n : n + 2] for n in range(len(text) - 1)]

    def _get_idf(self, pair: str) -> float:
        return 1.0 + math.log((1 + self.total) / (1 + self.documents[pair]))


def _normalize(weights: dict[str, float]) -> dict[str, float]:
    size = math.sqrt(sum(value * value for value in weights.values()))
    return {one: value / size for one, value in weights.items()} if size else weights


def _multiply(one: Weights, other: Weights) -> float:
    if len(other) < len(one):
        one, other = other, one
    return sum(value * other[pair] for pair, value in one.items() if pair in other)
