"""RoPE: rotate each pair of query and key channels by position times the pair's frequency.

    a' = a cos(p theta_i) - b sin(p theta_i)      theta_i = base ** (-2 i / R), i = 0 .. R/2 - 1
    b' = b cos(p theta_i) + a sin(p theta_i)      pair 0 turns fastest, 1 radian per position

The score of a rotated query and key then depends on the difference of their positions only.
Su et al. 2021, RoFormer, https://arxiv.org/abs/2104.09864. Kernel: csrc/rotate.c.

Different from most implementations: angles are formed in float64, results never depend on earlier
calls, other rows or other instances, and nothing is a buffer that a cast of the model could spoil.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl import scaling as scalings
from whorl.kernels import ops, tables
from whorl.kernels.native import Band
from whorl.kernels.ops import Impl, Layout
from whorl.kernels.tables import Precision, table_dtype
from whorl.positions import resolve
from whorl.scaling import Frequencies, Ladder, Scaling
from whorl.scaling.base import ladder

from ._checks import check_context, check_input, check_table
from ._rotary import Angles, Rotary, TableStrategy
from .base import Config, register

__all__ = ["RoPE", "RoPEConfig"]


@dataclass(frozen=True)
class RoPEConfig(Config):
    """Options of RoPE, checked on construction; ``RoPE`` says what they mean."""

    head_dim: int
    base: float = 10_000.0
    layout: Layout = "half"
    out_layout: Layout | None = None
    rotary_dim: int | None = None
    rotary_start: int = 0
    scaling: Scaling | None = None
    inv_freq: tuple[float, ...] | None = None
    frequencies: Literal["fixed", "trained"] = "fixed"
    precision: Precision = "float64"
    table: TableStrategy = "hybrid"
    table_length: int = 4096
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.scaling, dict):
            object.__setattr__(self, "scaling", scalings.from_dict(self.scaling))
        if self.inv_freq is not None:
            given = self.inv_freq.tolist() if isinstance(self.inv_freq, Tensor) else self.inv_freq
            try:
                values = tuple(float(v) for v in given)
            except (TypeError, ValueError):
                raise ValueError(
                    f"RoPE: inv_freq must be numbers, one for each pair; got {given!r}."
                ) from None
            object.__setattr__(self, "inv_freq", values)
        self._check_sizes()
        self._check_frequencies()
        for option, choices in (
            ("layout", ("half", "interleaved")),
            ("out_layout", ("half", "interleaved", None)),
            ("frequencies", ("fixed", "trained")),
            ("precision", ("float64", "float32")),
            ("table", ("hybrid", "precomputed", "on_the_fly")),
            ("impl", ("auto", "native", "reference")),
        ):
            if (value := getattr(self, option)) not in choices:
                words = " or ".join(map(repr, choices))
                raise ValueError(f"RoPE: {option} must be {words}; got {value!r}.")

    @property
    def width(self) -> int:
        """R, the number of rotated channels."""
        return self.head_dim - self.rotary_start if self.rotary_dim is None else self.rotary_dim

    def _check_sizes(self) -> None:
        for option in ("head_dim", "rotary_start", "table_length"):
            value = getattr(self, option)
            if type(value) is not int or value < (1 if option == "head_dim" else 0):
                kind = "a positive int" if option == "head_dim" else "an int >= 0"
                raise ValueError(f"RoPE: {option} must be {kind}; got {value!r}.")
        what = "head_dim" if self.rotary_dim is None and not self.rotary_start else "rotary_dim"
        if type(self.width) is not int or self.width % 2 or self.width < 2:
            raise ValueError(
                f"RoPE: {what} must be even and at least 2, because channels rotate in pairs;"
                f" got {self.width!r}. Pass rotary_dim= to rotate an even part of the head."
            )
        if self.rotary_start + self.width > self.head_dim:
            raise ValueError(
                "RoPE: rotary_start + rotary_dim must be at most head_dim; got"
                f" {self.rotary_start} + {self.width} > {self.head_dim}. Lower one of them."
            )

    def _check_frequencies(self) -> None:
        number = isinstance(self.base, (int, float)) and not isinstance(self.base, bool)
        if not number or not 0 < self.base <= sys.float_info.max:
            raise ValueError(f"RoPE: base must be a finite number above 0; got {self.base!r}.")
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise TypeError(
                f"RoPE: scaling must be a whorl scaling such as Linear(factor=4.0), or None;"
                f" got {self.scaling!r}."
            )
        if self.inv_freq is None:
            return
        if len(self.inv_freq) != self.width // 2 or not all(map(math.isfinite, self.inv_freq)):
            raise ValueError(
                f"RoPE: inv_freq must hold {self.width // 2} finite frequencies, one for each pair;"
                f" got {len(self.inv_freq)}: {list(self.inv_freq[:4])}."
            )


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
        inv_freq: frequencies of your own instead of those of ``base``, one for each pair.
        frequencies: "trained" learns alpha in theta_i exp(alpha_i), starting from 0.
        precision: "float64" angles, exact; "float32" for bit parity with models trained that way.
        table: "hybrid" reads a table of ``table_length`` positions and builds the rest when
            asked; "precomputed" refuses positions past the table (inside torch.compile, where
            values are not known, it builds them); "on_the_fly" keeps none. The results are the
            same.
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

    _DERIVED: ClassVar[tuple[str, ...]] = (*Rotary._DERIVED, "_ladder")

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        layout: Layout = "half",
        out_layout: Layout | None = None,
        rotary_dim: int | None = None,
        rotary_start: int = 0,
        scaling: Scaling | dict[str, Any] | None = None,
        inv_freq: Sequence[float] | Tensor | None = None,
        frequencies: Literal["fixed", "trained"] = "fixed",
        precision: Precision = "float64",
        table: TableStrategy = "hybrid",
        table_length: int = 4096,
        impl: Impl = "auto",
    ) -> None:
        super().__init__()
        self.config = RoPEConfig(
            head_dim=head_dim,
            base=base,
            layout=layout,
            out_layout=out_layout,
            rotary_dim=rotary_dim,
            rotary_start=rotary_start,
            scaling=scaling,  # type: ignore[arg-type]  # dicts and sequences are frozen there
            inv_freq=inv_freq,  # type: ignore[arg-type]
            frequencies=frequencies,
            precision=precision,
            table=table,
            table_length=table_length,
            impl=impl,
        )
        if frequencies == "trained":
            self.alpha = nn.Parameter(torch.zeros(self.config.width // 2))
        with torch.inference_mode(False):  # constants must serve training later
            self._derive()

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
        out: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rotated queries [B, H, T, D] and keys [B, G, S, D]; H and G may differ (GQA).

        positions: [T] or [B, T], integers or fractions; 0 .. T - 1 by default. ``offset`` (an int,
        or one per row) is added. key_positions: of the keys, where they differ; taken as they are.
        context_length: current length for scalings that follow it; an int, or one per row.
        out: where to write, such as a slice of a cache for the keys.
        """
        rotated = self._rotate((q, k), positions, key_positions, offset, context_length, out)
        return rotated[0], rotated[1]

    def forward_(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """``forward`` in place: q and k are overwritten and returned."""
        pair = (q, k)
        self._rotate(pair, positions, key_positions, offset, context_length, pair)
        return pair

    def rotate(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
        out: Tensor | None = None,
        inverse: bool = False,
    ) -> Tensor:
        """Rotate one tensor [B, H, T, D]; ``inverse`` undoes rotation and attention scale."""
        outs = None if out is None else (out,)
        return self._rotate((x,), positions, None, offset, context_length, outs, bool(inverse))[0]

    def rotate_(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
        inverse: bool = False,
    ) -> Tensor:
        """``rotate`` in place; refused where a gradient is needed."""
        single = (x,)
        self._rotate(single, positions, None, offset, context_length, single, bool(inverse))
        return x

    def shift(
        self, k: Tensor, delta: int | Tensor, *, context_length: int | Tensor | None = None
    ) -> Tensor:
        """Move rotated keys by ``delta`` positions: an int, [B], or [B, S]; fractions are welcome.

        Rotations add up, so keys of position p become those of p + delta; the attention scale that
        they carry stays. In half precision shift once by the sum, not step by step.
        """
        batch, length = check_input(k, self.config.head_dim, "RoPE.shift", "k")
        if not isinstance(delta, Tensor):
            if isinstance(delta, bool) or not isinstance(delta, (int, float)):
                raise TypeError(f"RoPE.shift: delta must be a number or a tensor; got {delta!r}.")
            delta = torch.tensor([delta], dtype=torch.float64, device=k.device)
        elif delta.dim() < 2:
            delta = delta.unsqueeze(-1)  # [B, 1], or [1] for all rows
        if delta.shape not in ((1,), (batch, 1), (batch, length)):
            raise ValueError(
                "RoPE.shift: delta must be an int, [B] or [B, S], here"
                f" [{batch}] or [{batch}, {length}]; got {list(delta.shape)}."
            )
        values, _ = resolve(delta, 0, batch, delta.shape[-1], k.device, "RoPE.shift")
        assert values is not None
        check_context(context_length, "RoPE.shift", batch)
        turns = self._frequencies(context_length, "RoPE.shift")
        angles = tables.angles(values, turns.inv_freq.to(k.device), self.config.precision)
        return self._turn_rotated(k, tables.entries(angles, 1.0, table_dtype(k)))

    def retune(
        self,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        old: Frequencies,
        new: Frequencies,
        offset: int | Tensor = 0,
    ) -> Tensor:
        """Take keys rotated with frequencies ``old`` to what ``new`` would have given them.

        Turns pair i by p (new_i - old_i) and multiplies by a_new / a_old; the frequencies are those
        of ``rope.frequencies(...)``. In half precision a key should be retuned once, from ``old``
        to the last ``new``, not through every step between.
        """
        batch, length = check_input(k, self.config.head_dim, "RoPE.retune", "k")
        pairs = self.config.width // 2
        for name, f in (("old", old), ("new", new)):
            if not isinstance(f, Frequencies):
                raise TypeError(
                    f"RoPE.retune: {name} must be Frequencies, as rope.frequencies(...) gives them;"
                    f" got {type(f).__name__}."
                )
            if f.inv_freq.shape not in ((pairs,), (1, pairs), (batch, pairs)):
                raise ValueError(
                    f"RoPE.retune: {name}.inv_freq must be [R/2] or [B, R/2], here [{pairs}] or"
                    f" [{batch}, {pairs}]; got {list(f.inv_freq.shape)}. Take it from"
                    " rope.frequencies(...)."
                )
        values, first = resolve(positions, offset, batch, length, k.device, "RoPE.retune")
        if values is None:
            values = torch.arange(first, first + length, device=k.device)
        angles = [
            tables.angles(values, f.inv_freq.to(k.device), self.config.precision).double()
            for f in (new, old)
        ]
        scale = new.attention_scale / old.attention_scale
        return self._turn_rotated(k, tables.entries(angles[0] - angles[1], scale, table_dtype(k)))

    def tables(
        self, positions: Tensor, *, context_length: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin, float32 [T, R/2] or [B, T, R/2], with the attention scale multiplied in."""
        shape = positions.shape if isinstance(positions, Tensor) else ()
        if len(shape) not in (1, 2):
            raise ValueError(
                f"RoPE.tables: positions must be a tensor [T] or [B, T]; got {positions!r}."
            )
        batch, length = (1 if len(shape) == 1 else shape[0]), shape[-1]
        where = resolve(positions, 0, batch, length, positions.device, "RoPE.tables")
        if self.config.table == "precomputed":
            check_table(*where, length, self.config.table_length, "RoPE.tables")
        check_context(context_length, "RoPE.tables")
        like = torch.empty(batch, 0, length, 0, device=positions.device, dtype=torch.float32)
        rows = self._rows([where], [like], context_length)[0]
        if rows.dim() == 3:
            rows = rows.expand(*shape, *rows.shape[-2:])  # a single row of positions keeps its axis
        return rows[..., 0, :], rows[..., 1, :]

    def frequencies(self, context_length: int | Tensor | None = None) -> Frequencies:
        """Frequencies in force: inv_freq float64 [R/2] (or [B, R/2]) and the attention scale.

        context_length matters to scalings that follow it; None stands for a short context.
        """
        turns = self._frequencies(context_length, "RoPE.frequencies", default_short=True)
        return Frequencies(turns.inv_freq.to(torch.float64, copy=True), turns.attention_scale)

    def reset_parameters(self) -> None:
        """Start trained frequencies afresh, as is needed after ``to_empty``."""
        if self.config.frequencies == "trained":
            nn.init.zeros_(self.alpha)

    def _derive(self) -> None:
        config = self.config
        self._impl = ops.chosen_impl(config.impl, "RoPE")
        self._band = Band(config.layout, config.out_layout or config.layout, config.rotary_start)
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        if config.inv_freq is None:
            self._ladder = Ladder(ladder(config.width, config.base, dtype), config.base)
        else:
            given = torch.tensor(config.inv_freq, dtype=dtype, device="cpu")
            self._ladder = Ladder(given, None)
        self._angles: Angles | None = None
        if config.frequencies == "fixed" and not self._follows_length:
            turns = self._frequencies(None, "RoPE")
            known = 0 if config.table == "on_the_fly" else config.table_length
            scale = float(turns.attention_scale)  # only lengths could make it vary by row
            self._angles = Angles(turns.inv_freq, scale, config.precision, known)

    @property
    def _follows_length(self) -> bool:
        return self.config.scaling is not None and self.config.scaling.follows_length

    def _frequencies(
        self, context_length: int | Tensor | None, where: str, default_short: bool = False
    ) -> Frequencies:
        """Frequencies in the dtype of the ladder, with gradients to alpha where it is trained."""
        check_context(context_length, where)
        scaling = self.config.scaling
        if scaling is None:
            turns = Frequencies(self._ladder.inv_freq)
        else:
            if self._follows_length and context_length is None and not default_short:
                raise ValueError(
                    f"{where}: {scaling!r} follows the current length; pass context_length=, the"
                    " length that the keys were rotated for."
                )
            if torch.compiler.is_compiling() and isinstance(context_length, int):
                context_length = torch.full((), context_length)  # else the graph fits one length
            turns = scaling.frequencies(self._ladder, context_length)
        if self.config.frequencies == "trained":
            stretch = self.alpha.double().exp()
            return Frequencies(turns.inv_freq.to(stretch.device) * stretch, turns.attention_scale)
        return turns
