"""Text to train on and text held out, as tokens: by default Python's own standard library.

Every machine with Python has it: over ten megabytes of long, real documents, with no download.
Bytes are tokens unless a ``tokenizers`` file is given. Whole files are held out, one in ten, chosen
by the hash of their names; of fewer than ten files, the last tenth of each.
"""

import hashlib
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.extras import import_extra

__all__ = ["Corpus", "load_corpus"]

# Other people's packages, tests (which some systems leave out) and one large generated table.
_NOT_SOURCE = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "pydoc_data"}
_HELD_OUT_ONE_IN = 10


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens: ``train`` [N], all documents in a row; ``held_out``, one by one, longest first.

    about: what it is, for people and for the check that a run goes on with the same text.
    """

    train: Tensor
    held_out: tuple[Tensor, ...]
    vocab: int
    about: dict[str, Any]

    def batch(self, count: int, length: int, source: torch.Generator) -> Tensor:
        """``count`` random windows of ``length`` tokens from the training text, [count, length]."""
        starts = torch.randint(len(self.train) - length + 1, (count,), generator=source)
        return self.train[starts.unsqueeze(1) + torch.arange(length)].long()

    def windows(self, count: int, length: int, apart: int) -> Tensor:
        """At most ``count`` windows of ``length`` held-out tokens, each within one document.

        Documents that are long enough take turns; the windows of one are spread evenly over it,
        at least ``apart`` tokens from each other, so that their last ``apart`` tokens differ.
        """
        fit = [text for text in self.held_out if len(text) >= length]
        if not fit:
            longest = max(map(len, self.held_out), default=0)
            raise ValueError(
                f"the longest evaluation needs {length} {self.about['unit']} in a row, and the"
                f" longest held-out document has {longest}; give longer files, or evaluate at"
                " smaller multiples of the training length."
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

    def frequencies_loss(self, tokens: Tensor) -> float:
        """Mean loss in nats of ``tokens`` by how often each comes in the training text."""
        counts = torch.bincount(self.train.int(), minlength=self.vocab).double() + 1
        return float(-(counts / counts.sum()).log()[tokens].mean())

    def check_length(self, length: int) -> None:
        """Raise unless training windows of ``length`` tokens can be cut."""
        if len(self.train) < length:
            raise ValueError(
                f"the training text has {len(self.train)} {self.about['unit']}, fewer than a window"
                f" of {length}; give more text, or train on shorter sequences."
            )


def load_corpus(files: Sequence[str] = (), tokenizer: str | None = None) -> Corpus:
    """Read files and folders, or the standard library, into a corpus."""
    if files:
        title = ", ".join(Path(name).name or name for name in files)
        documents, skipped = _read_files(files)
    else:
        title, skipped = f"Python {platform.python_version()} standard library", 0
        documents = _read_standard_library()
    documents, repeated = _drop_repeated(documents)
    if not documents:
        raise ValueError(f"no text in {title}: give files with something in them.")
    if tokenizer is None:
        unit, vocab = "bytes", 256
        texts = [
            (name, torch.frombuffer(bytearray(data), dtype=torch.uint8))
            for name, data in documents
            if data
        ]
    else:
        unit = "tokens"
        texts, vocab = _encode_documents(documents, tokenizer)
    train, held_out = _split_held_out(texts)
    if not train or not held_out:
        raise ValueError(
            f"{title} has too little text to train on one part and hold out another; give more."
        )
    about = {
        "title": title,
        "files": len(texts),
        "held_out_files": len(held_out),
        "skipped_files": skipped,
        "repeated_files": repeated,
        "tokens": sum(len(text) for _, text in texts),
        "unit": unit,
        "sha256": _hash_documents(documents, tokenizer),
    }
    longest_first = sorted(held_out, key=len, reverse=True)
    return Corpus(torch.cat(train), tuple(longest_first), vocab, about)


def _drop_repeated(documents: list[tuple[str, bytes]]) -> tuple[list[tuple[str, bytes]], int]:
    """Each text once: what is held out must not be trained on under another name."""
    kept = {hashlib.sha256(data).digest(): (name, data) for name, data in reversed(documents)}
    return list(reversed(kept.values())), len(documents) - len(kept)


def _split_held_out(texts: list[tuple[str, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    if len(texts) < _HELD_OUT_ONE_IN:
        cuts = [(text, len(text) - len(text) // _HELD_OUT_ONE_IN) for _, text in texts]
        held_out = [text[cut:] for text, cut in cuts if cut < len(text)]
        return [text[:cut] for text, cut in cuts if cut], held_out
    ranked = sorted(texts, key=lambda text: hashlib.sha256(text[0].encode()).digest())
    out = {name for name, _ in ranked[: len(ranked) // _HELD_OUT_ONE_IN]}
    kept = [text for name, text in texts if name not in out]
    return kept, [text for name, text in texts if name in out]


def _read_standard_library() -> list[tuple[str, bytes]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    found = [
        path for path in root.rglob("*.py") if not _NOT_SOURCE & set(path.relative_to(root).parts)
    ]
    if not found:
        raise ValueError(
            f"this Python keeps no source of its standard library in {str(root)!r}; give your own"
            " text: --data FILES."
        )
    return [(path.relative_to(root).as_posix(), path.read_bytes()) for path in sorted(found)]


def _read_files(files: Sequence[str]) -> tuple[list[tuple[str, bytes]], int]:
    """Named files as they are; from folders, all that is UTF-8 text. And how many were not."""
    documents: list[tuple[str, bytes]] = []
    skipped = 0
    for name in files:
        path = Path(name)
        if not path.is_dir():
            documents.append((path.name, _read_bytes(path)))
            continue
        inside = [p for p in sorted(path.rglob("*")) if p.is_file() and not _is_hidden(p, path)]
        if not inside:
            raise ValueError(f"--data: the folder {name!r} has no files; name one that has.")
        for one in inside:
            data = _read_bytes(one)
            if b"\0" in data or _find_invalid_utf8(data) is not None:
                skipped += 1
            else:
                documents.append((one.relative_to(path).as_posix(), data))
        if len(inside) == skipped:
            raise ValueError(f"--data: none of the {skipped} files in {name!r} is UTF-8 text.")
    if not any(data for _, data in documents):
        raise ValueError(f"--data: nothing in {', '.join(files)} but empty files; give some text.")
    return documents, skipped


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"--data: {str(path)!r} cannot be read: {error.strerror or error}."
        ) from None


def _find_invalid_utf8(data: bytes) -> int | None:
    """Where ``data`` stops being UTF-8, or None."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _encode_documents(
    documents: list[tuple[str, bytes]], tokenizer: str
) -> tuple[list[tuple[str, Tensor]], int]:
    tokenizers = import_extra("tokenizers", by="--tokenizer", extra="hf")
    if not Path(tokenizer).is_file():
        raise ValueError(f"--tokenizer: {tokenizer!r} is no file; give a tokenizer.json.")
    try:
        reader = tokenizers.Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"--tokenizer: {tokenizer!r} is no tokenizers file: {error}.") from None
    for name, data in documents:
        if (place := _find_invalid_utf8(data)) is not None:
            raise ValueError(
                f"--data: {name!r} is not UTF-8 (byte {place}), which a tokenizer needs; convert"
                " it, or leave out --tokenizer to train on bytes."
            )
    lines = reader.encode_batch([data.decode() for _, data in documents], add_special_tokens=False)
    pairs = [
        (name, torch.tensor(line.ids, dtype=torch.int32))
        for (name, _), line in zip(documents, lines, strict=True)
        if line.ids
    ]
    return pairs, int(reader.get_vocab_size())


def _hash_documents(documents: list[tuple[str, bytes]], tokenizer: str | None) -> str:
    total = hashlib.sha256()
    for name, data in documents:
        total.update(f"{name}\0{len(data)}\0".encode())
        total.update(data)
    if tokenizer is not None:
        total.update(Path(tokenizer).read_bytes())
    return total.hexdigest()
