"""Labelled texts from TSV files, and the baseline of shared pairs of characters."""

from pathlib import Path

import pytest

from whorl.lab.matching import LabelledText, TfIdf, Triplet, labelled, read_labelled_texts


def test_one_text_and_two(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text('sentence\tlabel\na "good" film \t1\nbad\t0\n\n')
    assert read_labelled_texts(path) == [
        LabelledText(('a "good" film ',), "1"),
        LabelledText(("bad",), "0"),
    ]
    path.write_bytes(
        "\ufeffindex\tsentence1\tsentence2\tlabel\r\n0\tx\u2028y\tz\tyes\r\n1\ta\tb\tno\r\n".encode()
    )
    found = read_labelled_texts(path)
    assert found == [LabelledText(("x\u2028y", "z"), "yes"), LabelledText(("a", "b"), "no")]
    path.write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tp\tq\n0\t9\t9\tr\ts\n")
    assert read_labelled_texts(path)[1] == LabelledText(("r", "s"), "0")
    path.write_text("name\tnote\tkind\na\tb\tc\nd\te\tf\n")
    assert read_labelled_texts(path, texts=("note",), label="kind")[0] == LabelledText(("b",), "c")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"sentence\tlabel\na\t1\nb\n", r"line 3: it must have 2 columns .* got 1\. Correct it"),
        (b"a\t1\nb\t0\n", r"the first line must name the columns.*: sentence1 and sentence2 or"),
        (b"sentence\tscore\na\t1\n", r"label or gold_label or .*; got 'sentence', 'score'\."),
        (b"sentence\tlabel\na\t1\n", "'label' must have 2 to 100 different labels.* got 1"),
        (b"sentence\tlabel\na\t1\n\xff\t0\n", "line 3: it is not UTF-8; convert the file"),
    ],
)
def test_wrong_files(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_labelled_texts(path)


def test_files_that_are_not_there_or_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file or directory; check its"):
        read_labelled_texts(tmp_path / "nothing.tsv")
    path = tmp_path / "train.tsv"
    path.write_text("sentence\tlabel\na\t1\nb\t0\n")
    monkeypatch.setattr(labelled, "_MOST_BYTES", 10)
    with pytest.raises(ValueError, match="must have at most 10 bytes; give a part of it"):
        read_labelled_texts(path)


TEXTS = ["the court heard the case", "the loan was never paid", "a horse of the court", "paid"]


def test_weights_are_those_of_scikit_learn() -> None:
    text_features = pytest.importorskip("sklearn.feature_extraction.text")
    theirs = text_features.TfidfVectorizer(analyzer="char", ngram_range=(2, 2)).fit(TEXTS)
    ours, columns = TfIdf(TEXTS, length=1000), theirs.vocabulary_
    for text in TEXTS:
        expected = theirs.transform([text]).toarray()[0]
        found = ours.weight(text)
        assert len(found) == (expected > 0).sum()
        for pair, weight in found.items():
            assert weight == pytest.approx(expected[columns[pair]])


def test_triplets_by_shared_pairs() -> None:
    tfidf = TfIdf(TEXTS, length=3)
    near = Triplet("the court", "a horse", "the courtyard", 1)
    assert tfidf.test_triplets([near]) == [True]
    late = Triplet("12the court case", "xythe court case", "12a loan", 0)
    assert tfidf.test_triplets([late]) == [False]  # it reads three characters only
    assert TfIdf(TEXTS, length=20).test_triplets([late]) == [True]
    nothing = Triplet("x", "y", "z", 0)
    assert tfidf.test_triplets([nothing, Triplet("x", "y", "z", 1)]) == [True, False]


def test_labels_by_the_nearest_mean() -> None:
    train = [LabelledText(("good film",), "1"), LabelledText(("bad food",), "0")]
    tfidf = TfIdf([text for one in train for text in one.texts], length=100)
    test = [LabelledText(("a good one",), "1"), LabelledText(("a bad one",), "1")]
    assert tfidf.test_labels(train, test) == [True, False]
    pairs = [LabelledText(("abab", "abab"), "same"), LabelledText(("abab", "cdcd"), "other")]
    both = TfIdf(["abab", "cdcd"], length=100)
    assert both.test_labels(pairs, [LabelledText(("aba", "bab"), "same")]) == [True]
