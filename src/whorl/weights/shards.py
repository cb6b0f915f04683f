"""A checkpoint on disk: one safetensors file, or several with an index that says which holds what.

    model.safetensors
    model-00001-of-00002.safetensors, ... and model.safetensors.index.json

The index is a file like any other and may lie: names of shards must be plain names of files beside
it, and must hold exactly the tensors that it says. A file may be a link to a regular file, as all
are in the cache of Hugging Face's hub; it is read there and nothing is written through it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl._support.bounded_json import JsonError, JsonLimits, parse_json, read_within
from whorl._support.words import quote

from .safetensors_file import FileHeader, TensorEntry, open_regular, read_header

__all__ = ["INDEX", "WeightFiles", "open_weight_files", "read_index"]

INDEX = ".safetensors.index.json"
_PREFERRED = ("model.safetensors", "adapter_model.safetensors", "adapters.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
#: 61 layers of 384 experts, with three matrices and their scales, are 140,000 names in 14 MB.
_LIMITS = JsonLimits("index", bytes=24 * 2**20, values=200_000, depth=4)
# A letter or digit first: no "..", no hidden file. No separator of any system, no stream or drive.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+=@~()-]{0,254}")


@dataclass(frozen=True)
class WeightFiles:
    """The headers of all files, whose tensors have different names; ``folder`` holds them."""

    path: Path
    folder: Path
    files: tuple[FileHeader, ...]
    index: Path | None = None

    @property
    def config(self) -> Path | None:
        """The config.json beside the weights, if there is one."""
        path = self.folder / "config.json"
        return path if path.is_file() else None

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(header.size - header.data_begin for header in self.files)

    def tensors(self) -> Iterator[tuple[FileHeader, TensorEntry]]:
        for header in self.files:
            for entry in header.entries.values():
                yield header, entry


def open_weight_files(path: str | Path) -> WeightFiles:
    """Read the headers of a .safetensors file, an index, or a folder that has one of them."""
    path = Path(path)
    found = _find_weights(path) if path.is_dir() else path
    if found.name.endswith(INDEX):
        return WeightFiles(path, found.parent, _read_shards(found), found)
    if found.suffix.lower() in _PICKLES:
        raise ValueError(
            f"{str(found)!r} looks like a pickle, which runs code when it is read; save the model"
            " as safetensors first."
        )
    if found.suffix.lower() == ".gguf":
        raise ValueError(
            f"{str(found)!r} is a GGUF file. Its layout follows from its architecture, which every"
            " reader goes by; convert the safetensors that it was made from."
        )
    return WeightFiles(path, found.parent, (read_header(found),))


def _find_weights(folder: Path) -> Path:
    """The index or the only safetensors file of a folder."""
    names = sorted(file.name for file in folder.iterdir())
    indexes = [name for name in names if name.endswith(INDEX)]
    singles = [name for name in names if name.endswith(".safetensors") and name[0] != "."]
    choices = indexes or [name for name in _PREFERRED if name in singles][:1] or singles
    if len(choices) == 1:
        return folder / choices[0]
    if choices:
        raise ValueError(
            f"{str(folder)!r} holds several safetensors files and no index:"
            f" {', '.join(choices[:4])}{' ...' if len(choices) > 4 else ''}; name one of them."
        )
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        raise ValueError(
            f"{str(folder)!r} holds {pickles[0]}, a pickle, which runs code when it is read; save"
            " the model as safetensors first."
        )
    raise ValueError(f"{str(folder)!r} holds no .safetensors file.")


def _read_shards(index: Path) -> tuple[FileHeader, ...]:
    """The files that an index names, checked against what it says of them."""
    where = read_index(index)
    headers = {name: read_header(index.parent / name) for name in dict.fromkeys(where.values())}
    by_file: dict[str, set[str]] = {}
    for tensor, name in where.items():
        by_file.setdefault(name, set()).add(tensor)
    for name, header in headers.items():
        said = by_file[name]
        if said != set(header.entries):
            wrong = min(said ^ set(header.entries))
            how = "has not" if wrong in said else "has, against it,"
            raise ValueError(
                f"{str(index)!r} does not fit its shards: {quote(name)} {how} the tensor"
                f" {quote(wrong)}; the files are of different models, or some were not downloaded"
                " whole."
            )
    return tuple(headers.values())


def read_index(index: Path) -> dict[str, str]:
    """The file that an index names for each tensor; the files themselves are not looked at."""
    try:
        with open_regular(index) as file:
            document: Any = parse_json(read_within(file, _LIMITS), _LIMITS)
    except JsonError as error:
        raise ValueError(f"{str(index)!r} {error}.") from None
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f"{str(index)!r} must hold a weight_map that names the shard of each tensor."
        )
    if not all(isinstance(name, str) for name in found.values()):
        raise ValueError(f"{str(index)!r}: weight_map must map names of tensors to names of files.")
    for name in dict.fromkeys(found.values()):
        if not _PLAIN_NAME.fullmatch(name) or not name.endswith(".safetensors"):
            raise ValueError(
                f"{str(index)!r} names the shard {quote(name)}; a shard must be the plain name of a"
                " .safetensors file beside the index, so that nothing else can be read or written."
            )
    return found
