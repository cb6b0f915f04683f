"""The detector on trained models of both layouts, on untrained ones, and on every kind of file."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.weights import Stated, convert, detect, parse_pattern

from .made import llama, llama_config, load, random, save, write_config

for package in ("safetensors", "tomli_w"):
    pytest.importorskip(package)

LAYOUTS = ("half", "interleaved")
D, HEADS = 32, 4


def write_words(folder: Path) -> str:
    """Text of made-up words, which can only be spelt by looking at the letters just before."""
    draw = Random(0)
    known = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(300)]
    folder.mkdir()
    for n in range(20):
        ranks = (min(int(draw.expovariate(0.02)), 299) for _ in range(4000))
        (folder / f"{n:02}.txt").write_text(" ".join(known[rank] for rank in ranks))
    return str(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Runs of ``whorl train`` in either layout: six seconds of processor time each."""
    from whorl.lab import (
        DataConfig,
        EvaluationConfig,
        ModelConfig,
        RunConfig,
        TrainingConfig,
        train,
        use_threads,
    )

    folder = tmp_path_factory.mktemp("trained")
    texts = write_words(folder / "texts")
    runs = {}
    for seed, layout in enumerate(LAYOUTS, 1):
        config = RunConfig(
            model=ModelConfig(
                encoding={"name": "rope", "layout": layout},
                layers=4,
                width=HEADS * D,
                heads=HEADS,
            ),
            data=DataConfig(files=(texts,)),
            training=TrainingConfig(
                length=24,
                batch=16,
                steps=100,
                warmup=10,
                optimizer="adamw",  # as nearly all published models
                learning_rate=0.003,
                embedding_learning_rate=0.003,
                weight_decay=0.1,
                seed=seed,
            ),
            evaluation=EvaluationConfig(multiples=(1.0,), windows=1),
        )
        with use_threads(1):
            runs[layout] = train(config, folder / layout).checkpoint_path
    return runs


