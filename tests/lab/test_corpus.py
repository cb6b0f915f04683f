"""Text in, tokens out: what is held out, and what is refused."""

import json
import os
from pathlib import Path

import pytest
import torch

from whorl.lab import corpus


@pytest.mark.slow
def test_the_standard_library() -> None:
    found = corpus.load_corpus()
    assert found.about["tokens"] > 8_000_000
    assert found.about["held_out_files"] == found.about["files"] // 10
    rest = len(found.validation) + sum(map(len, found.held_out))
    assert len(found.train) + rest == found.about["tokens"]
    assert 0.02 < len(found.validation) / found.about["tokens"] < 0.1
    assert found.vocab == 256
    assert corpus.load_corpus().about == found.about
    # A whole file is held out: none of its windows is in the training text.
    window = bytes(found.held_out[0][:200].tolist())
    train = bytes(found.train.tolist())
    assert window not in train
    # Nor is any of the validation text.
    assert bytes(found.validation[:200].tolist()) not in train
    assert bytes(found.validation[-200:].tolist()) not in train


def test_windows_lie_in_one_document_and_are_spread(texts: Path) -> None:
    found = corpus.load_corpus([str(texts)])
    windows = found.cut_windows(6, 100, apart=10)
    assert windows.shape == (6, 100)
    documents = [bytes(text.tolist()) for text in found.held_out]
    places = []
    for row in windows.tolist():
        inside = [(n, text.find(bytes(row))) for n, text in enumerate(documents)]
        places += [place for place in inside if place[1] >= 0][:1]
    assert len(set(places)) == 6
    assert [n for n, _ in places] == [0, 0, 0, 1, 1, 1]


def test_no_window_counts_twice(tmp_path: Path) -> None:
    """Of 200 held-out tokens there are three windows of 100 whose last 50 tokens differ."""
    path = tmp_path / "one.txt"
    path.write_bytes(bytes(n % 251 for n in range(2000)))
    windows = corpus.load_corpus([str(path)]).cut_windows(64, 100, apart=50)
    assert windows.shape == (3, 100)
    judged = [set(range(int(row[0]), int(row[0]) + 50)) for row in windows[:, -50:]]
    assert not judged[0] & judged[1]
    assert not judged[1] & judged[2]


