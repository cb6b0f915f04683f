"""Load a config from a file, folder, dict or object, and detect its dialect.

    a name       of a file, a folder, a preset, or a model in the local cache, see names
    a path       a file; its first bytes and its keys decide on the format, not its name
    a folder     config.json, params.json or one .gguf in it, in original/ or in a checkpoint
    a dict       from json.load, or the metadata of a GGUF file
    an object    a config or a model of transformers, by its to_dict()

Nothing is executed, unpickled or downloaded. A broken file gives a ConfigError in well under a
second: only regular files are opened, at most ``MOST_BYTES`` are read as text, and depth and number
of values are limited before parsing.
"""

import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from whorl._support.bounded_json import JsonError, JsonLimits, parse_json, read_within
from whorl._support.words import quote

from . import gguf_header
from ._folder import find_config
from .model import ConfigError, Kind
from .names import resolve_config

__all__ = ["Document", "load", "parse"]

MOST_BYTES = 8 * 2**20  # of text; a GGUF file may have any size
MOST_DEPTH = 64
MOST_VALUES = 200_000
_LIMITS = JsonLimits("config", MOST_BYTES, MOST_VALUES, MOST_DEPTH)

_WEIGHTS = {b"PK\x03\x04": "a zip archive, as torch.save writes", b"\x80\x02": "a pickle"}


@dataclass(frozen=True)
class Document:
    """A config as it was written; tensors: those of a GGUF file that change frequencies."""

    kind: Kind
    data: dict[str, Any]
    path: Path | None = None
    tensors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def load(x: Any) -> Document:
    """The document in a file, folder, mapping or config object; a Document is returned as it is.

    A text that no file has as its name may be that of a preset or of a model in the local cache.

    >>> load({"model_type": "llama"}).kind
    'transformers'
    """
    if isinstance(x, Document):
        return x
    x = resolve_config(x)
    if isinstance(x, (str, os.PathLike)):
        return _load_path(x)
    if isinstance(x, Mapping):
        return _copy_dict(x)
    if isinstance(x, type):
        raise ConfigError(f"{x.__name__} is a class; pass an instance, such as {x.__name__}().")
    to_dict = getattr(x, "to_dict", None) or getattr(getattr(x, "config", None), "to_dict", None)
    if not callable(to_dict):
        raise ConfigError(
            f"x must be a path, a dict or a config object of transformers; got {type(x).__name__}."
        )
    data = to_dict()
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{type(x).__name__}.to_dict() must give a dict; got {type(data).__name__}."
        )
    return _copy_dict(data)


def parse(text: str | bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``text``; NaN and Infinity are accepted here and refused by key later.

    where: what the text is called in errors.
    """
    try:
        data = parse_json(text, _LIMITS)
    except JsonError as error:
        raise ConfigError(f"{where} {error}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must hold a JSON object; got {type(data).__name__}.")
    return data


def _load_path(given: str | os.PathLike[str]) -> Document:
    if isinstance(given, str) and given.lstrip().startswith("{"):
        raise ConfigError("x must be a path, not JSON text; pass json.loads(text).")
    name = os.fspath(given)
    if not isinstance(name, str):
        raise ConfigError(f"a path must be a str; got {quote(name)}.")
    if not name:
        raise ConfigError("the name of the model is empty; pass a path, a preset or a name.")
    path = Path(name)
    with _explain_read_errors(name if len(name) < 300 else quote(name)):
        if path.is_dir():
            path = find_config(path)
        with _open_regular_file(path) as file:
            start = file.read(16)
            file.seek(0)
            if start.startswith(gguf_header.MAGIC):
                data, tensors = gguf_header.read_metadata(file, str(path))
                return Document("gguf", data, path, tensors)
            _refuse_weights(start, path)
            text = _read_text(file, path)
    data = parse(text, str(path))
    return Document(_detect_kind(data), data, path)


@contextmanager
def _explain_read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror or error}.") from None
    except (UnicodeError, ValueError) as error:  # not a possible file name
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{quote(name)} is not a path: {error}.") from None


@contextmanager
def _open_regular_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file; pipes and devices, which could block or never end, are refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError(f"{path} is not a regular file.")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb", buffering=2**20) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ConfigError(f"{path} is not a regular file.")
        yield file


def _refuse_weights(start: bytes, path: Path) -> None:
    for magic, words in _WEIGHTS.items():
        if start.startswith(magic):
            raise ConfigError(f"{path} is {words}; pass the config.json beside the weights.")
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < 2**40:
        raise ConfigError(f"{path} is a safetensors file; pass the config.json beside it.")


def _read_text(file: BinaryIO, path: Path) -> bytes:
    """The bytes of a file, after a check that it is not empty, too long or UTF-16."""
    try:
        raw = read_within(file, _LIMITS)
    except JsonError as error:
        raise ConfigError(
            f"{path} {error}; pass the config.json, not the weights or the tokenizer."
        ) from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path} is UTF-16; save it as UTF-8, which JSON requires.")
    if not raw.strip():
        raise ConfigError(f"{path} is empty.")
    return raw


def _copy_dict(data: Mapping[Any, Any]) -> Document:
    """A document with a copy of ``data`` as dicts and lists, limited in depth and size."""
    left = MOST_VALUES

    def copy(value: Any, name: str, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > MOST_DEPTH or left < 0:
            what = f"nested more than {MOST_DEPTH} deep" if left >= 0 else "too large"
            raise ConfigError(f"the config is {what}; real configs are not.")
        if isinstance(value, Mapping):
            inner = {_check_key(key, name): item for key, item in value.items()}
            return {key: copy(item, key, depth + 1) for key, item in inner.items()}
        if isinstance(value, (list, tuple)):
            return [copy(item, name, depth + 1) for item in value]
        if isinstance(value, int) and value.bit_length() > 996:
            raise ConfigError(f"{name} is an int of more than 300 digits.")
        if value is None or isinstance(value, (str, int, float)):
            return value
        if hasattr(value, "tolist") and math.prod(value.shape) <= left:  # arrays and tensors
            return copy(value.tolist(), name, depth)
        return quote(value)  # a dtype or an enum, as text

    plain = copy(data, "the config", 0)
    return Document(_detect_kind(plain), plain)


def _check_key(key: Any, name: str) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (int, float)):  # as json.dump writes them
        return str(key)
    raise ConfigError(f"the keys of {name} must be str; got {quote(key)}.")


def _detect_kind(data: dict[str, Any]) -> Kind:
    if "general.architecture" in data or "GGUF.version" in data:
        return "gguf"
    # Mistral writes model_type "transformer" into some of its params.json files.
    if data.get("model_type") in (None, "transformer") and "dim" in data and "n_layers" in data:
        metas = ("multiple_of", "ffn_dim_multiplier", "use_scaled_rope")
        return "mistral" if "hidden_dim" in data and not any(k in data for k in metas) else "meta"
    bits = data.get("quantization")
    packed = isinstance(bits, dict) and "group_size" in bits and "bits" in bits
    return "mlx" if packed or _has_key("rope_traditional", data) else "transformers"


def _has_key(name: str, data: Mapping[str, Any]) -> bool:
    """Whether a config or an object inside it has a key."""
    return name in data or any(_has_key(name, x) for x in data.values() if isinstance(x, Mapping))
