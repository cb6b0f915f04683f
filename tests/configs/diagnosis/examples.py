"""Examples of the rules as files: a config.json, and the tensors stored beside it."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from whorl.configs import diagnosis
from whorl.configs.diagnosis.engine import RuleExample

__all__ = ["diagnose_example", "write_config", "write_safetensors", "write_trained"]

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPES |= {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}


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


def write_trained(path: Path, case: RuleExample) -> None:
    """Weights of q and k whose pairs agree in the layout of the case, as training makes them."""
    width, heads = case.config["hidden_size"], case.config["num_attention_heads"]
    source = torch.Generator().manual_seed(0)
    weights = {}
    for layer in range(case.config["num_hidden_layers"]):
        common = torch.randn(width // 2, width, generator=source)  # q's first, k's second of a pair
        for name, place in (("q_proj", 0), ("k_proj", 1)):
            pairs = torch.randn(width // 2, 2, width, generator=source) * 0.3
            pairs[:, place] += common
            pairs = pairs.unflatten(0, (heads, -1))  # [H, P, 2, E]
            layout = case.trained if isinstance(case.trained, str) else case.trained[layer]  # type: ignore[index]
            rows = pairs if layout == "interleaved" else pairs.transpose(1, 2)
            weights[f"model.layers.{layer}.self_attn.{name}.weight"] = rows.reshape(width, width)
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({name: w.contiguous() for name, w in weights.items()}, path)


def write_config(folder: Path, config: Mapping[str, object]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def diagnose_example(
    case: RuleExample, folder: Path, *, ignore: Sequence[str] = ()
) -> diagnosis.ConfigDiagnosis:
    """What the doctor finds in an example, through files where it has tensors."""
    if case.trained is not None:
        write_config(folder, case.config)
        write_trained(folder / "model.safetensors", case)
        return diagnosis.diagnose(folder, length=case.length, ignore=ignore)
    if not case.stored:
        return diagnosis.diagnose(case.config, length=case.length, ignore=ignore)
    write_config(folder, case.config)
    tensors = {n: t for n, t in case.stored.items() if t[0] not in ("pickle", "broken")}
    for name in case.stored.keys() - tensors.keys():
        (folder / name).write_bytes(b"\x80\x04.")
    if tensors:
        write_safetensors(folder / "model.safetensors", tensors)
    return diagnosis.diagnose(folder, length=case.length, ignore=ignore)
