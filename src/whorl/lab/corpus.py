"""Text as tokens, in three parts: by default Python's standard library.

Every machine with Python has it: over ten megabytes of long documents without a download. Every
byte is a token unless a tokenizer.json is given. One file in ten is held out for the evaluation,
and half as many are kept for validation, which draws learning curves and chooses learning rates;
the hash of a file's name decides. Of fewer than twenty files, it is the last tenth of each, and
half as much before it.
"""

import hashlib
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.extras import import_extra

__all__ = ["Corpus", "load_corpus", "open_tokenizer"]

# Installed packages, tests (which some systems leave out) and one large generated table.
_NOT_SOURCE = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "pydoc_data"}
_HELD_OUT_ONE_IN = 10
_VALIDATION_ONE_IN = 20


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens of all documents.

    train: those for training, joined, [N]. validation: those for learning curves, joined.
    held_out: documents for the evaluation, longest first.
    about: a description, by which a resumed run checks that the text is the same.
    words: for every token the number of its word, in the same parts as the tokens; None unless
    ``load_corpus`` was asked for them.
    """

    train: Tensor
    validation: Tensor
    held_out: tuple[Tensor, ...]
    vocab: int
    about: dict[str, Any]
    words: "Corpus | None" = None

    def sample_windows(self, count: int, length: int, source: torch.Generator) -> Tensor:
        """``count`` random windows of ``length`` tokens from the training text, [count, length]."""
        starts = torch.randint(len(self.train) - length + 1, (count,), generator=source)
        return self.train[starts.unsqueeze(1) + torch.arange(length)].long()

    def cut_validation_windows(self, count: int, length: int) -> Tensor:
        """``count`` evenly spaced windows of ``length`` validation tokens, [count, length]."""
        last = len(self.validation) - length
        starts = torch.tensor([n * last // max(1, count - 1) for n in range(count)])
        return self.validation[starts.unsqueeze(1) + torch.arange(length)].long()

    def cut_windows(self, count: int, length: int, apart: int) -> Tensor:
        """At most ``count`` windows of ``length`` held-out tokens, each within one document.

        Documents that are long enough contribute equally many windows, as far as they can. Those
        of one document are evenly spaced and begin at least ``apart`` tokens after each other, so
        that their last ``apart`` tokens do not overlap.
        """
        fit = [text for text in self.held_out if len(text) >= length]
        if not fit:
            longest = max(map(len, self.held_out), default=0)
            raise ValueError(
                f"the longest evaluation needs a document of {length} {self.about['unit']}, and the"
                f" longest held-out document has {longest}; give longer files, or evaluate at"
                " smaller multiples of the trained length."
            )
        room = [1 + (len(text) - length) // apart for text in fit]
        shares = [0] * len(fit)
        while sum(shares) < min(count, sum(room)):
            for n in range(len(fit)):
                shares[n] += shares[n] < room[n] and sum(shares) < count
        rows = []
        for text, share in zip(fit, shares, strict=True):
            free = len(text) - length
            starts = [free // 2] if share == 1 else [n * free // (share - 1) for n in range(share)]
            rows += [text[start : start + length] for start in starts]
        return torch.stack(rows).long()

    def compute_unigram_loss(self, tokens: Tensor) -> float:
        """Mean loss in nats of a model that knows only how frequent each token is."""
        counts = torch.bincount(self.train.int(), minlength=self.vocab).double() + 1
        return float(-(counts / counts.sum()).log()[tokens].mean())

    def check_length(self, length: int) -> None:
        """Raise ValueError unless training and validation have a window of ``length`` tokens."""
        for name, text in (("training", self.train), ("validation", self.validation)):
            if len(text) < length:
                raise ValueError(
                    f"the {name} text has {len(text)} {self.about['unit']}, fewer than a window"
                    f" of {length}; give more text, or train on shorter sequences."
                )


def load_corpus(
    files: Sequence[str] = (), tokenizer: str | None = None, *, words: bool = False
) -> Corpus:
    """The corpus of some files and folders; without them, of the standard library.

    words: also number the words. In bytes, a word is a run of letters, digits and underscores, and
    any byte that is not ASCII counts as a letter; every other byte is a word of its own. With a
    tokenizer, its pre-tokenization decides.
    """
    if files:
        title = ", ".join(Path(name).name or name for name in files)
        documents, skipped = _read_files(files)
    else:
        title, skipped = f"Python {platform.python_version()} standard library", 0
        documents = _read_standard_library()
    documents, repeated = _drop_repeated(documents)
    if not documents:
        raise ValueError(f"there is no text in {title}; give files that are not empty.")
    if tokenizer is None:
        unit, vocab = "bytes", 256
        texts = [
            (name, torch.frombuffer(bytearray(data), dtype=torch.uint8))
            for name, data in documents
            if data
        ]
        numbers = [(name, _number_words_of_bytes(text)) for name, text in texts] if words else None
    else:
        unit = "tokens"
        texts, numbers, vocab = _encode_documents(documents, tokenizer, words)
    about = {
        "title": title,
        "files": len(texts),
        "held_out_files": 0,
        "skipped_files": skipped,
        "repeated_files": repeated,
        "tokens": sum(len(text) for _, text in texts),
        "unit": unit,
        "sha256": _hash_documents(documents, tokenizer),
    }
    found = _build_corpus(texts, vocab, about)
    return found if numbers is None else replace(found, words=_build_corpus(numbers, 0, about))


def _build_corpus(texts: list[tuple[str, Tensor]], vocab: int, about: dict[str, Any]) -> Corpus:
    train, validation, held_out = _split_texts(texts)
    if not train or not validation or not held_out:
        raise ValueError(
            f"{about['title']} has too little text to train on one part and hold out others; give"
            " more."
        )
    about = {**about, "held_out_files": len(held_out)}
    longest_first = sorted(held_out, key=len, reverse=True)
    return Corpus(torch.cat(train), torch.cat(validation), tuple(longest_first), vocab, about)


def _number_words_of_bytes(text: Tensor) -> Tensor:
    """For every byte the number of its word, from 0."""
    letters = torch.zeros(256, dtype=torch.bool)
    letters[128:] = True
    letters[[byte for byte in range(128) if chr(byte).isalnum() or byte == ord("_")]] = True
    inside = letters[text.int()]
    begins = ~(inside[1:] & inside[:-1])
    return torch.cat((torch.zeros(1), begins.cumsum(0))).int()


def _drop_repeated(documents: list[tuple[str, bytes]]) -> tuple[list[tuple[str, bytes]], int]:
    """Documents without copies, and the number of copies: held-out text must not be trained on."""
    first = {hashlib.sha256(data).digest(): (name, data) for name, data in reversed(documents)}
    return list(reversed(first.values())), len(documents) - len(first)


def _split_texts(
    texts: list[tuple[str, Tensor]],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Texts for training, for validation and held out, none of them empty."""
    if len(texts) < _VALIDATION_ONE_IN:
        parts: tuple[list[Tensor], ...] = ([], [], [])
        for _, text in texts:
            end = len(text) - len(text) // _HELD_OUT_ONE_IN
            middle = end - len(text) // _VALIDATION_ONE_IN
            for part, piece in zip(
                parts, (text[:middle], text[middle:end], text[end:]), strict=True
            ):
                part += [piece] if len(piece) else []
        return parts[0], parts[1], parts[2]
    ranked = sorted(texts, key=lambda text: hashlib.sha256(text[0].encode()).digest())
    out = len(ranked) // _HELD_OUT_ONE_IN
    end = out + len(ranked) // _VALIDATION_ONE_IN
    held_out = {name for name, _ in ranked[:out]}
    validation = {name for name, _ in ranked[out:end]}
    return (
        [text for name, text in texts if name not in held_out | validation],
        [text for name, text in texts if name in validation],
        [text for name, text in texts if name in held_out],
    )


