"""Checksums of the files of a run, so that a damaged file is refused.

They find accidents: a bad disk, an incomplete copy, an edit by hand. They do not protect against
somebody who computes new checksums too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl import __version__

from . import files

__all__ = [
    "FORMAT",
    "add_checksum",
    "check_document",
    "check_format",
    "check_lines",
    "compute_checksum",
    "compute_tensor_checksum",
    "read_checked",
    "write_checked",
]

#: Format of a run's folder; 1 was that of whorl 0.1.0, without checksums, 2 had AdamW alone.
FORMAT = 3
_CHANGED = "has been changed since it was written: its checksum does not fit"


def compute_checksum(*parts: object) -> str:
    """Checksum of values that JSON can hold: 16 bytes of BLAKE2b, in hexadecimal."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def compute_tensor_checksum(tensor: Tensor) -> str:
    """Checksum of a tensor's dtype, shape and bytes."""
    found = hashlib.blake2b(f"{tensor.dtype}{list(tensor.shape)}".encode(), digest_size=16)
    found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def add_checksum(document: Mapping[str, Any], previous: str = "") -> dict[str, Any]:
    """``document`` with a checksum of it and of ``previous``, the checksum before it."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    return {**content, "checksum": compute_checksum(previous, content)}


def check_document(document: Any, name: str) -> None:
    """Raise ValueError unless ``document`` has the right checksum."""
    if not isinstance(document, dict) or document != add_checksum(document):
        raise ValueError(f"{name} {_CHANGED}")


def write_checked(path: Path, document: Mapping[str, Any]) -> None:
    """Write ``document`` as JSON, with its checksum."""
    # The checksum is that of the document as it will be read: with null and string keys.
    files.write_json(path, add_checksum(json.loads(json.dumps(files.replace_non_finite(document)))))


def read_checked(path: Path) -> dict[str, Any]:
    """The document that ``write_checked`` wrote; ValueError if it was changed."""
    found = files.read_json(path)
    check_document(found, path.name)
    return dict(found)


def check_lines(lines: Sequence[Any], count: int, last: str, name: str) -> None:
    """Raise ValueError unless ``lines`` begin with steps 1 to ``count``, unchanged.

    The checksum of a line is that of itself and of the line before it; ``last`` is that of line
    ``count``. name: the file, for the error.
    """
    before = ""
    for step in range(1, count + 1):
        where = f"{name}, line {step},"
        if step > len(lines):
            raise ValueError(
                f"{name} does not hold the {count} steps of the checkpoint: line {step} is missing"
                " or cannot be read"
            )
        line = lines[step - 1]
        if not isinstance(line, dict) or line.get("step") != step:
            raise ValueError(f"{where} is not that of step {step}")
        if line != add_checksum(line, before):
            raise ValueError(f"{where} {_CHANGED}")
        before = line["checksum"]
    if before != last:
        raise ValueError(f"{name} holds the steps of another run than the checkpoint")


def check_format(found: object, name: str) -> None:
    """Raise ValueError unless ``found`` is the format that this version of whorl reads."""
    if found in (None, "1"):
        raise ValueError(
            f"{name} was written by whorl 0.1.0, which stored no checksums, so that damage could"
            " not be detected"
        )
    if str(found) != str(FORMAT):
        raise ValueError(
            f"{name} has format {str(found)[:20]!r}, and whorl {__version__} reads {FORMAT}; use"
            " the version that wrote it"
        )
