"""AxialRoPE: rotary embedding for positions on several axes, such as rows and columns of an image.

    pair i rotates by p_a theta_j            a: the axis of pair i, j: its place among a's pairs
    theta_j = fastest_a base_a^(-2 j / R_a)  R_a: channels of axis a

Every pair rotates along one axis, and the score of two tokens depends on the difference of their
coordinates only. The mixed variant rotates pair i of head h by sum_a p_a f_(h, a, i) with trained
f, so that scores depend on diagonal distances too.

Heo et al. 2024, Rotary Position Embedding for Vision Transformer,
https://arxiv.org/abs/2403.13298. Kernel: csrc/rotate.c.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl._support.options import PositiveNumber, check_number
from whorl._support.storage import copy_values
from whorl._support.words import quote
from whorl.kernels.native import RotatedChannels
from whorl.kernels.ops import Route
from whorl.scaling import Description, Frequencies, Ladder
from whorl.scaling.base import compute_frequencies

from .base import Card, register, take_options
from .rotary.call import ResolvedPositions, RotationCall
from .rotary.config import RotaryConfig, check_inv_freq
from .rotary.rotary import Rotary

__all__ = ["AxialRoPE", "AxialRoPEConfig"]

Order = Literal["blocks", "alternating"]


@dataclass(frozen=True, kw_only=True)
class AxialRoPEConfig(RotaryConfig):
    """Options of AxialRoPE, checked on construction; ``AxialRoPE`` says what they mean."""

    # Sequences are stored as tuples, and the base of None as a number.
    base: float | Sequence[float] | None = None
    axes: int = 2
    widths: Sequence[int] | None = None
    order: Order = "blocks"
    within: Literal["head", "axis"] = "head"
    fastest: float | Sequence[float] = 1.0
    inv_freq: Sequence[float] | Tensor | None = None
    frequencies: Literal["fixed", "mixed"] = "fixed"
    num_kv_heads: int | None = None

    def __post_init__(self) -> None:
        for option in ("base", "widths", "fastest"):
            value = getattr(self, option)
            if isinstance(value, Sequence) and not isinstance(value, str):
                object.__setattr__(self, option, tuple(value))
        if self.base is None:
            object.__setattr__(self, "base", self._default_base)
        super().__post_init__()
        self._check_axes()
        for option in ("base", "fastest"):
            for value in self.get_by_axis(option):
                check_number(value, PositiveNumber, option, "AxialRoPE")
        if self.inv_freq is not None:
            values = check_inv_freq(self.inv_freq, self.width // 2, "AxialRoPE")
            object.__setattr__(self, "inv_freq", values)
        self._check_mixed()

    def changed(self) -> dict[str, Any]:
        options = super().changed()
        if self.base == self._default_base:
            del options["base"]
        return options

    @property
    def _default_base(self) -> float:
        return 10.0 if self.frequencies == "mixed" else 10_000.0

    def get_by_axis(self, option: str) -> tuple[float, ...]:
        """The base, or the frequency of the fastest pair, of each axis."""
        given = getattr(self, option)
        return given if isinstance(given, tuple) else (given,) * self.axes

    @property
    def pairs(self) -> tuple[int, ...]:
        """Pairs of each axis."""
        if self.widths is None:
            return (self.width // 2 // self.axes,) * self.axes
        return tuple(width // 2 for width in self.widths)

    def _check_axes(self) -> None:
        if type(self.axes) is not int or self.axes < 2:
            raise ValueError(
                "AxialRoPE: axes must be an int, at least 2; got"
                f" {quote(self.axes)}. For one axis use RoPE."
            )
        for option in ("base", "fastest"):
            value = getattr(self, option)
            if isinstance(value, tuple) and len(value) != self.axes:
                raise ValueError(
                    f"AxialRoPE: {option} must be one number, or one for each of {self.axes} axes;"
                    f" got {list(value)}."
                )
        if self.within == "axis" and (self.order != "blocks" or self.frequencies == "mixed"):
            raise ValueError(
                "AxialRoPE: within='axis' lays out each axis in a block of its own, so it needs"
                f" order='blocks' and frequencies='fixed'; got {self.order!r} and"
                f" {self.frequencies!r}. Leave within out."
            )
        if self.widths is None:
            if self.width % (2 * self.axes) and self.frequencies == "fixed":
                raise ValueError(
                    f"AxialRoPE: {self.width} channels do not split into {self.axes} axes of whole"
                    " pairs; pass widths=, the channels of each axis, or rotary_dim=."
                )
            return
        even = all(type(w) is int and w >= 0 and w % 2 == 0 for w in self.widths)
        if len(self.widths) != self.axes or not even or sum(self.widths) != self.width:
            raise ValueError(
                f"AxialRoPE: widths must be {self.axes} even numbers of channels that add up to"
                f" {self.width}; got {list(self.widths)}."
            )

    def _check_mixed(self) -> None:
        mixed = self.frequencies == "mixed"
        if mixed and (type(self.num_kv_heads) is not int or self.num_kv_heads < 1):
            raise ValueError(
                "AxialRoPE: mixed frequencies belong to each key head, so num_kv_heads must be"
                f" a positive int; got {quote(self.num_kv_heads)}."
            )
        if not mixed and self.num_kv_heads is not None:
            raise ValueError(
                "AxialRoPE: num_kv_heads belongs to frequencies='mixed', because fixed ones are the"
                f" same in every head; got {quote(self.num_kv_heads)}. Leave it out."
            )
        if mixed and (self.inv_freq is not None or self.widths is not None):
            raise ValueError(
                "AxialRoPE: mixed frequencies rotate every pair along all axes, so widths and"
                " inv_freq have no meaning; leave them out."
            )


@register("axial_rope")
class AxialRoPE(Rotary):
    """Rotary embedding for n-dimensional positions.

    Args:
        head_dim: channels of one head, D.
        axes: how many coordinates a token has; positions are [axes, T] or [axes, B, T].
        widths: channels of each axis, even; equal shares of the rotated channels by default.
        base: of the frequencies, or one for each axis: by default 10,000, and 10 for mixed ones.
            The paper takes 100 for fixed ones, on grids of some ten rows.
        order: "blocks" gives axis 0 the first pairs, then axis 1; "alternating" gives pairs to
            0, 1, 0, 1 ... How a pair lies among the channels is ``layout``, as for RoPE.
        within: where ``layout`` looks for the two channels of a pair: "head", among all rotated
            ones, or "axis", among those of the axis alone, one block after the other (Gemma 4).
        fastest: radians per unit of position of the fastest pair, or one for each axis: 1, or 2 pi
            for coordinates normalised to [-1, 1] (DINOv3).
        inv_freq: frequencies of your own, one for each pair in the order of the pairs.
        frequencies: "mixed" trains ``freqs`` [num_kv_heads, axes, R/2] instead.
        num_kv_heads: heads of the keys, each with mixed frequencies of its own; the queries of a
            group share them.
        layout, out_layout, rotary_dim, rotary_start, precision, table, table_length, impl: as for
            ``RoPE``.

    Positions have no default: ``whorl.positions.grid`` makes those of an image.

    >>> import torch, whorl
    >>> rope = whorl.AxialRoPE(64, base=100.0)
    >>> q, k = torch.randn(1, 8, 6, 64), torch.randn(1, 8, 6, 64)
    >>> rows, columns = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> q1, k1 = rope(q, k, torch.stack((rows, columns)))
    """

    needs_positions: bool = True
    head_axes: ClassVar[Mapping[str, int]] = {"freqs": 0}  # of the keys
    config: AxialRoPEConfig

    card: ClassVar[Card] = Card(
        formula="pair i rotated by p_a theta_j, each pair along its axis a",
        paper="Heo et al. 2024",
        url="https://arxiv.org/abs/2403.13298",
        relative=True,
        longer="partly",
        linear_attention="yes",
        many_axes=True,
        memory="T R cos and sin",
        compute="B (H T + G S) D",
    )

    @take_options(AxialRoPEConfig)
    def __init__(self) -> None:
        config = self.config
        self.position_axes = config.axes
        if config.num_kv_heads is not None:  # with mixed frequencies only
            self.freqs = nn.Parameter(
                torch.empty(config.num_kv_heads, config.axes, config.width // 2)
            )
            self.reset_parameters()
        self._derive()

    def tables(
        self, positions: Tensor, *, context_length: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin, float32 [T, R/2] or [B, T, R/2]; mixed: [N, T, R/2] or [B, N, T, R/2]."""
        self.check_coordinates(positions, "AxialRoPE.tables")
        cos, sin = super().tables(positions, context_length=context_length)
        if self.config.frequencies == "mixed" and positions.dim() == 2:
            return cos[0], sin[0]
        return cos, sin

    def retune(
        self,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        old: Frequencies,
        new: Frequencies,
        offset: int | Tensor = 0,
    ) -> Tensor:
        """As for ``RoPE``, with positions on every axis; not for mixed frequencies."""
        if self.config.frequencies == "mixed":
            raise ValueError(
                "AxialRoPE.retune: mixed frequencies are trained, not scaled; rotate the keys"
                " afresh from their unrotated copies."
            )
        self.check_coordinates(positions, "AxialRoPE.retune")
        return super().retune(k, positions, old=old, new=new, offset=offset)

    def frequencies(self, context_length: int | Tensor | None = None) -> Frequencies:
        """Frequencies in force: inv_freq float64 [R/2], mixed [num_kv_heads, axes, R/2]."""
        return super().frequencies(context_length)

    def describe(
        self, context_length: int | None = None, *, original_context: int | None = None
    ) -> Description:
        """As for ``RoPE``; not for mixed frequencies, which rotate along all axes at once."""
        if self.config.frequencies == "mixed":
            raise ValueError(
                "AxialRoPE.describe: mixed frequencies have no wavelength of their own, because a"
                " pair rotates along all axes; look at `freqs`."
            )
        return super().describe(context_length, original_context=original_context)

    def reset_parameters(self) -> None:
        """Start mixed frequencies afresh, as is needed after ``to_empty``.

        Each head starts with the frequencies of ``base`` along axes that are rotated at random.
        """
        if self.config.frequencies == "fixed":
            return
        axes, pairs = self.config.axes, self.config.width // 2
        share = -(-pairs // axes)
        steps = torch.arange(share, dtype=torch.float64, device="cpu") / share
        bases, fastest = (
            torch.tensor(self.config.get_by_axis(option), dtype=torch.float64, device="cpu")
            for option in ("base", "fastest")
        )
        size = fastest[:, None] * bases[:, None] ** -steps  # [n, share]
        drawn = []
        for _ in range(self.freqs.shape[0]):
            spread = _draw_rotation(axes)[:, :, None] * size[None]  # [n along, n ladders, share]
            drawn.append(spread.flatten(1)[:, :pairs])
        copy_values(self.freqs, torch.stack(drawn))

    @property
    def _is_trained(self) -> bool:
        return self.config.frequencies == "mixed"

    def _prepare(self) -> None:
        config = self.config
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        if config.frequencies == "mixed":
            return
        dealt = [(a, j) for a, pairs in enumerate(config.pairs) for j in range(pairs)]
        if config.order == "alternating":
            dealt.sort(key=lambda pair: (pair[1], pair[0]))
        self._axes = torch.tensor([a for a, _ in dealt], device="cpu")
        if config.inv_freq is not None:
            inv_freq = torch.tensor(config.inv_freq, dtype=dtype, device="cpu")
        else:
            ladders = [
                compute_frequencies(2 * max(pairs, 1), base, dtype) * fastest
                for pairs, base, fastest in zip(
                    config.pairs, *map(config.get_by_axis, ("base", "fastest")), strict=True
                )
            ]
            inv_freq = torch.stack([ladders[a][j] for a, j in dealt])
        self._ladder = Ladder(inv_freq, None)

    def _compute_frequencies(
        self, context_length: int | Tensor | None, where: str, default_short: bool = False
    ) -> Frequencies:
        if self.config.frequencies == "mixed":
            return Frequencies(self.freqs.double())
        return super()._compute_frequencies(context_length, where, default_short)

    def _resolve_positions(
        self, xs: tuple[Tensor, ...], call: RotationCall
    ) -> list[ResolvedPositions]:
        for positions in (
            call.positions,
            *([] if call.key_positions is None else [call.key_positions]),
        ):
            self.check_coordinates(positions, "AxialRoPE")
        resolved = super()._resolve_positions(xs, call)
        if self.config.frequencies == "mixed":
            heads = self.config.num_kv_heads
            for x in xs:
                if heads is None or x.shape[1] % heads:
                    raise ValueError(
                        f"AxialRoPE: mixed frequencies are for {heads} key heads, so queries and"
                        f" keys must have a multiple of that many; got {x.shape[1]}."
                    )
        return resolved

    @property
    def _reads_tables(self) -> bool:
        # The kernel rotates one range of channels in a call, and here every axis has one.
        return self.config.within == "head"

    def _rotate_by_rows(
        self,
        xs: Sequence[Tensor],
        rows: Sequence[Tensor],
        channels: RotatedChannels,
        inverse: bool,
        outs: Sequence[Tensor] | None,
        route: Route | None = None,
    ) -> list[Tensor]:
        if self.config.within == "head":
            return super()._rotate_by_rows(xs, rows, channels, inverse, outs, route)
        first = 0
        for pairs in filter(None, self.config.pairs):  # one axis after the other
            block = [table[..., first : first + pairs] for table in rows]
            here = channels._replace(start=channels.start + 2 * first)
            xs = super()._rotate_by_rows(xs, block, here, inverse, outs)
            first += pairs
        return list(xs)

    def check_coordinates(self, positions: Tensor | None, where: str) -> None:
        """Refuse positions that do not have a row for every axis."""
        if positions is None or (isinstance(positions, Tensor) and positions.dim() < 2):
            n = self.config.axes
            got = "None" if positions is None else f"{list(positions.shape)}"
            raise ValueError(
                f"{where}: positions must be [n, T] or [n, B, T], here [{n}, T] or [{n}, B, T], one"
                f" row for each axis; got {got}. whorl.positions.grid(height, width) makes them."
            )


def _draw_rotation(axes: int) -> Tensor:
    """A rotation [n, n], every one equally likely."""
    random = torch.randn(axes, axes, dtype=torch.float64, device="cpu")
    q: Tensor
    q, r = torch.linalg.qr(random)
    q = q * r.diagonal().sign()  # else some are more likely than others
    q[:, 0] *= torch.linalg.det(q).sign()  # no reflection
    return q
