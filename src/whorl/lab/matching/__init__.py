"""Matching texts: triplets "is A nearer to B or to C?", and labelled texts as GLUE has them.

triplets, generated    triplets from JSON lines, and made ones whose evidence is in the second half
labelled               labelled texts and pairs from TSV files
folds                  which examples are trained on, and which are tested
characters             characters as tokens
models, training       the lab's RoFormer as a scorer, and how it is trained
tfidf                  the baseline: shared pairs of characters, nothing trained

``whorl experiment matching`` runs all of it; docs/matching.md says what it shows.
"""

from .characters import CharacterVocabulary
from .folds import split_fold
from .generated import make_triplets
from .labelled import LabelledText, read_labelled_texts
from .models import DocumentScorer, SequenceScorer
from .tfidf import TfIdf
from .training import (
    MatchingExample,
    MatchingHistory,
    encode_examples,
    evaluate_matcher,
    train_matcher,
)
from .triplets import Triplet, read_triplets

__all__ = [
    "CharacterVocabulary",
    "DocumentScorer",
    "LabelledText",
    "MatchingExample",
    "MatchingHistory",
    "SequenceScorer",
    "TfIdf",
    "Triplet",
    "encode_examples",
    "evaluate_matcher",
    "make_triplets",
    "read_labelled_texts",
    "read_triplets",
    "split_fold",
    "train_matcher",
]
