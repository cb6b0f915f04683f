"""GGUF headers, byte by byte, right or wrong; the tests compare them with what ``gguf`` writes."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_FORMS = {U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def typed(value: Any) -> bytes:
    """A value with its type in front, the type as converters choose it."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str):
            inner, body = STRING, b"".join(map(text, value))
        else:
            inner = _type(value[0]) if value else U32
            body = struct.pack(f"<{len(value)}{_FORMS[inner]}", *value)
        return struct.pack("<IIQ", ARRAY, inner, len(value)) + body
    kind = _type(value)
    return struct.pack("<I" + _FORMS[kind], kind, value)


def _type(value: Any) -> int:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return F32
    return U32 if 0 <= value < 2**32 else U64


def gguf_bytes(
    pairs: Mapping[str, Any],
    tensors: Mapping[str, Sequence[float]] | None = None,
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A whole file whose tensors are float32."""
    tensors = tensors or {}
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    head += b"".join(text(key) + typed(value) for key, value in pairs.items())
    data = b""
    for name, values in tensors.items():
        head += text(name) + struct.pack("<IQIQ", 1, len(values), 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data


def metadata(architecture: str, **keys: Any) -> dict[str, Any]:
    """Keys of a model; dots are written as double underscores."""
    usual = {
        "block_count": 4,
        "context_length": 8192,
        "embedding_length": 256,
        "attention__head_count": 4,
        "attention__head_count_kv": 2,
    }
    own = {**usual, **keys}
    named = {f"{architecture}.{k.replace('__', '.')}": v for k, v in own.items() if v is not None}
    return {"general.architecture": architecture, **named}
