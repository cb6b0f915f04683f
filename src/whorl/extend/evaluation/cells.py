"""The cells of an evaluation: one method at one length each, in the order they are measured.

The trained length and the target come first, and there the published rotation, because a verdict
needs them; with ``minutes`` the lengths between them may be missing. Two methods with the same
frequencies at a length share a cell: a scaling that follows the length is the published rotation
within the trained length, and often another method at the target.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whorl.configs import LayerGroup
from whorl.extend.report import MethodReport
from whorl.scaling import Frequencies

from .rotations import compute_frequencies
from .settings import PUBLISHED, SLIDING_WINDOW, ExtensionTest

__all__ = ["EvaluationCell", "EvaluationPlan", "find_alike"]

_SAME = 1e-9  # relative difference of frequencies by rounding


@dataclass(frozen=True)
class EvaluationCell:
    """One measurement; form: None for losses of text, else a form of retrieval. cost: tokens."""

    row: str
    length: int
    form: str | None
    cost: int

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.form, self.row, str(self.length))))


@dataclass(frozen=True)
class EvaluationPlan:
    """What is measured: rows, lengths, and which rows are alike at a length.

    alike: for each method and length, the first method with the same frequencies.
    """

    methods: Sequence[str]
    lengths: Sequence[int]
    trained: int
    target: int
    alike: Mapping[tuple[str, int], str]
    windows: int
    test: ExtensionTest

    def list_losses(self) -> Iterator[EvaluationCell]:
        """Cells of losses; the sliding window, which is the same at every length, is one cell."""
        for length in self._order(self.lengths):
            for name in sorted(self.methods, key=lambda name: name != PUBLISHED):
                if self.alike[name, length] == name:
                    yield EvaluationCell(name, length, None, length * self.windows)
            if length == self.trained:
                yield EvaluationCell(SLIDING_WINDOW, self.target, None, 4 * length * self.windows)

    def list_first_answers(self) -> Iterator[EvaluationCell]:
        """Cells that decide whether a form is measured: the published model as it was trained."""
        for form in self.test.forms if self.test.texts else ():
            yield self._make_retrieval_cell(PUBLISHED, self.trained, form)

    def list_answers(self, forms: Sequence[str]) -> Iterator[EvaluationCell]:
        """All other cells of retrieval."""
        for length in self._order([n for n in self.lengths if n >= self.trained]):
            for name in (*self.methods, *([SLIDING_WINDOW] if length > self.trained else [])):
                for form in forms:
                    again = (name, length) == (PUBLISHED, self.trained)
                    if self.alike.get((name, length), name) == name and not again:
                        yield self._make_retrieval_cell(name, length, form)

    def find_cell(self, row: str, length: int, form: str | None = None) -> str:
        """Name of the cell that has the result of a row."""
        if row == SLIDING_WINDOW and length <= self.trained:
            row = PUBLISHED
        elif row == SLIDING_WINDOW and form is None:
            length = self.target
        return EvaluationCell(self.alike.get((row, length), row), length, form, 0).name

    def _make_retrieval_cell(self, row: str, length: int, form: str) -> EvaluationCell:
        read = self.trained if row == SLIDING_WINDOW else length
        return EvaluationCell(row, length, form, read * self.test.texts * len(self.test.depths))

    def _order(self, lengths: Sequence[int]) -> list[int]:
        return sorted(lengths, key=lambda n: (n not in (self.trained, self.target), n))


def find_alike(
    group: LayerGroup, methods: Sequence[MethodReport], lengths: Sequence[int]
) -> dict[tuple[str, int], str]:
    """For each method and length, the first method with the same frequencies; often itself."""
    found: dict[tuple[str, int], str] = {}
    ordered = sorted(methods, key=lambda method: method.name != PUBLISHED)
    for length in lengths:
        known: dict[str, Frequencies] = {}
        for method in ordered:
            mine = compute_frequencies(group, method.scaling, length)
            first = next((n for n, other in known.items() if _are_equal(mine, other)), method.name)
            known.setdefault(first, mine)
            found[method.name, length] = first
    return found


def _are_equal(one: Frequencies, other: Frequencies) -> bool:
    if abs(float(one.attention_scale) - float(other.attention_scale)) > _SAME:
        return False
    difference = (one.inv_freq - other.inv_freq).abs()
    return bool((difference <= _SAME * other.inv_freq.abs()).all())
