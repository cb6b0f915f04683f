"""Options of a row of the experiment, the examples that they name, and the scorer."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whorl._support.words import quote
from whorl.lab._checks import check_choice, check_count, check_number
from whorl.lab.config import EncodingSpec
from whorl.lab.encodings import format_title
from whorl.lab.roformer import RoFormerConfig
from whorl.lab.toml_tables import read_table

from .characters import PADDING
from .folds import split_fold
from .generated import make_triplets
from .labelled import LabelledText, read_labelled_texts
from .models import DocumentScorer, SequenceScorer
from .triplets import Triplet, read_triplets

__all__ = [
    "DataOptions",
    "DataSplit",
    "MatchingOptions",
    "ScorerOptions",
    "ScorerTraining",
    "build_scorer",
    "describe_files",
    "list_texts",
    "load_split",
]

ScorerName = Literal["documents", "sequences", "tf-idf"]
_SCORERS = ("documents", "sequences", "tf-idf")


@dataclass(frozen=True)
class ScorerOptions:
    """The model: which scorer, and the shape and encoding of its RoFormer."""

    scorer: str = "documents"
    encoding: EncodingSpec = "rope"
    layers: int = 1
    width: int = 32
    heads: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_choice("model.scorer", self.scorer, _SCORERS)
        for name in ("layers", "width", "heads"):
            check_count(f"model.{name}", getattr(self, name))
        check_number("model.dropout", self.dropout, 0.0, 0.95)


@dataclass(frozen=True)
class ScorerTraining:
    """length: characters that are read of every text, the first ones."""

    length: int = 256
    steps: int = 100
    batch: int = 16
    learning_rate: float = 0.001

    def __post_init__(self) -> None:
        for name in ("length", "steps", "batch"):
            check_count(f"training.{name}", getattr(self, name))
        check_number("training.learning_rate", self.learning_rate, 0.0, 1.0, open_below=True)


@dataclass(frozen=True)
class DataOptions:
    """A file of examples in folds; without one, made triplets of documents of ``length``.

    tested: how many made triplets are tested. title, sha256: what the file was when the experiment
    began; ``describe_files`` fills them in.
    """

    files: tuple[str, ...] = ()
    title: str = ""
    unit: str = "characters"
    sha256: str = ""
    folds: int = 5
    tested: int = 200
    length: int = 512

    def __post_init__(self) -> None:
        check_count("data.folds", self.folds, least=2)
        for name in ("tested", "length"):
            check_count(f"data.{name}", getattr(self, name))


@dataclass(frozen=True)
class MatchingOptions:
    """All options of a row, from its tables [model], [training] and [data]."""

    model: ScorerOptions
    training: ScorerTraining
    data: DataOptions

    @classmethod
    def from_tables(cls, tables: Mapping[str, Mapping[str, Any]]) -> "MatchingOptions":
        """The options in ``tables``; ValueError says which one is wrong."""
        kinds = {"model": ScorerOptions, "training": ScorerTraining, "data": DataOptions}
        for table in tables:
            check_choice("the table", table, tuple(kinds))
        try:
            return cls(
                *(read_table(name, kind, tables.get(name, {})) for name, kind in kinds.items())
            )
        except TypeError as error:  # a string where TOML should have a number, and so on
            raise ValueError(str(error)) from None

    @property
    def title(self) -> str:
        """The model in a word or two: "tf-idf", "rope"."""
        if self.model.scorer == "tf-idf":
            return "tf-idf"
        title = format_title(self.model.encoding)
        return title if self.model.scorer == "documents" else f"{title}, sequences"


@dataclass(frozen=True)
class DataSplit:
    """Examples to train on and to test.

    every: all of the file, among them those that are in neither; none if they were made.
    labels: all labels, if they are labelled texts.
    """

    train: Sequence[Triplet] | Sequence[LabelledText]
    test: Sequence[Triplet] | Sequence[LabelledText]
    every: Sequence[Triplet] | Sequence[LabelledText] = ()
    labels: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """All different texts to train on, in their order."""
        return list_texts(self.train)


def list_texts(examples: Sequence[Triplet] | Sequence[LabelledText]) -> list[str]:
    """All different texts of some examples, in their order."""
    return list(dict.fromkeys(text for one in examples for text in one.texts))


def describe_files(files: Sequence[str]) -> dict[str, Any]:
    """Options of [data] for the file of a user, which is read once to see that it is right."""
    if len(files) != 1:
        raise ValueError(
            "data.files: matching reads one file, triplets (.jsonl) or labelled texts (.tsv); got"
            f" {len(files)}."
        )
    (name,) = files
    kind = _find_kind(name)
    count = len(read_triplets(name)) if kind == "triplets" else len(read_labelled_texts(name))
    title = f"{Path(name).name}: {count} {kind}"
    return {"files": [str(name)], "title": title, "sha256": _hash_file(name)}


def load_split(options: MatchingOptions, seed: int) -> DataSplit:
    """The examples of a seed.

    Made triplets differ with the seed, and none is trained on twice. Of a file, seed n tests fold n
    of ``data.folds``; a seed beyond the last fold begins another division into folds.
    """
    data, training = options.data, options.training
    if not data.files:
        count = training.steps * training.batch
        test = make_triplets(data.tested, data.length, 2 * seed)
        return DataSplit(make_triplets(count, data.length, 2 * seed + 1), test)
    (name,) = data.files
    if data.sha256 and _hash_file(name) != data.sha256:
        raise ValueError(
            f"data.files: {name!r} has changed since the experiment began; start it again, with"
            " force=True."
        )
    division, fold = divmod(seed, data.folds)
    if _find_kind(name) == "triplets":
        triplets = read_triplets(name, seed=division)
        return DataSplit(*split_fold(triplets, fold, folds=data.folds, seed=division), triplets)
    texts = read_labelled_texts(name)
    labels = tuple(sorted({one.label for one in texts}))
    return DataSplit(*split_fold(texts, fold, folds=data.folds, seed=division), texts, labels)


def build_scorer(
    options: MatchingOptions, *, vocab: int, labels: int = 0
) -> DocumentScorer | SequenceScorer:
    """The model of a row; labels: how many classes there are, 0 for triplets."""
    model, length = options.model, options.training.length
    config = RoFormerConfig(
        vocab=vocab,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        inner=4 * model.width,
        padding_token=PADDING,
        max_length=2 * length + 2,
        dropout=model.dropout,
        attention_dropout=model.dropout,
        encoding=model.encoding,
    )
    if labels:
        return SequenceScorer(config, classes=labels)
    return (
        DocumentScorer(config) if model.scorer == "documents" else SequenceScorer(config, choices=2)
    )


def _hash_file(name: str) -> str:
    total = hashlib.sha256()
    with open(name, "rb") as file:
        while piece := file.read(2**20):
            total.update(piece)
    return total.hexdigest()


def _find_kind(name: str) -> str:
    kinds = {".jsonl": "triplets", ".json": "triplets", ".tsv": "labelled texts"}
    kind = kinds.get(Path(name).suffix.lower())
    if kind is None:
        raise ValueError(
            f"data.files: the name must end in .jsonl (triplets) or .tsv (labelled texts); got"
            f" {quote(name)}."
        )
    return kind
