"""What the kernel tests share: inputs, the float64 oracle, and how near to it is near enough."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from whorl.kernels import native, reference
from whorl.kernels.native import RotatedChannels
from whorl.kernels.row_table import Table, TableRows

LAYOUTS = ("half", "interleaved")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ISAS = [name for name in ("scalar", "avx2") if name in ("scalar", native.get_best_isa())]

layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**31)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers that are exact in ``dtype``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def compute_angles(length: int, pairs: int, first: int = 0) -> Tensor:
    """float64 angles [T, P] of positions first .. first + length - 1."""
    positions = torch.arange(first, first + length, dtype=torch.float64)
    return positions[:, None] * reference.compute_inv_freq(2 * pairs)


def table_for(x: Tensor, angles: Tensor) -> Tensor:
    """cos and sin in the dtype that the kernel wants for ``x``."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return reference.compute_table(angles).to(dtype)


def rotate_by_reference(
    x: Tensor, table: Tensor, band: RotatedChannels, transpose: bool = False
) -> Tensor:
    return reference.rotate(
        x,
        table,
        layout=band.layout,
        out_layout=band.out_layout,
        start=band.start,
        transpose=transpose,
    )


def by_native(
    x: Tensor, table: Tensor, band: RotatedChannels, transpose: bool = False, isa: str = "auto"
) -> Tensor:
    """The C kernel, into memory full of NaN."""
    out = torch.full_like(x, torch.nan)
    done = native.rotate([x], [out], [TableRows(Table(table))], band, transpose, native.ISAS[isa])
    assert done is not None
    return done[0]


def in_low_precision(x: Tensor, angles: Tensor, layout: str) -> Tensor:
    """The complex form in float32, rounded to the dtype of x: shares no code with the kernel."""
    a, b = reference.split_pairs(x.float(), layout)
    rotated = torch.complex(a, b) * torch.complex(angles.cos().float(), angles.sin().float())
    return reference.merge_pairs(rotated.real, rotated.imag, layout).to(x.dtype)


def assert_near(got: Tensor, exact: Tensor, independent: Tensor) -> None:
    """At most twice as far from ``exact`` as an independent computation in the same dtype is."""
    assert got.dtype == independent.dtype
    assert exact.dtype == torch.float64
    bound = 2 * (independent.double() - exact).abs().max()
    error = (got.double() - exact).abs().max()
    assert error <= bound, f"off by {error:.3g}, allowed {bound:.3g}"


def assert_same_bits(got: Tensor, want: Tensor) -> None:
    """Equal in shape, dtype and every bit, the sign of zero included."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.element_size()]
    different = got.contiguous().view(integers) != want.contiguous().view(integers)
    assert not different.any(), f"{int(different.sum())} of {different.numel()} elements differ"