def _read_standard_library() -> list[tuple[str, bytes]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    found = [
        path for path in root.rglob("*.py") if not _NOT_SOURCE & set(path.relative_to(root).parts)
    ]
    if not found:
        raise ValueError(
            f"this Python has no source of its standard library in {str(root)!r}; give your own"
            " text as data.files."
        )
    return [(path.relative_to(root).as_posix(), path.read_bytes()) for path in sorted(found)]


def _read_files(files: Sequence[str]) -> tuple[list[tuple[str, bytes]], int]:
    """All files, of folders those with UTF-8 text; and the number of files without."""
    documents: list[tuple[str, bytes]] = []
    skipped = 0
    for name in files:
        path = Path(name)
        if not path.is_dir():
            documents.append((path.name, _read_bytes(path)))
            continue
        inside = [p for p in sorted(path.rglob("*")) if p.is_file() and not _is_hidden(p, path)]
        if not inside:
            raise ValueError(f"data.files: the folder {name!r} has no files; choose another.")
        for one in inside:
            data = _read_bytes(one)
            if b"\0" in data or _find_invalid_utf8(data) is not None:
                skipped += 1
            else:
                documents.append((one.relative_to(path).as_posix(), data))
        if len(inside) == skipped:
            raise ValueError(
                f"data.files: none of the {skipped} files in {name!r} is UTF-8 text; choose others."
            )
    if not any(data for _, data in documents):
        raise ValueError(f"data.files: all files in {', '.join(files)} are empty; give some text.")
    return documents, skipped


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"data.files: {str(path)!r} cannot be read: {error.strerror or error}."
        ) from None


