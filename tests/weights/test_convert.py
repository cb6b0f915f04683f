"""Conversion, tensor by tensor, against the definition written as a loop."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.weights import Stated, convert, parse_pattern
from whorl.weights.safetensors_file import CHUNK

from .made import (
    interleave,
    llama,
    llama_config,
    load,
    random,
    save,
    save_sharded,
    write_config,
)

Tensors = dict[str, Tensor]
ATTENTION = "model.layers.0.self_attn"


def made(folder: Path, tensors: Tensors, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save(folder / "model.safetensors", tensors, {"format": "pt"})
    write_config(folder, **config)
    return folder


def convert_one(
    tmp_path: Path, tensors: Tensors, config: dict[str, Any], **options: Any
) -> Tensors:
    """Convert to interleaved with --check and give what was written."""
    source = made(tmp_path / "in", tensors, **config)
    convert(source, tmp_path / "out", to="interleaved", check=True, **options)
    return load(tmp_path / "out" / "model.safetensors")


def expect(before: Tensors, after: Tensors, changed: dict[str, Tensor]) -> None:
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        want = changed.get(name, before[name])
        assert tensor.dtype == want.dtype
        assert torch.equal(tensor, want), name
    for name, tensor in changed.items():
        assert not torch.equal(before[name], tensor), f"{name} tests nothing"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_llama_with_grouped_queries(tmp_path: Path, dtype: torch.dtype) -> None:
    before = llama(dtype=dtype)
    after = convert_one(tmp_path, before, llama_config())
    moving = [name for name in before if "q_proj" in name or "k_proj" in name]
    expect(before, after, {name: interleave(before[name], 8) for name in moving})


def tensors_of(path: Path) -> bytes:
    """A file without its header."""
    raw = path.read_bytes()
    return raw[8 + int.from_bytes(raw[:8], "little") :]


def metadata_of(path: Path) -> dict[str, str]:
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    found: dict[str, str] = header.get("__metadata__", {})
    return found


def test_there_and_back_has_the_same_tensors(tmp_path: Path) -> None:
    source = made(tmp_path / "in", llama(), **llama_config())
    there = convert(source, tmp_path / "there", to="interleaved")
    assert len(there.tensors) == 4
    convert(tmp_path / "there", tmp_path / "back", to="half")
    names = ("there", "back")
    files = [tmp_path / n / "model.safetensors" for n in ("in", *names)]
    raw = [tensors_of(path) for path in files]
    assert raw[0] == raw[2] != raw[1]
    assert [metadata_of(path).get("rope_layout") for path in files] == [None, "interleaved", "half"]
    assert all(metadata_of(path)["format"] == "pt" for path in files)
    for path in files[1:]:
        assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0, "tensors stay aligned"
    configs = [json.loads((tmp_path / n / "config.json").read_text()) for n in ("in", *names)]
    assert configs[0] == configs[2]
    assert configs[1] == {**configs[0], "rope_traditional": True}


def test_biases_gains_and_odd_tensors(tmp_path: Path) -> None:
    before = llama(layers=1)
    more = {
        "q_proj.bias": (random(32), 8),
        "k_proj.bias": (random(16), 8),
        "q_norm.weight": (random(8), 8),  # one gain for all heads: Qwen3
        "k_norm.weight": (random(16), 8),  # all heads together: OLMo 2
    }
    before |= {f"{ATTENTION}.{name}": tensor for name, (tensor, _) in more.items()}
    before[f"{ATTENTION}.v_proj.bias"] = random(16)
    before[f"{ATTENTION}.rotary_emb.inv_freq"] = random(4)
    before["none"] = torch.zeros(0, 3)
    after = convert_one(tmp_path, before, llama_config(layers=1))
    names = [f"{ATTENTION}.{n}" for n in (*more, "q_proj.weight", "k_proj.weight")]
    expect(before, after, {name: interleave(before[name], 8) for name in names})


def test_gains_by_head(tmp_path: Path) -> None:
    """Cohere keeps them as [heads, channels]; its own layout is interleaved."""
    before = llama(layers=1) | {f"{ATTENTION}.q_norm.weight": random(4, 8)}
    config = llama_config(layers=1) | {"model_type": "cohere", "use_qk_norm": True}
    source = made(tmp_path / "in", before, **config)
    convert(source, tmp_path / "out", to="half", check=True)
    after = load(tmp_path / "out" / "model.safetensors")
    name = f"{ATTENTION}.q_norm.weight"
    back = interleave(after[name].flatten(), 8).view(4, 8)
    assert torch.equal(back, before[name])
    assert not torch.equal(after[name], before[name])
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["rope_traditional"] is False


@pytest.mark.parametrize(
    ("more", "width", "start"),
    [({"partial_rotary_factor": 0.5}, 4, 0), ({"partial_rotary_factor": 0.75}, 6, 0)],
)
def test_partial_rotation(tmp_path: Path, more: dict[str, Any], width: int, start: int) -> None:
    before = llama(layers=1)
    config = llama_config(layers=1) | {"model_type": "phi", **more}
    after = convert_one(tmp_path, before, config)
    names = [f"{ATTENTION}.{p}_proj.weight" for p in "qk"]
    expect(before, after, {name: interleave(before[name], 8, width, start) for name in names})


def test_without_a_config_sizes_are_stated(tmp_path: Path) -> None:
    before = llama(layers=1)
    source = save(tmp_path / "weights.safetensors", before)
    with pytest.raises(ValueError, match=r"how wide a head is; pass stated=Stated\(head_dim"):
        convert(source, tmp_path / "out", to="interleaved")
    stated = Stated(head_dim=8, rotary_dim=4, rotary_start=2)
    done = convert(source, tmp_path / "out", to="interleaved", stated=stated, check=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["weights.safetensors"]
    assert done.check is not None
    assert done.check.heads == 2
    after = load(tmp_path / "out" / "weights.safetensors")
    names = [f"{ATTENTION}.{p}_proj.weight" for p in "qk"]
    expect(before, after, {name: interleave(before[name], 8, 4, 2) for name in names})


def test_latent_attention(tmp_path: Path) -> None:
    """Rotated channels last; k has them once, behind what the values are made of."""
    before = {
        f"{ATTENTION}.q_a_proj.weight": random(12, 16),
        f"{ATTENTION}.q_b_proj.weight": random(4 * 14, 12),
        f"{ATTENTION}.kv_a_proj_with_mqa.weight": random(10 + 8, 16),
        f"{ATTENTION}.kv_b_proj.weight": random(64, 10),
    }
    sizes = {"qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "kv_lora_rank": 10, "q_lora_rank": 12}
    config = llama_config(layers=1) | {"model_type": "deepseek_v3", "v_head_dim": 8, **sizes}
    source = made(tmp_path / "in", before, **config)
    convert(source, tmp_path / "out", to="interleaved", force=True, check=True)
    after = load(tmp_path / "out" / "model.safetensors")
    q, k = f"{ATTENTION}.q_b_proj.weight", f"{ATTENTION}.kv_a_proj_with_mqa.weight"
    changed = {q: interleave(before[q], 14, 8, 6), k: interleave(before[k], 18, 8, 10)}
    expect(before, after, changed)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["rope_interleave"] is True
    assert "rope_traditional" not in written


def test_lora_factors(tmp_path: Path) -> None:
    """B moves, A does not; MLX keeps both transposed."""
    name = "base_model.model.model.layers.0.self_attn"
    before = {
        f"{name}.q_proj.lora_A.weight": random(3, 16),
        f"{name}.q_proj.lora_B.weight": random(32, 3),
        f"{name}.k_proj.lora_a": random(16, 3),
        f"{name}.k_proj.lora_b": random(3, 16),
        f"{name}.k_proj.lora_magnitude_vector": random(16),
    }
    source = save(tmp_path / "adapter_model.safetensors", before)
    convert(source, tmp_path / "out", to="interleaved", stated=Stated(head_dim=8), check=True)
    after = load(tmp_path / "out" / "adapter_model.safetensors")
    moved = [f"{name}.q_proj.lora_B.weight", f"{name}.k_proj.lora_magnitude_vector"]
    changed = {one: interleave(before[one], 8) for one in moved}
    columns = f"{name}.k_proj.lora_b"
    expect(before, after, {**changed, columns: interleave(before[columns].T, 8).T})


def test_a_merged_adapter_is_a_converted_sum(tmp_path: Path) -> None:
    """(W + B A) converted is W converted plus B converted times A."""
    name = "model.layers.0.self_attn.q_proj"
    a, b, w = random(3, 16), random(32, 3), random(32, 16)
    before = {f"{name}.lora_B.weight": b, f"{name}.weight": w}
    before["model.layers.0.self_attn.k_proj.weight"] = random(32, 16)
    source = save(tmp_path / "x.safetensors", before)
    convert(source, tmp_path / "out", to="interleaved", stated=Stated(head_dim=8))
    after = load(tmp_path / "out" / "x.safetensors")
    merged = after[f"{name}.weight"] + after[f"{name}.lora_B.weight"] @ a
    assert torch.equal(merged, interleave(w + b @ a, 8))


HEADS, KEYS, D, E = 8, 2, 8, 16


def _concatenated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat((q, k, v)).flatten(0, 1)


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    groups = q.unflatten(0, (len(k), -1))  # [G, H/G, D, E], as Falcon and InternLM2 view it
    return torch.cat((groups, k[:, None], v[:, None]), dim=1).flatten(0, 2)


def _codegen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    blocks = (part.unflatten(0, (4, -1)) for part in (q, v, k))
    return torch.cat(tuple(blocks), dim=1).flatten(0, 2)


FUSED: dict[str, tuple[Any, int, str, dict[str, Any]]] = {
    "phi3": (_concatenated, KEYS, "model.layers.0.self_attn.qkv_proj", {}),
    "gpt_neox": (
        _grouped,
        HEADS,
        "gpt_neox.layers.0.attention.query_key_value",
        {"rotary_pct": 1.0},
    ),
    "falcon-7b": (_concatenated, 1, "transformer.h.0.self_attention.query_key_value", {}),
    "falcon-40b": (
        _grouped,
        KEYS,
        "transformer.h.0.self_attention.query_key_value",
        {"new_decoder_architecture": True, "num_kv_heads": KEYS},
    ),
    "falcon-rw": (
        _grouped,
        HEADS,
        "transformer.h.0.self_attention.query_key_value",
        {"multi_query": False},
    ),
    "internlm2": (_grouped, KEYS, "model.layers.0.attention.wqkv", {}),
    "codegen": (_codegen, HEADS, "transformer.h.0.attn.qkv_proj", {"rotary_dim": D}),
}


@pytest.mark.parametrize("family", FUSED)
def test_fused(tmp_path: Path, family: str) -> None:
    fuse, keys, name, more = FUSED[family]
    parts = [random(n, D, E, seed=n + s) for s, n in enumerate((HEADS, keys, keys))]
    biases = [random(n, D, 1, seed=90 + s) for s, n in enumerate((HEADS, keys, keys))]
    before = {f"{name}.weight": fuse(*parts), f"{name}.bias": fuse(*biases)[:, 0]}
    config = llama_config(heads=HEADS, key_heads=keys, head_dim=D, layers=1)
    if family.startswith("falcon"):
        del config["num_key_value_heads"]
    config |= {"model_type": family.split("-")[0], "partial_rotary_factor": 1.0, **more}
    source = made(tmp_path / "in", before, **config)
    # CodeGen is interleaved by itself.
    to = "half" if family == "codegen" else "interleaved"
    convert(source, tmp_path / "out", to=to, check=True)  # type: ignore[arg-type]
    after = load(tmp_path / "out" / "model.safetensors")
    if family == "codegen":
        before, after = after, before

    def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        flat = (interleave(x.flatten(0, 1), D).unflatten(0, (-1, D)) for x in (q, k))
        result: Tensor = fuse(*flat, v)
        return result

    if family != "codegen":
        want = {f"{name}.weight": turned(*parts), f"{name}.bias": turned(*biases)[:, 0]}
        expect(before, after, want)
    else:
        q, v, k = before[f"{name}.weight"].view(4, 3, HEADS // 4, D, E).unbind(1)
        again = turned(*(x.flatten(0, 1) for x in (q, k, v)))
        assert torch.equal(again, after[f"{name}.weight"])


def test_own_names(tmp_path: Path) -> None:
    before = {"net.0.alpha.w": random(32, 16), "net.0.beta.w": random(16, 16)}
    source = save(tmp_path / "x.safetensors", before)
    options: dict[str, Any] = {"to": "interleaved", "stated": Stated(head_dim=8)}
    with pytest.raises(ValueError, match="holds no q or k that the layout would change"):
        convert(source, tmp_path / "out", **options)
    patterns = [parse_pattern(text) for text in ("q=alpha", "k=beta")]
    done = convert(source, tmp_path / "out", patterns=patterns, check=True, **options)
    assert done.check is not None
    assert done.check.heads == 2
    after = load(tmp_path / "out" / "x.safetensors")
    expect(before, after, {name: interleave(before[name], 8) for name in before})


def test_own_fused_names(tmp_path: Path) -> None:
    parts = [random(n, D, E, seed=n) for n in (HEADS, KEYS, KEYS)]
    source = save(tmp_path / "x.safetensors", {"net.0.mix": _grouped(*parts)})
    stated = Stated(head_dim=D, num_heads=HEADS, num_kv_heads=KEYS)
    patterns = [parse_pattern("grouped=mix")]
    convert(source, tmp_path / "out", to="interleaved", stated=stated, patterns=patterns)
    q, k = (interleave(x.flatten(0, 1), D).unflatten(0, (-1, D)) for x in parts[:2])
    after = load(tmp_path / "out" / "x.safetensors")
    assert torch.equal(after["net.0.mix"], _grouped(q, k, parts[2]))


def test_shards_keep_their_places(tmp_path: Path) -> None:
    before = llama(layers=3)
    source = tmp_path / "in"
    source.mkdir()
    index = save_sharded(source, before, 3)
    write_config(source, **llama_config(layers=3))
    (source / "tokenizer.json").write_text("{}")
    (source / "pytorch_model.bin").write_bytes(b"old")
    (source / "consolidated.safetensors").write_bytes(b"other")
    (source / "original").mkdir()
    done = convert(source, tmp_path / "out", to="interleaved", check=True)
    assert done.left_out == ("consolidated.safetensors", "original", "pytorch_model.bin")
    after: Tensors = {}
    for path in sorted(source.glob("model-*")):
        assert list(load(tmp_path / "out" / path.name)) == list(load(path))
        after |= load(tmp_path / "out" / path.name)
    moving = [name for name in before if "q_proj" in name or "k_proj" in name]
    want = {name: interleave(before[name], 8) for name in moving}
    expect({n: before[n] for n in after}, after, want)
    assert (tmp_path / "out" / index.name).read_bytes() == index.read_bytes()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in source.iterdir()} - set(done.left_out)


def test_towers_are_left(tmp_path: Path) -> None:
    before = llama(layers=1) | {"vision_tower.layers.0.self_attn.q_proj.weight": random(20, 6)}
    after = convert_one(tmp_path, before, llama_config(layers=1))
    names = [f"{ATTENTION}.{p}_proj.weight" for p in "qk"]
    expect(before, after, {name: interleave(before[name], 8) for name in names})


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    source = made(tmp_path / "in", llama(), **llama_config())
    seen: list[tuple[int, int, str]] = []
    show = seen.append
    convert(
        source,
        tmp_path / "out",
        to="interleaved",
        check=True,
        progress=lambda done, total, label: show((done, total, label)),
    )
    assert seen[-1][0] == seen[-1][1] == 2 * len(tensors_of(source / "model.safetensors"))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {label for _, _, label in seen} == {"model.safetensors", "checking"}


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """80 MB through a few chunks: what is untouched, what moves, what the detector looks at."""
    q = torch.zeros(8 * 64, 16_384)  # 32 MB, a head 4 MB
    before = {f"{ATTENTION}.q_proj.weight": q, "big": torch.zeros(12 * 2**20)}
    before[f"{ATTENTION}.k_proj.weight"] = torch.zeros(64, 16_384)
    safe = pytest.importorskip("safetensors.torch")
    source = tmp_path / "x.safetensors"
    safe.save_file(before, source)
    tracemalloc.start()
    try:
        convert(source, tmp_path / "out", to="interleaved", stated=Stated(head_dim=64))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    sizes = [path.stat().st_size for path in (tmp_path / "out" / source.name, source)]
    assert 0 < sizes[0] - sizes[1] < 200, "the mark alone"
    assert peak <= 5 * CHUNK, f"{peak / 2**20:.0f} MB"
