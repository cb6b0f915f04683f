"""MRoPE: RoPE for text, images and videos; each pair rotates by one axis of the position (t, h, w).

    a' = a cos(p_x theta_i) - b sin(p_x theta_i)      theta_i = base ** (-2 i / R)
    b' = b cos(p_x theta_i) + a sin(p_x theta_i)      x = axis of pair i, among time, row, column

Text has the same position on every axis, and MRoPE is then RoPE, bit for bit. The axis of a pair
follows from ``sections``, the pairs of each axis, and their ``order``:

    chunked       t t t t h h h h h h w w w w w w    Qwen2-VL, GLM-4V, PaddleOCR-VL
    interleaved   t h w t h w t h w t h w t t        Qwen3-VL, Qwen3.5
    alternating   h w h w h w h w h w t t t t        ERNIE 4.5 VL, with axes=(1, 2, 0)

Wang et al. 2024, Qwen2-VL, https://arxiv.org/abs/2409.12191; interleaved: Huang et al. 2025,
Revisiting Multimodal Positional Encoding, https://arxiv.org/abs/2510.23095, and Bai et al. 2025,
Qwen3-VL, https://arxiv.org/abs/2511.21631. Positions of mixed sequences: ``whorl.positions``.

Different from transformers: sections that the order cannot give are refused; there, an interleaved
model takes what fits and never reads the first. Absent: HunYuan-VL's XD-RoPE, where the two
channels of a pair rotate by different axes; that is not a rotation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from whorl._support.options import PositiveNumber
from whorl._support.words import quote
from whorl.scaling import Ladder, Scaling
from whorl.scaling.base import compute_frequencies

from .base import Card, register, take_options
from .rotary.config import Lengths, RotaryConfig, resolve_scaling
from .rotary.rotary import Rotary

__all__ = ["MRoPE", "MRoPEConfig", "Order"]

Order = Literal["chunked", "interleaved", "alternating"]


@dataclass(frozen=True, kw_only=True)
class MRoPEConfig(RotaryConfig):
    """Options of MRoPE, checked on construction; ``MRoPE`` says what they mean."""

    base: PositiveNumber = 10_000.0
    sections: Sequence[int] = (16, 24, 24)  # this and ``axes`` are stored as tuples
    order: Order = "chunked"
    axes: Sequence[int] | None = None
    scaling: Scaling | None = None  # or what its ``to_dict`` gave
    lengths: Lengths = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_scaling(self, "MRoPE")
        object.__setattr__(self, "sections", _check_integers(self.sections, "sections"))
        _check_sections(self.sections, self.order, self.width)
        if self.axes is not None:
            object.__setattr__(self, "axes", _check_integers(self.axes, "axes"))
            _check_axes(self.axes, self.sections)

    @property
    def pair_axes(self) -> tuple[int, ...]:
        """The axis that each pair rotates by, fastest pair first."""
        axes = self._section_axes
        return tuple(axes[n] for n in _assign_sections(self.sections, self.order))

    @property
    def num_axes(self) -> int:
        return 1 + max(self._section_axes)

    @property
    def _section_axes(self) -> Sequence[int]:
        return self.axes or tuple(range(len(self.sections)))


@register("mrope")
class MRoPE(Rotary):
    """Multimodal rotary position embedding, of any sections, order and number of axes.

    Positions are [3, T] or [3, B, T], one row for each axis; [T] and None stand for text. Positions
    [B, T] of text become ``positions.expand(3, -1, -1)``. ``whorl.positions.from_token_types`` and
    ``from_segments`` build them, with the offset for decoding.

    Args:
        head_dim: channels of one head, D.
        sections: pairs of each section, R/2 in all; a model's mrope_section.
        order: "chunked", one section after the other; "interleaved", pair j to section
            j mod n while j < n sections[j mod n], the rest to the first; "alternating", all
            but the last alternately, then the last.
        axes: the axis of each section, (0, 1, 2) by default. ERNIE's sections are (h, w, t):
            (1, 2, 0). An axis may have several sections.
        base: theta_i = base ** (-2 i / R).
        layout: "half" pairs channel i with i + R/2 (Qwen); "interleaved" pairs 2i with 2i + 1
            (GLM-4V, ERNIE). It has nothing to do with ``order``.
        out_layout, rotary_dim, rotary_start, precision, table, table_length, impl: as for RoPE.
        scaling: a frequency scaling; one that follows the length takes the largest position on any
            axis; of each row or, with lengths="batch", of all.

    >>> import torch, whorl
    >>> from whorl.encodings import MRoPE
    >>> mrope = MRoPE(128, sections=(24, 20, 20), order="interleaved", base=5e6)  # Qwen3-VL
    >>> found = whorl.positions.from_segments([[3, (1, 2, 2), 2]])  # text, an image of 2 x 2, text
    >>> q, k = torch.randn(1, 32, 9, 128), torch.randn(1, 8, 9, 128)  # [B, H, T, D]
    >>> q_rotated, k_rotated = mrope(q, k, found.positions)
    >>> step, _ = mrope(q[:, :, :1], k[:, :, :1], offset=found.next_position)  # decode: position 7
    """

    config: MRoPEConfig

    card: ClassVar[Card] = Card(
        formula="pair i of q and k rotated by p_x theta_i, x the axis of pair i among t, h, w",
        paper="Wang et al. 2024",
        url="https://arxiv.org/abs/2409.12191",
        relative=True,
        longer="with scaling",
        linear_attention="yes",
        many_axes=True,
        memory="T R cos and sin",
        compute="B (H T + G S) D",
    )

    position_axes = 3

    @take_options(MRoPEConfig)
    def __init__(self) -> None:
        self._derive()

    def _prepare(self) -> None:
        config = self.config
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        self._ladder = Ladder(compute_frequencies(config.width, config.base, dtype), config.base)
        self._axes = torch.tensor(config.pair_axes, device="cpu")
        self.position_axes = config.num_axes


def _assign_sections(sections: Sequence[int], order: Order) -> list[int]:
    """The section of each pair."""
    n, pairs = len(sections), sum(sections)
    if order == "chunked":
        return [k for k, size in enumerate(sections) for _ in range(size)]
    if order == "interleaved":
        return [j % n if j < n * sections[j % n] else 0 for j in range(pairs)]
    return [j % (n - 1) if j < pairs - sections[-1] else n - 1 for j in range(pairs)]


def _check_integers(given: Any, option: str) -> tuple[int, ...]:
    listed = tuple(given) if isinstance(given, (tuple, list)) else None
    if listed is None or not all(type(n) is int and n >= 0 for n in listed):
        raise ValueError(
            f"MRoPE: {option} must be ints >= 0, one for each section; got {quote(given)}."
        )
    return listed


def _check_sections(sections: Sequence[int], order: Order, width: int) -> None:
    if len(sections) < 2:
        raise ValueError(
            f"MRoPE: sections must be at least 2, one for each axis; got {quote(sections)}."
            " For one axis use RoPE."
        )
    pairs, total = width // 2, sum(sections)
    if total != pairs:
        remedy = (
            "If these count channels, halve them; else pass the model's mrope_section."
            if total == width
            else f"Pass the model's mrope_section, or rotary_dim={2 * total}."
        )
        raise ValueError(
            f"MRoPE: sections must add up to R/2 = {pairs}, because every pair rotates by one axis;"
            f" got {quote(sections)}, {total} in all. {remedy}"
        )
    dealt = _assign_sections(sections, order)
    counts = tuple(dealt.count(k) for k in range(len(sections)))
    if counts != sections:
        rule = (
            "pairs go to the sections one by one, and the rest to the first"
            if order == "interleaved"
            else "pairs go one by one to all sections but the last"
        )
        raise ValueError(
            f"MRoPE: order={order!r} cannot give sections {sections}, because {rule}: it would give"
            f" {counts}. Pass those, or order='chunked'."
        )


def _check_axes(axes: Sequence[int], sections: Sequence[int]) -> None:
    if len(axes) != len(sections):
        raise ValueError(
            f"MRoPE: axes must name the axis of each of the {len(sections)} sections {sections};"
            f" got {axes}."
        )
    if set(axes) != set(range(max(axes) + 1)) or max(axes) < 1:
        raise ValueError(
            f"MRoPE: axes must use every axis from 0 on, at least 2 of them; got {axes}."
            " Leave none out, because positions have a row for each."
        )
