"""What a checkpoint says about positions: stored frequencies, and the layout of its weights.

Frequencies are found by name in safetensors headers and read alone. The layout is judged on q and k
of every layer, see ``whorl.weights.detect``.

A file of pickles (.bin, .pt) is never opened: unpickling runs whatever code stands in it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from whorl.configs.model import ConfigError
from whorl.types import Layout
from whorl.weights.detect import Detection, detect_layers
from whorl.weights.layers import find_layers
from whorl.weights.safetensors_file import TensorEntry, open_regular, read_header, read_range
from whorl.weights.shards import INDEX, open_weight_files, read_index
from whorl.weights.sizes import Stated

__all__ = ["PICKLES", "Stored", "Weights", "config_beside", "open_weights", "refuse_pickle"]

#: Endings of files that hold pickles.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_NAMES = ("inv_freq", "rope.freqs", "rotary_emb.freqs")
#: Tables of cosines and sines, of which only the type is looked at.
_TABLES = ("cos_cached", "sin_cached", "cos_sin_cache", "freqs_cis")
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_MOST_VALUES = 65_536
_MOST_FILES = 4096

#: The name of a file that cannot be read, and what its reader says.
_Broken = tuple[str, str]


@dataclass(frozen=True)
class Stored:
    """One tensor of frequencies; ``values`` is None where its type or size is none of theirs."""

    name: str
    dtype: str
    file: str
    values: tuple[float, ...] | None

    @property
    def finite(self) -> bool:
        return self.values is not None and all(map(math.isfinite, self.values))


@dataclass(frozen=True)
class Weights:
    """Frequencies stored with a model, the layout of q and k, and the files not opened."""

    stored: tuple[Stored, ...] = ()
    read: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    layout: Layout | None = None  # None where the weights do not show one
    confidence: float = 0.0
    different: str = ""  # where layers, or q and k, have different layouts: which have which
    tables: tuple[Stored, ...] = ()  # without values
    unreadable: tuple[tuple[str, str], ...] = ()  # names of files that are broken, and how


def open_weights(path: Path) -> Weights:
    """The frequencies in a safetensors file, or in all of a folder."""
    files = [path] if path.is_file() else sorted(path.iterdir())[:_MOST_FILES]
    good = [f for f in files if f.suffix == ".safetensors" and f.is_file()]
    pickles = [f.name for f in files if f.suffix in PICKLES and f.is_file()]
    found, unreadable = _all_stored(good)
    if unreadable and path.is_file() and config_beside(path) is None:
        raise ConfigError(f"doctor: {unreadable[0][1]}")  # there is nothing else to look at
    shown = None
    indexes = [f for f in files if f.name.endswith(INDEX) and f.is_file()]
    if good and not unreadable:
        shown, unreadable = _detected(path, [f.name for f in indexes])
    elif not good:  # the weights may be elsewhere, but an index that is here must be sound
        unreadable = _find_broken_indexes(indexes)
    return Weights(
        tuple(stored for stored in found if stored.name.endswith(_NAMES)),
        tuple(f.name for f in good),
        tuple(pickles),
        shown.layout if shown else None,
        shown.confidence if shown else 0.0,
        shown.in_words() if shown and (shown.mixed or shown.crossed) else "",
        tuple(stored for stored in found if stored.name.endswith(_TABLES)),
        tuple(unreadable),
    )


def _all_stored(files: Sequence[Path]) -> tuple[list[Stored], list[_Broken]]:
    """What files store of frequencies, and the files that cannot be read."""
    found: list[Stored] = []
    unreadable: list[_Broken] = []
    for file in files:
        try:
            found += _stored(file)
        except ValueError as error:
            unreadable.append((file.name, str(error)))
    return found, unreadable


def _detected(path: Path, indexes: Sequence[str]) -> tuple[Detection | None, list[_Broken]]:
    """What the layers show, None where q and k are not found or plain; and an index that is broken.

    Several files without an index are no fault: they may be different models.
    """
    if indexes:
        try:
            open_weight_files(path)
        except ValueError as error:
            return None, [(indexes[0], str(error))]
    try:
        layers = find_layers(path, (), Stated())
        return (detect_layers(layers) if layers else None), []
    except ValueError:
        return None, []


def _find_broken_indexes(indexes: Sequence[Path]) -> list[_Broken]:
    """Indexes that cannot be read, or name what no shard may be called, and why."""
    broken = []
    for index in indexes:
        try:
            read_index(index)
        except ValueError as error:
            broken.append((index.name, str(error)))
    return broken


def config_beside(path: Path) -> Path | None:
    """The config.json in the folder of a safetensors file."""
    found = path.parent / "config.json"
    return found if found.is_file() else None


def refuse_pickle(path: Path) -> None:
    """Raise for a file of pickles."""
    if path.suffix in PICKLES:
        raise ConfigError(
            f"doctor: {str(path)!r} holds pickles, which run code when they are opened, so it is"
            " not; convert it to safetensors, or pass the config.json."
        )


def _stored(path: Path) -> Iterator[Stored]:
    header = read_header(path)
    wanted = [e for name, e in header.entries.items() if name.endswith((*_NAMES, *_TABLES))]
    if not wanted:
        return
    with open_regular(path) as file:
        for entry in wanted:
            values = _values(entry, file) if entry.name.endswith(_NAMES) else None
            yield Stored(entry.name, entry.dtype, path.name, values)


def _values(entry: TensorEntry, file: IO[bytes]) -> tuple[float, ...] | None:
    count = math.prod(entry.shape)
    if entry.dtype not in _DTYPES or not 0 < count <= _MOST_VALUES:
        return None
    raw = bytearray(b"".join(read_range(file, entry.begin, entry.end)))
    values = torch.frombuffer(raw, dtype=_DTYPES[entry.dtype]).double()
    return tuple(values.tolist())
