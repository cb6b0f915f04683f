"""Does an installed whorl work? Run by a Python that has it and torch, and nothing of this tree.

``python -I tests/smoke.py native`` ends with an error unless the C kernel is in use, gives the
results of PyTorch in one thread and in several, and shares torch's OpenMP runtime.
``reference`` in place of ``native`` expects an installation without the C kernel.
"""

import json
import sys
from pathlib import Path

import torch

import whorl
from whorl.configs import presets
from whorl.info import describe
from whorl.testing import check_encoding


def check_kernel(expected: str) -> None:
    """Fail unless ``auto`` is the expected kernel, and this is an installed package."""
    found = describe()
    assert found.auto == expected, f"auto is {found.auto}: {found.native.problem}"
    source = Path(__file__).resolve().parent.parent / "src"
    assert source not in Path(whorl.__file__).resolve().parents, "this is the source tree"
    if expected == "native":
        assert found.native.openmp == "shared with torch", found.native.openmp


def check_results(expected: str) -> None:
    """Fail unless rotations are those of the formula, whatever the number of threads."""
    x = torch.randn(2, 8, 512, 64, generator=torch.Generator().manual_seed(0))
    angles = torch.outer(torch.arange(512.0).double(), whorl.RoPE(64).frequencies().inv_freq)
    a, b = x.double().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    exact = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(whorl.RoPE(64, impl=expected).rotate(x))  # type: ignore[arg-type]
    assert torch.equal(*found), "results depend on the number of threads"
    assert float((found[0] - exact).abs().max()) < 1e-5, "a rotation differs from its formula"


def check_parts() -> None:
    """Fail unless encodings pass the conformance suite, and all presets can be read."""
    check_encoding(whorl.RoPE(16))
    check_encoding(whorl.ALiBi(4))
    for name in presets.names():
        assert whorl.read_config(presets.load(name)).groups, name


def main(expected: str) -> None:
    check_kernel(expected)
    check_results(expected)
    check_parts()
    used = describe().native
    facts = {"auto": expected, "instructions": used.instructions, "openmp": used.openmp}
    print(json.dumps({**facts, "torch": torch.__version__, "python": sys.version.split()[0]}))


if __name__ == "__main__":
    main(sys.argv[1])