def split(path: Path, *, keys: int = HEADS) -> dict[str, Tensor]:
    """The weights of a run under Llama's names."""
    found = {}
    for name, weight in load(path).items():
        if name.startswith("model.blocks.") and name.endswith("qkv.weight"):
            q, k, _ = weight.unflatten(0, (3 * HEADS, D)).chunk(3)
            prefix = f"model.layers.{name.split('.')[2]}.self_attn"
            found[f"{prefix}.q_proj.weight"] = q.flatten(0, 1)
            found[f"{prefix}.k_proj.weight"] = k[:keys].flatten(0, 1)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trained_models(trained: Mapping[str, Path], layout: str) -> None:
    """As they lie in the run: q, k and v in one tensor."""
    patterns = [parse_pattern("concatenated=^model.*qkv"), parse_pattern("leave=.")]
    found = detect(trained[layout], stated=Stated(D, HEADS, HEADS), patterns=patterns)
    assert found.layout == layout
    assert found.confidence >= 0.95
    assert len(found.layers) == 4
    other = LAYOUTS[1 - LAYOUTS.index(layout)]
    assert found.z[layout] > 3.5 > 2.5 > found.z[other]  # type: ignore[index]
    for layer in found.layers:
        assert layer.layout in (layout, None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_converted_models(trained: Mapping[str, Path], layout: str, tmp_path: Path) -> None:
    """What was found moves with the rows; a second conversion the same way is refused."""
    other: Any = LAYOUTS[1 - LAYOUTS.index(layout)]
    weights = split(trained[layout])
    source = save(tmp_path / "in.safetensors", weights)
    stated = Stated(head_dim=D)
    before = detect(source, stated=stated)
    with pytest.raises(ValueError, match=f"weights already have the {layout} layout"):
        convert(source, tmp_path / "no", to=layout, stated=stated)  # type: ignore[arg-type]
    assert not (tmp_path / "no").exists()
    convert(source, tmp_path / "out", to=other, stated=stated)
    after = detect(tmp_path / "out" / "in.safetensors", stated=stated)
    assert (before.layout, after.layout) == (layout, other)
    assert after.z[other] == pytest.approx(before.z[layout], rel=1e-3)  # type: ignore[index]
    convert(source, tmp_path / "forced", to=layout, stated=stated, force=True)  # type: ignore[arg-type]


def test_every_dtype_says_the_same(trained: Mapping[str, Path], tmp_path: Path) -> None:
    weights = split(trained["half"])
    z = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        path = save(tmp_path / "x.safetensors", {n: w.to(dtype) for n, w in weights.items()})
        z.append(detect(path, stated=Stated(head_dim=D)).z["half"])
    assert z[1:] == pytest.approx([z[0]] * 2, abs=0.3)


def test_untrained_weights(tmp_path: Path) -> None:
    """Can't tell, and convert goes by the config alone."""
    save(tmp_path / "model.safetensors", llama(layers=4, head_dim=32, width=64))
    write_config(tmp_path, **llama_config(layers=4, head_dim=32))
    found = detect(tmp_path)
    assert found.layout is None
    assert found.probabilities.neither > 0.4
    assert [layer.layout for layer in found.layers] == [None] * 4
    document = found.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["layers"][3]["layer"] == 3


def test_without_q_and_k(tmp_path: Path) -> None:
    path = save(tmp_path / "x.safetensors", {"a.weight": random(4, 4)})
    with pytest.raises(ValueError, match="holds no layer with the weights of both q and k"):
        detect(path, stated=Stated(head_dim=4))


def gguf_file(path: Path, tensors: Mapping[str, tuple[tuple[int, ...], int, bytes]]) -> Path:
    """A GGUF file of a llama, by hand: name -> shape, type, bytes."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {"block_count": 1, "embedding_length": 64, "attention.head_count": 4}
    numbers |= {"attention.head_count_kv": 2, "rope.dimension_count": 16, "context_length": 64}
    pairs = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    pairs += [text(f"llama.{key}") + struct.pack("<II", 4, n) for key, n in numbers.items()]
    infos, data = b"", b""
    for name, (shape, kind, raw) in tensors.items():
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        infos += text(name) + axes + struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def plain(weight: Tensor) -> tuple[tuple[int, ...], int, bytes]:
    kind = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}[weight.dtype]
    return tuple(weight.shape), kind, bytes(weight.flatten().view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gguf_equals_safetensors(tmp_path: Path, dtype: torch.dtype) -> None:
    q, k = random(64, 64, dtype=dtype), random(32, 64, seed=1, dtype=dtype)
    named = {"blk.0.attn_q.weight": plain(q), "blk.0.attn_k.weight": plain(k)}
    found = detect(gguf_file(tmp_path / "x.gguf", named))
    name = "model.layers.0.self_attn"
    same = {f"{name}.q_proj.weight": q, f"{name}.k_proj.weight": k}
    other = detect(save(tmp_path / "x.safetensors", same), stated=Stated(head_dim=16))
    assert found.z == other.z
    fused = plain(torch.cat((q, k, torch.zeros_like(k))))
    assert detect(gguf_file(tmp_path / "y.gguf", {"blk.0.attn_qkv.weight": fused})).z == found.z


def test_quantised_gguf(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    q, k = random(64, 64), random(32, 64, seed=1)
    exact = {"blk.0.attn_q.weight": plain(q), "blk.0.attn_k.weight": plain(k)}
    kind = gguf.GGMLQuantizationType.Q8_0
    rough = {
        name: (shape, int(kind), gguf.quantize(weight.numpy(), kind).tobytes())
        for (name, (shape, _, _)), weight in zip(exact.items(), (q, k), strict=True)
    }
    z = [detect(gguf_file(tmp_path / "x.gguf", one)).z["half"] for one in (exact, rough)]
    assert z[1] == pytest.approx(z[0], abs=0.2)


def test_gguf_that_is_wrong(tmp_path: Path) -> None:
    q, k = plain(random(64, 64)), plain(random(32, 64))
    sound = {"blk.0.attn_q.weight": q, "blk.0.attn_k.weight": k}
    path = gguf_file(tmp_path / "x.gguf", sound)
    raw = path.read_bytes()
    path.write_bytes(raw[:-100])
    with pytest.raises(ValueError, match="ends inside its weights"):
        detect(path)
    path.write_bytes(raw[:150])
    with pytest.raises(ValueError, match="ends inside"):
        detect(path)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"blk.0.attn_q.weight": ((60, 64), 0, q[2])}, "must be whole heads of 16 channels"),
        ({"blk.0.attn_q.weight": ((64, 32), 0, q[2])}, "with the same inputs"),
        ({"blk.0.attn_q.weight": ((64,), 0, q[2])}, "the shape"),
        ({"blk.0.attn_q.weight": ((64, 64), 999, q[2])}, "type 999"),
    ]
    for change, words in changes:
        gguf_file(path, {**sound, **change})
        with pytest.raises((ValueError, ModuleNotFoundError), match=words):
            detect(path)
    with pytest.raises(ValueError, match="attn_qkv has 64 rows, which are not 4 heads of q and 2"):
        detect(gguf_file(path, {"blk.0.attn_qkv.weight": q}))


@pytest.mark.parametrize("seed", range(3))
def test_changed_gguf_bytes(tmp_path: Path, seed: int) -> None:
    """Whatever the bytes are: an answer or a ValueError."""
    sound = {
        "blk.0.attn_q.weight": plain(random(64, 64)),
        "blk.0.attn_k.weight": plain(random(32, 64)),
    }
    path = gguf_file(tmp_path / "x.gguf", sound)
    raw, source = path.read_bytes(), torch.Generator().manual_seed(seed)
    for _ in range(60):
        changed = bytearray(raw)
        at = int(torch.randint(0, 620, (1,), generator=source))
        changed[at] = int(torch.randint(0, 256, (1,), generator=source))
        path.write_bytes(changed)
        try:
            detect(path)
        except (ValueError, ModuleNotFoundError) as error:
            assert str(error)  # noqa: PT017