def _find_invalid_utf8(data: bytes) -> int | None:
    """Index of the first byte that is not UTF-8, or None."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _encode_documents(
    documents: list[tuple[str, bytes]], tokenizer: str, words: bool
) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]] | None, int]:
    """Tokens of all documents, the numbers of their words or None, and the vocabulary's size."""
    reader = open_tokenizer(tokenizer)
    for name, data in documents:
        if (byte := _find_invalid_utf8(data)) is not None:
            raise ValueError(
                f"data.files: {name!r} is not UTF-8 (byte {byte}), which a tokenizer needs; convert"
                " it, or leave out data.tokenizer to train on bytes."
            )
    lines = reader.encode_batch([data.decode() for _, data in documents], add_special_tokens=False)
    named = [(name, line) for (name, _), line in zip(documents, lines, strict=True) if line.ids]
    pairs = [(name, torch.tensor(line.ids, dtype=torch.int32)) for name, line in named]
    size = int(reader.get_vocab_size())
    if not words:
        return pairs, None, size
    numbers = [(name, _number_words_of_tokens(line.word_ids)) for name, line in named]
    if all(len(text) > 1 and not bool(text.any()) for _, text in numbers):
        raise ValueError(
            f"data.masking: 'words' needs a tokenizer that splits text into words before it makes"
            f" tokens of them, and {tokenizer!r} does not; choose 'tokens'."
        )
    return pairs, numbers, size


def _number_words_of_tokens(words: Sequence[int | None]) -> Tensor:
    """For every token the number of its word; a token without one is a word of its own."""
    found, before = [], object()
    number = -1
    for word in words:
        number += word is None or word != before
        before = word
        found.append(number)
    return torch.tensor(found, dtype=torch.int32)


def open_tokenizer(tokenizer: str) -> Any:
    """The ``tokenizers.Tokenizer`` in a file; ValueError if it is none."""
    tokenizers = import_extra("tokenizers", by="a tokenizer file", extra="hf")
    if not Path(tokenizer).is_file():
        raise ValueError(f"data.tokenizer: {tokenizer!r} is not a file; give a tokenizer.json.")
    try:
        return tokenizers.Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(
            f"data.tokenizer: {tokenizer!r} is not a tokenizers file: {error}; give a"
            " tokenizer.json."
        ) from None


def _hash_documents(documents: list[tuple[str, bytes]], tokenizer: str | None) -> str:
    total = hashlib.sha256()
    for name, data in documents:
        total.update(f"{name}\0{len(data)}\0".encode())
        total.update(data)
    if tokenizer is not None:
        total.update(Path(tokenizer).read_bytes())
    return total.hexdigest()
