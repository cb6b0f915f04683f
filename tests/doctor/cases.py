"""Examples of the rules as files: a config.json, and the tensors stored beside it."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch

from whorl import doctor
from whorl.doctor.engine import Case

__all__ = ["examine_case", "write_config", "write_safetensors"]

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[float, ...]]]) -> None:
    """A safetensors file, written by the format's definition."""
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        tensor = torch.tensor(values).to(_DTYPES[dtype])
        raw = bytes(tensor.view(torch.uint8).tolist())
        header[name] = {
            "dtype": dtype,
            "shape": [len(values)],
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_config(folder: Path, config: Mapping[str, object]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def examine_case(case: Case, folder: Path) -> doctor.Diagnosis:
    """What the doctor finds in an example, through files where it has tensors."""
    if not case.stored:
        return doctor.examine(case.config, length=case.length)
    write_config(folder, case.config)
    tensors = {n: t for n, t in case.stored.items() if t[0] != "pickle"}
    for name in case.stored.keys() - tensors.keys():
        (folder / name).write_bytes(b"\x80\x04.")
    if tensors:
        write_safetensors(folder / "model.safetensors", tensors)
    return doctor.examine(folder, length=case.length)
