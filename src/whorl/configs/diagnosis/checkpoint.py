"""What a checkpoint says about positions: stored frequencies, and the layout of its weights.

Tensors of frequencies are found by their names in the headers of safetensors files, and only they
are read. The layout is detected from q and k of every layer, see ``whorl.weights.detect``.

A pickle file (.bin, .pt) is never opened: unpickling can run any code that is in it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
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

__all__ = [
    "PICKLES",
    "CheckpointSummary",
    "StoredTensor",
    "find_config_beside",
    "read_checkpoint",
    "refuse_pickle",
]

#: Suffixes of pickle files.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_FREQUENCY_NAMES = ("inv_freq", "rope.freqs", "rotary_emb.freqs")
#: Names of tables of cosines and sines; only their dtypes are read.
_TABLE_NAMES = ("cos_cached", "sin_cached", "cos_sin_cache", "freqs_cis")
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

#: The name of a file that cannot be read, and the error message.
_BrokenFile = tuple[str, str]


@dataclass(frozen=True)
class StoredTensor:
    """One stored tensor of frequencies, or one table of cosines or sines.

    values: None for a table, and where frequencies cannot have this dtype or size.
    """

    name: str
    dtype: str
    file: str
    values: tuple[float, ...] | None

    @property
    def is_finite(self) -> bool:
        """Whether there are values and all of them are finite."""
        return self.values is not None and all(map(math.isfinite, self.values))


@dataclass(frozen=True)
class CheckpointSummary:
    """What the weights of a model say about positions.

    frequencies, tables: the stored tensors.
    files_read, pickle_files: names of the files that were read, and of those that never are.
    layout, confidence: the layout of q and k, None where the weights do not show one.
    layout_conflict: which layers, or which of q and k, have which layout; empty if all have one.
    broken_files: files that cannot be read, with the error messages.
    """

    frequencies: tuple[StoredTensor, ...] = ()
    files_read: tuple[str, ...] = ()
    pickle_files: tuple[str, ...] = ()
    layout: Layout | None = None
    confidence: float = 0.0
    layout_conflict: str = ""
    tables: tuple[StoredTensor, ...] = ()
    broken_files: tuple[_BrokenFile, ...] = ()


def read_checkpoint(path: Path) -> CheckpointSummary:
    """What a safetensors file, or all those of a folder, say about positions."""
    files = [path] if path.is_file() else sorted(path.iterdir())[:_MOST_FILES]
    good = [f for f in files if f.suffix == ".safetensors" and f.is_file()]
    pickles = [f.name for f in files if f.suffix in PICKLES and f.is_file()]
    indexes = [f for f in files if f.name.endswith(INDEX) and f.is_file()]
    found: list[StoredTensor] = []
    broken: list[_BrokenFile] = []
    for file in good:
        with _collect_failure(file, broken):
            found += _read_stored_tensors(file)
    if broken and path.is_file() and find_config_beside(path) is None:
        raise ConfigError(f"doctor: {broken[0][1]}")  # there is nothing else to diagnose
    if not good:  # the weights may be elsewhere, but an index that is here must be sound
        for index in indexes:
            with _collect_failure(index, broken):
                read_index(index)
    elif indexes and not broken:
        with _collect_failure(indexes[0], broken):
            open_weight_files(path)
    shown = _detect_layouts(path) if good and not broken else None
    return CheckpointSummary(
        tuple(stored for stored in found if stored.name.endswith(_FREQUENCY_NAMES)),
        tuple(f.name for f in good),
        tuple(pickles),
        shown.layout if shown else None,
        shown.confidence if shown else 0.0,
        shown.in_words() if shown and (shown.mixed or shown.crossed) else "",
        tuple(stored for stored in found if stored.name.endswith(_TABLE_NAMES)),
        tuple(broken),
    )


@contextmanager
def _collect_failure(file: Path, broken: list[_BrokenFile]) -> Iterator[None]:
    """Add a file that cannot be read to ``broken``, with the error message."""
    try:
        yield
    except ValueError as error:
        broken.append((file.name, str(error)))


def _detect_layouts(path: Path) -> Detection | None:
    """The layouts of q and k; None where they are not found, or do not show a layout.

    Several files without an index are no error: they may be different models.
    """
    try:
        layers = find_layers(path, (), Stated())
        return detect_layers(layers) if layers else None
    except ValueError:
        return None


def find_config_beside(path: Path) -> Path | None:
    """The config.json in the folder of a safetensors file."""
    found = path.parent / "config.json"
    return found if found.is_file() else None


def refuse_pickle(path: Path) -> None:
    """Raise an error for a pickle file."""
    if path.suffix in PICKLES:
        raise ConfigError(
            f"doctor: {str(path)!r} is a pickle file, which can run any code when it is opened, so"
            " it is not opened; convert it to safetensors, or pass the config.json."
        )


def _read_stored_tensors(path: Path) -> Iterator[StoredTensor]:
    """The tensors of frequencies and the tables of one file."""
    header = read_header(path)
    wanted = [
        e for name, e in header.entries.items() if name.endswith((*_FREQUENCY_NAMES, *_TABLE_NAMES))
    ]
    if not wanted:
        return
    with open_regular(path) as file:
        for entry in wanted:
            values = _read_values(entry, file) if entry.name.endswith(_FREQUENCY_NAMES) else None
            yield StoredTensor(entry.name, entry.dtype, path.name, values)


def _read_values(entry: TensorEntry, file: IO[bytes]) -> tuple[float, ...] | None:
    """The values of a tensor, None where frequencies cannot have its dtype or size."""
    count = math.prod(entry.shape)
    if entry.dtype not in _DTYPES or not 0 < count <= _MOST_VALUES:
        return None
    raw = bytearray(b"".join(read_range(file, entry.begin, entry.end)))
    values = torch.frombuffer(raw, dtype=_DTYPES[entry.dtype]).double()
    return tuple(values.tolist())
