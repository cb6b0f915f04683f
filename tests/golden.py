"""Results of the whole library in one small file, to see whether a change of the code moved any.

``scripts/golden`` runs it. Only names that users see are called, so that files may move and private
names may change. Tensors are kept as a few weighted sums and compared with a tolerance, so that the
file serves on every machine; JSON documents are kept as hashes of their numbers, ids and places.
"""

import contextlib
import hashlib
import inspect
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import whorl
from whorl.cli import main as run_whorl

from .configs.census import ROTARY
from .configs.variants import variants
from .conformance.test_suite import SCALINGS
from .presets import KEPT_PRESETS

__all__ = ["collect", "compare_documents", "hash_document", "main", "sketch"]

FILE = Path(__file__).parent / "golden.json"
B, H, G, T, D = 2, 4, 2, 37, 16
_TOLERANCE = 2e-5  # float32 sums of some thousand numbers on another machine
#: Those of `whorl plot` that need no trained model and show no times of this machine.
CHARTS = (
    *("frequencies", "wavelengths", "angles", "circle", "scores", "decay", "bases", "aliasing"),
    *("precision", "scalings", "attention-scale", "similarity", "map", "bias", "terms"),
    *("permutation", "entropy"),
)
Sections = dict[str, dict[str, Any]]


def make_tensor(*shape: int, start: int = 0) -> Tensor:
    """Numbers in -1 .. 1 that look random and are the same everywhere."""
    count = torch.arange(start, start + math.prod(shape), dtype=torch.float64)
    return torch.sin(count * count * 0.37 + count).float().view(shape)


def sketch(x: Tensor) -> list[float]:
    """Four weighted means of a tensor: any number that moves, moves them."""
    flat = x.detach().double().flatten()
    index = torch.arange(flat.numel(), dtype=torch.float64)
    weights = [torch.cos(index * rate + rate) for rate in (0.1, 0.73, 1.9, 2.7)]
    return [float(f"{float((flat * w).mean()):.9g}") for w in weights]


def hash_document(document: Any) -> str:
    """Hash of a JSON document without its wording: strings that have a blank in them."""

    def reduce(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reduce(inner) for key, inner in sorted(value.items())}
        if isinstance(value, list):
            return [reduce(inner) for inner in value]
        if isinstance(value, float):
            return f"{value:.7g}"
        return "words" if isinstance(value, str) and " " in value else value

    return hashlib.sha256(json.dumps(reduce(document)).encode()).hexdigest()[:12]


def find_class(name: str) -> Any:
    """The public class of a registered name: ``alibi`` is ``ALiBi``, ``t5`` is ``T5Bias``."""
    plain = name.replace("_", "").replace("t5", "t5bias")
    return next(getattr(whorl, public) for public in whorl.__all__ if public.lower() == plain)


def build_encodings() -> dict[str, whorl.Encoding]:
    """One of every registered encoding, and RoPE with every scaling and option."""
    sizes: dict[str, Any] = {"num_heads": H, "head_dim": D, "dim": H * D, "max_length": 64}
    built: dict[str, whorl.Encoding] = {}
    for name in whorl.names():
        listed = inspect.signature(find_class(name)).parameters
        options = {key: sizes[key] for key, p in listed.items() if p.default is p.empty}
        built[name] = whorl.make(
            name, **options, **({"sections": (4, 2, 2)} if name == "mrope" else {})
        )
    built |= {f"rope {scaling!r}": whorl.RoPE(D, scaling=scaling) for scaling in SCALINGS}
    built["rope interleaved"] = whorl.RoPE(D, layout="interleaved")
    built["rope layouts"] = whorl.RoPE(D, layout="interleaved", out_layout="half")
    built["rope part"] = whorl.RoPE(D, rotary_dim=8, rotary_start=4, base=500.0)
    built["rope float32"] = whorl.RoPE(D, precision="float32")
    built["rope+alibi"] = whorl.RoPE(D) + whorl.ALiBi(H)
    for encoding in built.values():
        for number, weight in enumerate(encoding.parameters()):
            with torch.no_grad():
                weight.copy_(0.3 * make_tensor(*weight.shape, start=number))
    return built


def count_axes(encoding: whorl.Encoding) -> int:
    """Axes of the positions that an encoding takes; 0 for one that takes [T]."""
    if isinstance(encoding, whorl.MRoPE):
        return len(encoding.config.sections)
    return encoding.config.axes if isinstance(encoding, whorl.AxialRoPE) else 0


def make_positions(axes: int) -> Tensor:
    return torch.stack([3 * torch.arange(T) + axis for axis in range(axes)])  # [n, T]


def collect_rotations(encodings: dict[str, whorl.Encoding]) -> Iterator[tuple[str, Any]]:
    q, k = make_tensor(B, H, T, D), make_tensor(B, G, T, D, start=9)
    for name, encoding in encodings.items():
        if not hasattr(encoding, "rotate"):
            continue
        calls: dict[str, dict[str, Any]] = {
            "plain": {},
            "far": {"offset": 9_000},
            "rows": {"offset": torch.tensor([5, 70])},
        }
        if axes := count_axes(encoding):
            calls = {"axes": {"positions": make_positions(axes)}}
        for kind, options in calls.items():
            pair = encoding(q, k, **options)
            yield f"{name}, {kind}", [*sketch(pair[0]), *sketch(pair[1])]


