"""What a checkpoint says about positions: stored frequencies, and the layout of its weights.

Frequencies are found by name in safetensors headers and read alone. The layout is judged on a few
layers of q and k, see ``whorl.checkpoints.detect``.

A file of pickles (.bin, .pt) is never opened: unpickling runs whatever code stands in it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from whorl.checkpoints.detect import Detection, detect_layers
from whorl.checkpoints.safetensors_file import Entry, open_regular, read_header, read_range
from whorl.checkpoints.sizes import Stated
from whorl.checkpoints.sources import layers_in
from whorl.configs.model import ConfigError
from whorl.kernels.ops import Layout

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
_MOST_LAYERS = 8


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


def open_weights(path: Path) -> Weights:
    """The frequencies in a safetensors file, or in all of a folder."""
    files = [path] if path.is_file() else sorted(path.iterdir())[:_MOST_FILES]
    good = [f for f in files if f.suffix == ".safetensors" and f.is_file()]
    pickles = [f.name for f in files if f.suffix in PICKLES and f.is_file()]
    found = [stored for file in good for stored in _stored(file)]
    shown = _detected(path) if good else None
    return Weights(
        tuple(stored for stored in found if stored.name.endswith(_NAMES)),
        tuple(f.name for f in good),
        tuple(pickles),
        shown.layout if shown else None,
        shown.confidence if shown else 0.0,
        shown.in_words() if shown and (shown.mixed or shown.crossed) else "",
        tuple(stored for stored in found if stored.name.endswith(_TABLES)),
    )


def _detected(path: Path) -> Detection | None:
    """What some layers show, or all if those differ; None where q and k are not found or plain."""
    try:
        layers = layers_in(path, (), Stated())
        found = detect_layers(layers, most=_MOST_LAYERS) if layers else None
        return detect_layers(layers) if found is not None and found.mixed else found
    except ValueError:
        return None


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
    try:
        header = read_header(path)
    except ValueError as error:
        raise ConfigError(f"doctor: {error}") from None
    wanted = [e for name, e in header.entries.items() if name.endswith((*_NAMES, *_TABLES))]
    if not wanted:
        return
    with open_regular(path) as file:
        for entry in wanted:
            values = _values(entry, file) if entry.name.endswith(_NAMES) else None
            yield Stored(entry.name, entry.dtype, path.name, values)


def _values(entry: Entry, file: IO[bytes]) -> tuple[float, ...] | None:
    count = math.prod(entry.shape)
    if entry.dtype not in _DTYPES or not 0 < count <= _MOST_VALUES:
        return None
    raw = bytearray(b"".join(read_range(file, entry.begin, entry.end)))
    values = torch.frombuffer(raw, dtype=_DTYPES[entry.dtype]).double()
    return tuple(values.tolist())
