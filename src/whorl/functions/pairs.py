"""The pairs of channels that rotate together, and the frequency, phase and size of each pair.

The matrix of a rotation of pairs has at most two numbers other than 0 in every row. Two rows with
the same two inputs are a pair, and the distance between its channels tells the layout:

    half           inputs i, i + R/2        interleaved    inputs 2 i, 2 i + 1

The same holds for outputs: some models read one layout and write the other.

Given the vectors (1, 0) and (0, 1), a pair returns its 2 x 2 block

    c1  -s1        first output channel  (a'): angle atan2(s1, c1), size hypot(c1, s1)
    s2   c2        second output channel (b'): angle atan2(s2, c2), size hypot(c2, s2)

The two channels are measured separately, because some mistakes make them differ. The zero in each
input vector keeps sin exact to the last bit, however small it is. So the frequency of a slow pair
is as precise as its sine at any position, and that of a fast pair becomes more precise with the
position: one weighted fit uses both. Angles are unwrapped from each position to the next, starting
at 0 and 1. Frequencies that differ by a multiple of 2 pi give the same results at all whole
positions; the smallest of them is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.types import Layout

from .probe import FunctionProbe

__all__ = [
    "FIRST_POSITIONS",
    "NoPairsError",
    "PairRotations",
    "Pairs",
    "compute_angles",
    "compute_difference",
    "find_pairs",
    "fit_rotations",
    "measure_blocks",
    "measure_matrices",
    "predict_blocks",
    "wrap_angle",
]

#: Entries smaller than this, relative to the largest of their row, are rounding.
_ROUNDING = 1e-10
#: Positions at which matrices and frequencies are measured; no context is shorter.
FIRST_POSITIONS = tuple(range(16))


class NoPairsError(Exception):
    """The matrices are no rotation of pairs; the message says why."""


@dataclass(frozen=True)
class Pairs:
    """Input channels (a, b) and output channels (a, b) of n pairs, each [n], in order of a.

    index: the number of each pair among all R/2 pairs; pairs that do not rotate are missing.
    """

    a_in: Tensor
    b_in: Tensor
    a_out: Tensor
    b_out: Tensor
    layout: Layout | None
    out_layout: Layout | None
    start: int
    width: int
    index: Tensor
    head_dim: int

    def __len__(self) -> int:
        return len(self.a_in)

    @property
    def moved_channels(self) -> str:
        """Which channels are read and which are written if these differ, else ""."""
        read, written = (
            sorted(torch.cat(ends).tolist())
            for ends in ((self.a_in, self.b_in), (self.a_out, self.b_out))
        )
        if read == written:
            return ""
        spans = [f"{channels[0]} to {channels[-1]}" for channels in (read, written)]
        return f"channels {spans[0]} are read and {spans[1]} written"

    def build_inputs(self) -> Tensor:
        """Vectors [2, D] that are (1, 0) and (0, 1) in every pair."""
        inputs = torch.zeros(2, self.head_dim, dtype=torch.float64)
        inputs[0, self.a_in] = 1
        inputs[1, self.b_in] = 1
        return inputs

    def select_blocks(self, out: Tensor) -> Tensor:
        """Blocks [T, n, 2, 2] in the results [T, 2, D] for these inputs."""
        return torch.stack((out[..., self.a_out], out[..., self.b_out]), dim=-1).permute(0, 2, 3, 1)

    def fill_gaps(self, values: Tensor) -> Tensor:
        """One value for each of all R/2 pairs, 0 for those that do not rotate."""
        whole = values.new_zeros(self.width // 2)
        whole[self.index] = values
        return whole


def measure_matrices(probe: FunctionProbe) -> Tensor:
    """Matrices of the function at positions 0 .. 15: float64 [16, D, D], rows are outputs."""
    basis = torch.eye(probe.head_dim, dtype=torch.float64)
    return probe.rotate_vectors(basis, FIRST_POSITIONS).transpose(1, 2)


def find_pairs(matrices: Tensor) -> Pairs | None:
    """Pairs in matrices [T, D, D], or None if no channels mix; raises NoPairsError otherwise."""
    strength = matrices.abs().amax(0)  # [D out, D in]
    head_dim = strength.shape[0]
    most = strength.amax(1)
    if not bool((most > 0).all()):
        lost = int((most == 0).nonzero()[0])
        raise NoPairsError(f"output channel {lost} is always 0")
    mixed = strength > _ROUNDING * most[:, None]
    counts = mixed.sum(1)
    if int(counts.max()) > 2:
        row = int(counts.argmax())
        raise NoPairsError(f"output channel {row} mixes {int(counts[row])} channels, not two")
    rows: dict[tuple[int, int], list[int]] = {}
    for row in range(head_dim):
        inputs = mixed[row].nonzero().flatten().tolist()
        if len(inputs) == 2:
            rows.setdefault((inputs[0], inputs[1]), []).append(row)
    for (a, b), outputs in rows.items():
        if len(outputs) != 2:
            raise NoPairsError(
                f"channels {a} and {b} make {len(outputs)} output channel(s)"
                f" ({', '.join(map(str, outputs))}); a pair makes two"
            )
    return _build_pairs(sorted((a, b, *outputs) for (a, b), outputs in rows.items()), head_dim)


def _build_pairs(found: list[tuple[int, ...]], head_dim: int) -> Pairs | None:
    """Pairs from rows (input a, input b, output a, output b), with their layouts."""
    if not found:
        return None
    a_in, b_in, a_out, b_out = torch.tensor(found).unbind(1)
    layout, start, width, index = _find_layout(a_in, b_in, head_dim)
    out_layout, out_start, out_width, out_index = _find_layout(a_out, b_out, head_dim)
    same = (start, width) == (out_start, out_width) and torch.equal(index, out_index)
    if layout is None or out_layout is None or not same:
        width, start, index = 2 * len(found), int(a_in[0]), torch.arange(len(found))
        if layout != out_layout or not torch.equal(a_in, a_out):
            out_layout = None
    return Pairs(a_in, b_in, a_out, b_out, layout, out_layout, start, width, index, head_dim)


def _find_layout(a: Tensor, b: Tensor, head_dim: int) -> tuple[Layout | None, int, int, Tensor]:
    """Layout, first channel, rotated width R, and the number of each pair."""
    apart, start = int(b[0] - a[0]), int(a[0])
    steps = a - start
    if not bool((b - a == apart).all()):
        return None, start, 2 * len(a), torch.arange(len(a))
    if apart == 1 and len(a) > 1 and bool((steps % 2 == 0).all()):
        index = steps // 2
        return "interleaved", start, 2 * int(index[-1] + 1), index
    if int(steps.max()) >= apart:  # two groups of pairs, as in axial rotations
        return None, start, 2 * len(a), torch.arange(len(a))
    # If the fastest pairs do not rotate, the first channel is before.
    start = min(start, head_dim - 2 * apart)
    return "half", start, 2 * apart, a - start


@dataclass(frozen=True)
class PairRotations:
    """Frequencies, phases and sizes of n pairs, each [n, 2]: first and second output channel.

    frequency: radians per position, signed. phase: the angle at position 0.
    size: the factor on the vector at position 0. growth: change of ln size per position.
    angle_misfit, size_misfit: the largest relative difference between a measured angle or size
    and what these numbers predict.
    """

    frequency: Tensor
    phase: Tensor
    size: Tensor
    growth: Tensor
    angle_misfit: float
    size_misfit: float


def measure_blocks(
    probe: FunctionProbe, pairs: Pairs, positions: Sequence[int], dtype: str | None = None
) -> Tensor:
    """The 2 x 2 block of every pair at every position: float64 [T, n, 2, 2], rows are outputs."""
    return pairs.select_blocks(probe.rotate_vectors(pairs.build_inputs(), positions, dtype))


def compute_angles(blocks: Tensor) -> Tensor:
    """Angles of both output channels of blocks [T, n, 2, 2], from -pi to pi: [T, n, 2]."""
    first = torch.atan2(-blocks[..., 0, 1], blocks[..., 0, 0])
    second = torch.atan2(blocks[..., 1, 0], blocks[..., 1, 1])
    return torch.stack((first, second), dim=-1)


def fit_rotations(blocks: Tensor, positions: Sequence[int]) -> PairRotations:
    """Rotations that fit blocks [T, n, 2, 2] at ascending positions, the first of which is 0."""
    angles = compute_angles(blocks)
    sizes = blocks.norm(dim=-1).clamp(min=1e-300)
    at = torch.tensor(positions, dtype=torch.float64)
    frequency, misfit = _fit_frequencies(angles, at)
    growth = _fit_growth(sizes.log(), at)
    size = (sizes.log() - growth * at[:, None, None]).mean(0).exp()
    model = size * (growth * at[:, None, None]).exp()
    return PairRotations(
        frequency=frequency,
        phase=angles[0],
        size=size,
        growth=growth,
        angle_misfit=misfit,
        size_misfit=float((sizes / model - 1).abs().max()),
    )


def _fit_growth(logs: Tensor, at: Tensor) -> Tensor:
    """Slope of the logarithms of sizes, or 0 where the rest is as large as what it explains.

    Sizes that vary around a constant have a slope too; it would predict huge sizes far away.
    """
    centred = (at - at.mean())[:, None, None]
    slope = (logs * centred).sum(0) / (centred**2).sum()
    left = logs - slope * at[:, None, None]
    variation = left.amax(0) - left.amin(0)
    return torch.where(slope.abs() * (at[-1] - at[0]) > 2 * variation, slope, 0.0)


def predict_blocks(rotations: PairRotations, positions: Sequence[int]) -> Tensor:
    """Blocks [T, n, 2, 2] of these rotations at some positions, in float64."""
    at = torch.tensor(positions, dtype=torch.float64)[:, None, None]
    angle = rotations.phase + rotations.frequency * at
    size = rotations.size * (rotations.growth * at).exp()
    cos, sin = angle.cos() * size, angle.sin() * size
    upper = torch.stack((cos[..., 0], -sin[..., 0]), dim=-1)
    lower = torch.stack((sin[..., 1], cos[..., 1]), dim=-1)
    return torch.stack((upper, lower), dim=-2)


def compute_difference(a: Tensor, b: Tensor) -> float:
    """Largest difference between two tensors; inf where only one of two numbers is not finite."""
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).abs().nan_to_num(nan=math.inf)
    return float(torch.where(same, 0.0, difference).max())


def wrap_angle(angle: Tensor) -> Tensor:
    """The same angle, from -pi to pi."""
    return angle - 2 * math.pi * torch.round(angle / (2 * math.pi))


def _fit_frequencies(angles: Tensor, at: Tensor) -> tuple[Tensor, float]:
    """Frequencies [n, 2] and the largest relative misfit of an angle.

    Weighted means of (angle - phase) / position; each angle is unwrapped by the mean so far.
    """
    phase = angles[0]
    frequency = wrap_angle(angles[1] - phase) / at[1]
    total, weights = torch.zeros_like(frequency), torch.zeros_like(frequency)
    unwrapped = []
    for p, angle in zip(at[1:], angles[1:], strict=True):
        whole = frequency * p
        whole = whole + wrap_angle(angle - phase - whole)
        # Rounding of cos and sin is relative to an angle below 1 and absolute above it.
        spread = (whole.abs().clamp(max=1) + phase.abs().clamp(max=1) + whole.abs() / 2) / p
        weight = torch.where(spread > 0, 1 / (spread + 1e-300) ** 2, 1.0)
        total, weights = total + weight * whole / p, weights + weight
        frequency = total / weights
        unwrapped.append(whole)
    ideal = frequency * at[1:, None, None]
    size = torch.stack(unwrapped).abs().clamp(min=1e-30) + phase.abs()
    misfit = (torch.stack(unwrapped) - ideal).abs() / size
    return frequency, float(misfit.max())