def collect_attention(encodings: dict[str, whorl.Encoding]) -> Iterator[tuple[str, Any]]:
    q, k, v = (make_tensor(B, h, T, D, start=h + n) for n, h in enumerate((H, G, G)))
    padding = torch.ones(B, T, dtype=torch.bool)
    padding[0, :5] = False
    documents = (torch.arange(T) // 13).expand(B, T)
    calls: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "both ways": {"causal": False},
        "window": {"causal": True, "window": 7, "sinks": 2},
        "padding": {"causal": True, "mask": padding},
        "documents": {"causal": True, "documents": documents},
    }
    for name, encoding in encodings.items():
        axes = count_axes(encoding)
        places = {"positions": make_positions(axes)} if axes else {}
        for kind, options in calls.items():
            found = _try(whorl.attention, q, k, v, encoding, **options, **places)
            yield f"{name}, {kind}", found
        for kind in ("elu", "cosine"):
            yield f"{name}, {kind}", _try(_attend_linearly, q, k, v, encoding, kind)


def _attend_linearly(q: Tensor, k: Tensor, v: Tensor, encoding: Any, kind: Any) -> Tensor:
    return whorl.linear_attention(q, k, v, encoding=encoding, feature_map=kind, causal=True)


def _try(call: Callable[..., Tensor], *args: Any, **options: Any) -> Any:
    try:
        return sketch(call(*args, **options))
    except (ValueError, TypeError):
        return "refused"


def collect_readings() -> Iterator[tuple[str, Any]]:
    """Every family, every way of writing its config; a family's readings are hashed together."""
    for family in ROTARY:
        found = {}
        for way, config in variants(family):
            for parity in (None, "transformers"):
                document: Any = {"model_type": family, **config}
                try:
                    document = whorl.read_config(document, parity=parity).to_dict()
                except ValueError:
                    document = "refused"
                found[f"{way}, {parity}"] = hash_document(document)
        yield family, hash_document(found)


def collect_commands() -> Iterator[tuple[str, Any]]:
    """``inspect`` and ``doctor`` on every family in three ways of writing, and on the presets."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        for number, family in enumerate(ROTARY):
            ways = list(variants(family))
            for way, config in (ways[(number + step) % len(ways)] for step in (0, 17, 31)):
                path.write_text(json.dumps({"model_type": family, **config}))
                for command in ("inspect", "doctor"):
                    output = run_json([command, str(path), "--json"], folder)
                    yield f"{command} {family}, {way}", hash_document(output)
    for preset in KEPT_PRESETS:
        for words in (["doctor"], ["inspect"], ["inspect", "--extend", "yarn", "--factor", "4"]):
            output = run_json([words[0], preset, *words[1:], "--json"])
            yield f"{' '.join(words)} {preset}", hash_document(output)


def collect_charts() -> Iterator[tuple[str, Any]]:
    """The numbers and the drawing of every chart that needs no trained model."""
    with tempfile.TemporaryDirectory() as folder:
        for name in CHARTS:
            path = Path(folder) / "chart.json"
            yield f"{name}, numbers", hash_document(run_json(["plot", name, "--json"]))
            run_whorl(["plot", name, "--out", str(path)])
            yield f"{name}, drawing", hash_document(json.loads(path.read_text()))


def run_json(args: list[str], folder: str = "") -> Any:
    """What a command prints, as JSON and without the name of a temporary folder."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = run_whorl(args)
    text = output.getvalue().replace(folder or "\0", "")
    return {"code": code, "document": json.loads(text) if text else None}


def collect() -> Sections:
    """All results, section by section."""
    encodings = build_encodings()
    return {
        "rotations": dict(collect_rotations(encodings)),
        "attention": dict(collect_attention(encodings)),
        "readings": dict(collect_readings()),
        "commands": dict(collect_commands()),
        "charts": dict(collect_charts()),
    }


def compare_documents(kept: Sections, found: Sections) -> list[str]:
    """A line for each result that is new, gone or different."""
    lines = []
    for section in kept.keys() | found.keys():
        before, after = kept.get(section, {}), found.get(section, {})
        for key in before.keys() | after.keys():
            if key not in before or key not in after:
                lines.append(f"{section}: {key}: {'gone' if key in before else 'new'}")
            elif not _agree(before[key], after[key]):
                lines.append(f"{section}: {key}: {before[key]} became {after[key]}")
    return sorted(lines)


def _agree(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return all(math.isclose(x, y, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) for x, y in pairs)
    return bool(before == after)


def main(args: list[str]) -> int:
    """Compare with the kept results, or keep the ones found; 1 if they differ."""
    if args not in ([], ["--write"]):
        print("usage: scripts/golden [--write]", file=sys.stderr)
        return 2
    found = collect()
    if args:
        FILE.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        print(f"kept {sum(map(len, found.values()))} results in {FILE.name}")
        return 0
    lines = compare_documents(json.loads(FILE.read_text(encoding="utf-8")), found)
    print("\n".join([*lines, f"{len(lines)} of {sum(map(len, found.values()))} results differ"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
