"""RoPE: rotate each pair of query and key channels by position times the pair's frequency.

    a' = a cos(p theta_i) - b sin(p theta_i)      theta_i = base ** (-2 i / R), i = 0 .. R/2 - 1
    b' = b cos(p theta_i) + a sin(p theta_i)      pair 0 rotates fastest, 1 radian per position

The score of a rotated query and key then depends on the difference of their positions only.
Su et al. 2021, RoFormer, https://arxiv.org/abs/2104.09864. Kernel: csrc/rotate.c.

Different from most implementations: angles are formed in float64, results never depend on earlier
calls, other rows or other instances, and nothing is a buffer that a cast of the model could spoil.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl._support.options import PositiveNumber
from whorl.scaling import Frequencies, Ladder, Scaling
from whorl.scaling.base import compute_frequencies

from .base import Card, register, take_options
from .rotary.config import Lengths, RotaryConfig, check_inv_freq, resolve_scaling
from .rotary.rotary import Rotary

__all__ = ["RoPE", "RoPEConfig"]


@dataclass(frozen=True, kw_only=True)
class RoPEConfig(RotaryConfig):
    """Options of RoPE, checked on construction; ``RoPE`` says what they mean."""

    base: PositiveNumber = 10_000.0
    scaling: Scaling | None = None  # or what its ``to_dict`` gave
    lengths: Lengths = "rows"
    inv_freq: Sequence[float] | Tensor | None = None  # stored as a tuple
    direction: Literal["forward", "backward"] = "forward"
    frequencies: Literal["fixed", "trained"] = "fixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_scaling(self, "RoPE")
        if self.inv_freq is not None:
            values = check_inv_freq(self.inv_freq, self.width // 2, "RoPE")
            object.__setattr__(self, "inv_freq", values)


@register("rope")
class RoPE(Rotary):
    """Rotary position embedding, in any layout, width, precision and scaling.

    Args:
        head_dim: channels of one head, D.
        base: theta_i = base ** (-2 i / R).
        layout: "half" pairs channel i with i + R/2 (GPT-NeoX, Hugging Face); "interleaved" pairs
            2i with 2i + 1 (the paper, Meta's Llama, GPT-J).
        out_layout: layout of the result where it differs from that of the input.
        rotary_dim: rotated channels R, the whole head by default; the others pass through.
        rotary_start: first rotated channel, for models that rotate the tail of the head.
        scaling: a frequency scaling such as ``Linear``, ``NTK`` or ``DynamicNTK``.
        lengths: what a scaling that follows the length sees without context_length=: "rows", each
            row's own; "batch", the longest of all, as in transformers.
        inv_freq: frequencies of your own instead of those of ``base``, one for each pair.
        direction: "backward" rotates by minus the angle (nanochat): frequencies are then negative.
        frequencies: "trained" learns alpha in theta_i exp(alpha_i), starting from 0.
        precision: "float64" angles, exact; "float32" for bit parity with models trained that way.
        table: "hybrid" reads a table of ``table_length`` positions and builds the rest when
            asked, in the kernel and nearly as fast; "precomputed" refuses positions past the table
            (inside torch.compile, where values are not known, it builds them); "on_the_fly" keeps
            none. The results are the same.
        table_length: positions in the table; 4 R bytes each.
        impl: "native" (the C kernel), "reference" (plain PyTorch) or "auto".

    >>> import torch, whorl
    >>> rope = whorl.RoPE(128, base=500_000.0)
    >>> q, k = torch.randn(1, 32, 5, 128), torch.randn(1, 8, 5, 128)  # [B, H, T, D]
    >>> q_rotated, k_rotated = rope(q, k)  # prefill: positions 0 .. 4
    >>> q_step, k_step = rope(q[:, :, :1], k[:, :, :1], offset=5)  # decode: position 5
    >>> torch.equal(rope.rotate(q), q_rotated)
    True
    """

    config: RoPEConfig

    card: ClassVar[Card] = Card(
        formula="pair i of q and k rotated by p theta_i, theta_i = base^(-2i/R)",
        paper="Su et al. 2021",
        url="https://arxiv.org/abs/2104.09864",
        relative=True,
        longer="with scaling",
        linear_attention="yes",
        many_axes=False,
        memory="none in place",
        compute="B (H T + G S) D",
    )

    @take_options(RoPEConfig)
    def __init__(self) -> None:
        if self.config.frequencies == "trained":
            self.alpha = nn.Parameter(torch.zeros(self.config.width // 2))
        self._derive()

    def reset_parameters(self) -> None:
        """Start trained frequencies afresh, as is needed after ``to_empty``."""
        if self.config.frequencies == "trained":
            nn.init.zeros_(self.alpha)

    @property
    def _is_trained(self) -> bool:
        return self.config.frequencies == "trained"

    def _prepare(self) -> None:
        config = self.config
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        if config.inv_freq is None:
            values, base = compute_frequencies(config.width, config.base, dtype), config.base
        else:
            values, base = torch.tensor(config.inv_freq, dtype=dtype, device="cpu"), None
        inv_freq = values if config.direction == "forward" else -values
        self._ladder = Ladder(inv_freq, base, config.direction)

    def _compute_frequencies(
        self, context_length: int | Tensor | None, where: str, default_short: bool = False
    ) -> Frequencies:
        fixed = super()._compute_frequencies(context_length, where, default_short)
        if self.config.frequencies == "fixed":
            return fixed
        factors = self.alpha.double().exp()
        return Frequencies(fixed.inv_freq.to(factors.device) * factors, fixed.attention_scale)
