"""Checkpoints that are written by hand, so that what is read was not written by the same code."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


def raw_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of any header, sound or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def save(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> Path:
    """Write tensors one after the other."""
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    data = bytearray()
    for name, tensor in tensors.items():
        flat = tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else None
        raw = b"" if flat is None else bytes(flat.tolist())
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[name]["data_offsets"] = offsets
        data += raw
    path.write_bytes(raw_file(header, bytes(data)))
    return path


def load(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file that is known to be sound."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype) if end > begin else None
        found[name] = torch.zeros(entry["shape"]) if flat is None else flat.view(entry["shape"])
    return found


def save_sharded(folder: Path, tensors: Mapping[str, Tensor], shards: int) -> Path:
    """Spread tensors over files with an index."""
    where: dict[str, str] = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        mine = {name: tensors[name] for name in list(tensors)[n::shards]}
        save(folder / file, mine)
        where |= dict.fromkeys(mine, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": where}))
    return index


def write_config(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values, indent=2))
    return path


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    source = torch.Generator().manual_seed(seed + 1009 * sum(shape))
    return torch.randn(shape, generator=source).to(dtype)


def llama(
    *, layers: int = 2, heads: int = 4, key_heads: int = 2, head_dim: int = 8, width: int = 16,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:  # fmt: skip
    """The tensors of a small Llama, untrained."""
    found = {"model.embed_tokens.weight": random(32, width, dtype=dtype)}
    for n in range(layers):
        rows = {"q": heads, "k": key_heads, "v": key_heads}
        for seed, (part, count) in enumerate(rows.items()):
            name = f"model.layers.{n}.self_attn.{part}_proj.weight"
            found[name] = random(count * head_dim, width, seed=10 * n + seed, dtype=dtype)
        found[f"model.layers.{n}.self_attn.o_proj.weight"] = random(width, heads * head_dim)
    return found


def llama_config(
    *, heads: int = 4, key_heads: int = 2, head_dim: int = 8, layers: int = 2, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": heads * head_dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        **more,
    }


def interleave(rows: Tensor, head_dim: int, width: int | None = None, start: int = 0) -> Tensor:
    """From half to interleaved, by a loop over the definition."""
    width = head_dim if width is None else width
    out = rows.clone()
    for head in range(len(rows) // head_dim):
        first = head * head_dim + start
        for i in range(width // 2):
            out[first + 2 * i] = rows[first + i]
            out[first + 2 * i + 1] = rows[first + i + width // 2]
    return out


def names_of(tensors: Mapping[str, Tensor], words: Sequence[str]) -> list[str]:
    return [name for name in tensors if any(word in name for word in words)]
