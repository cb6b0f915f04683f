"""Labelled texts, and pairs of texts, from TSV files as GLUE has them.

    sentence<TAB>label                  one text: SST-2
    sentence1<TAB>sentence2<TAB>label   two: RTE, WNLI, MNLI; further names are in ``PAIRS``

The first line names the columns, and others than these are ignored. There are no quotes: a text
ends at the next tab. GLUE: Wang et al. 2018, https://arxiv.org/abs/1804.07461. Its CoLA has no
line with names, and its STS-B has numbers for labels: both are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whorl._support.words import list_quoted, quote

__all__ = ["LabelledText", "read_labelled_texts"]

#: Names of columns with labels, and with one text or two, in GLUE's files.
LABELS = ("label", "gold_label", "Quality", "is_duplicate")
PAIRS = (
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 String", "#2 String"),
    ("premise", "hypothesis"),
)
SINGLES = (("sentence",), ("text",))
_MOST_BYTES = 256 * 2**20
_MOST_LABELS = 100


@dataclass(frozen=True)
class LabelledText:
    """A text, or two, and the label."""

    texts: tuple[str, ...]
    label: str


def read_labelled_texts(
    path: str | Path, *, texts: Sequence[str] | None = None, label: str | None = None
) -> list[LabelledText]:
    """The labelled texts in a TSV file whose first line names its columns.

    Args:
        texts: names of the columns with the text, or with the two texts; by default those of GLUE.
        label: name of the column with the label; by default as in GLUE.

    Raises:
        ValueError: the file cannot be read, lacks the columns, or has a line with other columns.
    """
    where = f"data.files: {str(path)!r}"
    head, *lines = _read_lines(Path(path), where)
    names = head.split("\t")
    chosen, answer = _find_columns(names, texts, label, where)
    columns = [names.index(name) for name in chosen]
    found = []
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(
                f"{where}, line {number}: it must have {len(names)} columns as the first line has;"
                f" got {len(cells)}. Correct it, or delete it."
            )
        found.append(LabelledText(tuple(cells[n] for n in columns), cells[names.index(answer)]))
    labels = {one.label for one in found}
    if not 2 <= len(labels) <= _MOST_LABELS:
        raise ValueError(
            f"{where}: the column {quote(answer)} must have 2 to {_MOST_LABELS} different labels,"
            f" because each is a class; got {len(labels)}."
        )
    return found


def _read_lines(path: Path, where: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"{where} cannot be read: {error.strerror or error}; check its name."
        ) from None
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"{where} must have at most {_MOST_BYTES:,} bytes; give a part of it.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ValueError(f"{where}, line {line}: it is not UTF-8; convert the file.") from None
    return [line.removesuffix("\r") for line in text.split("\n")]


def _find_columns(
    names: Sequence[str], texts: Sequence[str] | None, label: str | None, where: str
) -> tuple[tuple[str, ...], str]:
    """Names of the columns of the texts, and of the label."""
    pairs = PAIRS + SINGLES if texts is None else (tuple(texts),)
    labels = LABELS if label is None else (label,)
    chosen = next((one for one in pairs if {*one} <= {*names}), None)
    answer = next((one for one in labels if one in names), None)
    if chosen is None or answer is None:
        columns = " or ".join(
            " and ".join(one) for one in (pairs if texts else (*PAIRS[:1], *SINGLES))
        )
        raise ValueError(
            f"{where}: the first line must name the columns, with tabs between them: {columns}, and"
            f" {' or '.join(labels)}; got {list_quoted(names)}."
        )
    return chosen, answer