def test_few_files_give_their_last_tenth(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_bytes(bytes(range(100)))
    found = corpus.load_corpus([str(path)])
    assert found.train.tolist() == list(range(85))
    assert found.validation.tolist() == list(range(85, 90))
    assert [text.tolist() for text in found.held_out] == [list(range(90, 100))]


def test_validation_windows_are_spread_over_the_text(texts: Path) -> None:
    found = corpus.load_corpus([str(texts)])
    windows = found.cut_validation_windows(5, 40)
    assert windows.shape == (5, 40)
    text = found.validation.tolist()
    assert windows[0].tolist() == text[:40]
    assert windows[-1].tolist() == text[-40:]
    assert windows[2].tolist() == text[(n := (len(text) - 40) // 2) : n + 40]


def test_batches_come_from_the_training_text(texts: Path) -> None:
    found = corpus.load_corpus([str(texts)])
    source = torch.Generator().manual_seed(0)
    text = bytes(found.train.tolist())
    batch = found.sample_windows(4, 30, source)
    assert batch.dtype == torch.int64
    assert all(bytes(row) in text for row in batch.tolist())


@pytest.mark.parametrize("length", [1, 3, 7])
def test_every_window_of_the_training_text_is_drawn(length: int) -> None:
    """From the first to the last, all alike: of 10 tokens and 7 there are 4 windows."""
    train = torch.arange(10, dtype=torch.uint8)
    found = corpus.Corpus(train, train, (), 256, {"unit": "bytes"})
    batch = found.sample_windows(4000, length, torch.Generator().manual_seed(0))
    assert (batch == batch[:, :1] + torch.arange(length)).all()
    counts = torch.bincount(batch[:, 0])
    assert len(counts) == 10 - length + 1
    even = 4000 / len(counts)
    assert (counts - even).abs().max() < 6 * even**0.5  # six standard deviations


def test_a_text_of_one_window_is_enough() -> None:
    found = corpus.Corpus(
        torch.arange(5, dtype=torch.uint8),
        torch.arange(5, dtype=torch.uint8),
        (),
        256,
        {"unit": "bytes"},
    )
    found.check_length(5)
    assert found.sample_windows(2, 5, torch.Generator()).tolist() == [[0, 1, 2, 3, 4]] * 2
    with pytest.raises(ValueError, match=r"has 5 bytes, fewer than a window of 6"):
        found.check_length(6)


@pytest.mark.parametrize(("count", "starts"), [(1, [45]), (2, [0, 90]), (4, [0, 30, 60, 90])])
def test_held_out_windows_reach_both_ends(count: int, starts: list[int]) -> None:
    """Of a document of 100 tokens: the first and the last window are among them."""
    text = torch.arange(100, dtype=torch.uint8)
    found = corpus.Corpus(text, text, (text,), 256, {"unit": "bytes"})
    windows = found.cut_windows(count, 10, apart=10)
    assert windows[:, 0].tolist() == starts
    assert (windows == windows[:, :1] + torch.arange(10)).all()


def test_folders_skip_what_is_no_text(texts: Path) -> None:
    (texts / "picture.bin").write_bytes(b"\x00\x01")
    (texts / "latin.txt").write_bytes("é".encode("latin-1"))
    (texts / ".hidden").write_text("x")
    found = corpus.load_corpus([str(texts)])
    assert found.about["skipped_files"] == 2
    assert found.about["files"] == 20


def test_no_text_is_on_both_sides(texts: Path) -> None:
    """Named twice, by two paths, a file must not be held out under one and trained on under the
    other."""
    (texts / "deep").mkdir()
    for n in range(12):
        (texts / "deep" / f"more{n}.txt").write_text(f"the text of file {n}\n" * 20)
    found = corpus.load_corpus([str(texts), str(texts / "deep")])
    assert found.about["repeated_files"] == 12
    train = bytes(found.train.tolist())
    assert all(bytes(text.tolist()) not in train for text in found.held_out)


def test_the_loss_of_frequencies(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_bytes(b"ab" * 5000)
    found = corpus.load_corpus([str(path)])
    expected = -torch.tensor(4251 / (8500 + 256)).log()
    assert found.compute_unigram_loss(found.held_out[0].long()) == pytest.approx(float(expected))


def test_a_named_file_may_hold_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("é".encode("latin-1") * 100)
    assert corpus.load_corpus([str(path)]).about["tokens"] == 100


def test_a_tokenizer(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    vocab = {"[UNK]": 0, "line": 1, "text": 2, "times": 3}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    found = corpus.load_corpus([str(texts)], str(path))
    assert (found.vocab, found.about["unit"]) == (4, "tokens")
    assert found.train[:6].tolist() == [1, 0, 0, 2, 0, 0]
    (texts / "text00.txt").write_text("changed")
    assert corpus.load_corpus([str(texts)], str(path)).about["sha256"] != found.about["sha256"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "none", r"none' cannot be read: No such file"),
        (lambda folder: folder, r"^data.files: .* has no files; choose another"),
        (
            lambda folder: _written(folder / "empty", b""),
            r"all files in .* are empty; give some text",
        ),
        (lambda folder: _written(folder / "tiny", b"abc"), r"too little text to train on one"),
        (lambda folder: _written(folder / "d" / "x", b"\0").parent, r"none of the 1 files in"),
    ],
)
def test_bad_data(tmp_path: Path, make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        corpus.load_corpus([str(make(tmp_path))])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = _written(tmp_path / "secret", b"x" * 100)
    path.chmod(0)
    with pytest.raises(ValueError, match=r"secret' cannot be read: Permission denied"):
        corpus.load_corpus([str(path)])


def test_bad_tokenizers(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(
        ValueError, match=r"data.tokenizer: '.*none' is not a file; give a tokenizer"
    ):
        corpus.load_corpus([str(texts)], str(tmp_path / "none"))
    path = _written(tmp_path / "bad.json", b"{}")
    with pytest.raises(ValueError, match=r"bad.json' is not a tokenizers file: "):
        corpus.load_corpus([str(texts)], str(path))


def test_lengths_longer_than_the_data(texts: Path) -> None:
    found = corpus.load_corpus([str(texts)])
    with pytest.raises(
        ValueError, match=r"needs a document of 9999 bytes, and the longest held-out"
    ):
        found.cut_windows(2, 9999, apart=1)
    with pytest.raises(ValueError, match=r"fewer than a window of 99999999; give more text"):
        found.check_length(99999999)


def _written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path
