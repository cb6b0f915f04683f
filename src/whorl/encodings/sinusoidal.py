"""Sinusoidal: add a fixed row of sines and cosines of the position to each token embedding.

    pe[2 i] = scale sin(p w_i)      w_i = base ** (-2 i / dim), i = 0 .. dim/2 - 1
    pe[2 i + 1] = scale cos(p w_i)

A shift is a linear map that does not depend on p: pe(p + k) rotates each pair of pe(p) by k w_i.
Vaswani et al. 2017, Attention Is All You Need, https://arxiv.org/abs/1706.03762, section 3.5.

Different from most implementations: angles are formed in float64, positions may be fractions,
negative or as large as you like, and no table grows with the longest sequence seen.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl._support.options import Number, PositiveNumber, Size
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.kernels import tables
from whorl.kernels.tables import choose_table_dtype
from whorl.positions import resolve
from whorl.types import Precision

from ._absolute import Absolute
from ._sinusoid import First, Order, Spacing, compute_frequencies, compute_sinusoids
from .base import Card, Config, register, take_options
from .rotary.call import ResolvedPositions

__all__ = ["Sinusoidal", "SinusoidalConfig"]


@dataclass(frozen=True)
class SinusoidalConfig(Config):
    """Options of Sinusoidal, checked on construction; ``Sinusoidal`` says what they mean."""

    dim: Size
    _: KW_ONLY
    base: PositiveNumber = 10_000.0
    order: Order = "interleaved"
    first: First = "sin"
    spacing: Spacing = "paper"
    scale: Number = 1.0
    precision: Precision = "float64"
    table_length: Size = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim < 2 or self.dim % 2:
            raise ValueError(
                "Sinusoidal: dim must be even and at least 2, because every frequency has a sine"
                f" and a cosine; got {self.dim!r}. Make the embeddings one channel wider."
            )
        if self.spacing == "endpoints" and self.dim < 4:
            raise ValueError(
                "Sinusoidal: spacing='endpoints' needs dim of at least 4, because both ends of the"
                f" range are frequencies; got {self.dim}. Use spacing='paper'."
            )


@register("sinusoidal")
class Sinusoidal(Absolute):
    """Fixed sinusoidal position embedding, in every arrangement that models use.

    Args:
        dim: channels of the token embeddings, E.
        base: of the frequencies; the longest wavelength is about 2 pi base.
        order: "interleaved" puts the pair of frequency i into channels 2i, 2i + 1 (the paper);
            "concatenated" into i, i + dim/2 (tensor2tensor, fairseq, RoFormer, Whisper).
        first: which of the pair comes first; "cos" in many diffusion models.
        spacing: "paper", w_i = base ** (-i / (dim/2)), which stops short of 1 / base; "endpoints",
            w_i = base ** (-i / (dim/2 - 1)), from 1 to 1 / base inclusive (tensor2tensor, fairseq,
            Whisper).
        scale: factor on the row, not on positions: scale those yourself, fractions are allowed.
        precision: "float64" angles, exact; "float32" for parity with models trained that way.
        table_length: positions 0 .. N - 1 kept as a table on the CPU; 4 dim bytes each. Past it
            rows are built when asked, and are the same.

    >>> import torch, whorl
    >>> encoding = whorl.make("sinusoidal", dim=4)
    >>> encoding.table(torch.tensor([0, 1]))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    >>> x = torch.zeros(2, 3, 4)  # [B, T, E]
    >>> torch.equal(encoding.embed(x)[0], encoding.table(torch.arange(3)))
    True
    """

    card: ClassVar[Card] = Card(
        formula="x + [sin(p w_i), cos(p w_i)], w_i = base^(-2i/E)",
        paper="Vaswani et al. 2017",
        url="https://arxiv.org/abs/1706.03762",
        relative=False,
        longer="no",
        linear_attention="yes",
        many_axes=False,
        memory="none; T E once at the input",
        compute="none; B T E once at the input",
    )

    config: SinusoidalConfig

    _inv_freq: Tensor  # [E/2], on the CPU
    _table: Tensor  # float32 [table_length, E], on the CPU

    @take_options(SinusoidalConfig)
    def __init__(self) -> None:
        self._derive()

    def table(self, positions: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """The rows themselves, [T, dim] or [B, T, dim] for positions [T] or [B, T]."""
        shape = positions.shape if isinstance(positions, Tensor) else ()
        if len(shape) not in (1, 2):
            raise ValueError(
                "Sinusoidal.table: positions must be a tensor [T] or [B, T]; got"
                f" {quote(positions)}."
            )
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"Sinusoidal.table: dtype must be torch.float32 or torch.float64; got {dtype!r}."
                " Convert the table afterwards."
            )
        batch = shape[0] if len(shape) == 2 else 1
        where = resolve(positions, 0, batch, shape[-1], positions.device, "Sinusoidal.table")
        rows = self._look_up_rows(where, shape[-1], positions.device, dtype)
        return rows.expand(*shape, self.config.dim)  # a single row of positions keeps its axis

    def _get_rows(self, where: ResolvedPositions, length: int, x: Tensor) -> Tensor:
        return self._look_up_rows(where, length, x.device, choose_table_dtype(x))

    def _look_up_rows(
        self, where: ResolvedPositions, length: int, device: torch.device, dtype: torch.dtype
    ) -> Tensor:
        """Rows for resolved positions, read from the table where it has them, else built.

        Compiled code builds them always: to choose would tie the graph to a length.
        """
        positions, first = where
        known = self.config.table_length
        if dtype == torch.float32 and device.type == "cpu" and not torch.compiler.is_compiling():
            if positions is None:
                if first >= 0 and first + length <= known:
                    return self._table[first : first + length]
            elif has_values(positions) and positions.numel() and not positions.is_floating_point():
                low, high = positions.aminmax()
                if int(low) >= 0 and int(high) < known:
                    return F.embedding(positions, self._table)  # faster than indexing
        if positions is None:
            positions = torch.arange(first, first + length, device=device)
        return self._build_rows(positions, dtype)

    def _build_rows(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        config = self.config
        inv_freq = self._inv_freq.to(positions.device)
        angles = tables.compute_angles(positions, inv_freq, config.precision)
        return compute_sinusoids(angles, config.order, config.first, config.scale, dtype)

    def _derive(self) -> None:
        config = self.config
        with torch.inference_mode(False):  # constants must serve training later
            self._inv_freq = compute_frequencies(
                config.dim, config.base, config.spacing, config.precision
            )
            known = torch.arange(config.table_length, device="cpu")
            self._table = self._build_rows(known, torch.float32)

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_inv_freq", "_table")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._derive()
