"""From positions to rows of cos and sin, and through the kernel: the machinery of rotations."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.encodings.base import Encoding
from whorl.kernels import direct, native, ops
from whorl.kernels.native import RotatedChannels, Table, TableRows
from whorl.kernels.tables import choose_table_dtype
from whorl.positions import resolve
from whorl.scaling import Frequencies, Ladder, Scaling

from .angles import FixedRows, ResolvedPositions, RowBuilder, find_context_length
from .checks import (
    check_context,
    check_input,
    check_no_gradient,
    check_outputs,
    check_pair,
    check_positions,
    check_table,
)
from .config import RotaryConfig
from .heads import rotate_by_head

__all__ = ["KEY", "QUERY", "Rotation", "RotationCall"]

QUERY, KEY = 0, 1


class RotationCall(NamedTuple):
    """Where the tokens of a call are, and which way they turn.

    role: of a tensor that comes alone; a pair is queries and keys. reference: log2 of a factor on
    keys, [P] or [B, P], that queries are divided by.
    """

    positions: Tensor | None = None
    key_positions: Tensor | None = None
    offset: int | Tensor = 0
    context_length: int | Tensor | None = None
    inverse: bool = False
    role: int = QUERY
    reference: Tensor | None = None


class RowsByLength(NamedTuple):
    """Angles of contexts up to a limit, and of longer ones where these share frequencies too."""

    limit: int
    short: FixedRows
    long: FixedRows | None


class Rotation(Encoding):
    """What RoPE and its relatives do alike, out of sight.

    A subclass fills ``_ladder`` and what else differs in ``_prepare``. All of it follows from the
    config, so none of it is saved or cast.
    """

    config: RotaryConfig

    _ladder: Ladder  # unscaled frequencies
    _axes: Tensor | None = None  # the axis of the positions by which each pair turns, int64 [P]
    _growth: Tensor | None = None  # log2 of the factor on queries per position, float64 [P]
    _impl: str
    _band: RotatedChannels
    # For queries and keys; None where frequencies are trained or follow the length.
    _angles: tuple[FixedRows, FixedRows] | None = None
    _moved: tuple[FixedRows, FixedRows] | None = (
        None  # on the device of the last call, if not the CPU
    )
    _simple: Table | None = None  # all that a call without positions needs, queries and keys alike
    _staged: RowsByLength | None = None  # where frequencies follow the length in stages

    _DERIVED: ClassVar[tuple[str, ...]] = (
        *("_ladder", "_axes", "_growth", "_impl", "_band", "_angles", "_moved", "_staged"),
        "_simple",
    )

    def _prepare(self) -> None:
        """Fill ``_ladder``, and ``_axes`` and ``_growth`` where there are such."""
        raise NotImplementedError

    def _derive(self) -> None:
        config, name = self.config, type(self).__name__
        with torch.inference_mode(False):  # constants must serve training later
            self._impl = ops.choose_impl(config.impl, name)
            layout = config.layout
            self._band = RotatedChannels(layout, config.out_layout or layout, config.rotary_start)
            self._prepare()
            self._angles = self._simple = None
            self._frequencies(None, name, default_short=True)  # a scaling may not fit the ladder
            known = 0 if config.table == "on_the_fly" else config.table_length
            endless = config.table != "precomputed"
            self._staged = self._stages(known, endless)
            if self._is_fixed:
                query = FixedRows(self._turns(None, name, QUERY), known, endless)
                same = self._growth is None
                key = query if same else FixedRows(self._turns(None, name, KEY), known, endless)
                self._angles = query, key
                if same and self._axes is None and self._impl == "native":
                    self._simple = query.table

    def _stages(self, known: int, endless: bool) -> RowsByLength | None:
        scaling = getattr(self.config, "scaling", None)
        if self._trained or scaling is None or not scaling.follows_length:
            return None
        if (limit := scaling.short_up_to) is None:
            return None
        short = FixedRows(self._turns(1, "", QUERY), known, endless)
        if not scaling.fixed_past_it:
            return RowsByLength(limit, short, None)
        return RowsByLength(
            limit, short, FixedRows(self._turns(limit + 1, "", QUERY), known, endless)
        )

    @property
    def _trained(self) -> bool:
        """Whether the frequencies are parameters."""
        return False

    @property
    def _is_fixed(self) -> bool:
        """Whether the frequencies follow from the config alone."""
        return not self._follows_length and not self._trained

    @property
    def _follows_length(self) -> bool:
        scaling = getattr(self.config, "scaling", None)
        return scaling is not None and bool(scaling.follows_length)

    def _frequencies(
        self, context_length: int | Tensor | None, where: str, default_short: bool = False
    ) -> Frequencies:
        """Frequencies in the dtype of the ladder, with gradients where they are trained."""
        check_context(context_length, where)
        scaling = getattr(self.config, "scaling", None)
        if scaling is None:
            return Frequencies(self._ladder.inv_freq)
        if self._follows_length and context_length is None and not default_short:
            raise ValueError(
                f"{where}: {quote(scaling)} follows the current length; pass context_length=, the"
                " length that the keys were rotated for."
            )
        if torch.compiler.is_compiling() and isinstance(context_length, int | torch.SymInt):
            context_length = torch.full((), context_length)  # else the graph fits one length
        scaled: Frequencies = scaling.frequencies(self._ladder, context_length)
        if isinstance(context_length, Tensor) and self._follows_length:
            return _use_short_frequencies(scaled, scaling, self._ladder, context_length)
        return scaled

    def _turns(
        self,
        context_length: int | Tensor | None,
        where: str,
        role: int,
        power: int = 1,
    ) -> RowBuilder:
        """What queries or keys turn by; -1 as ``power`` undoes every factor."""
        f = self._frequencies(context_length, where)
        scale, growth = f.attention_scale**power, self._growth
        if growth is not None:
            growth = growth * (power if role == QUERY else -power)
        built = self._impl == "native"
        return RowBuilder(f.inv_freq, scale, self.config.precision, self._axes, growth, built)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self._DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._derive()

    def _rotate(
        self, xs: tuple[Tensor, ...], call: RotationCall, outs: tuple[Tensor, ...] | None
    ) -> list[Tensor]:
        if (done := self._quickly(xs, call, outs)) is not None:
            return done
        where = self._where(xs, call)
        name, inverse = type(self).__name__, call.inverse
        if call.context_length is not None:
            check_context(call.context_length, name, xs[0].shape[0])
        apart = outs is not None and check_outputs(outs, xs, name)
        band = self._band.reversed() if inverse else self._band
        angles = self._angles_for(where, xs, call)
        if short := self._shortcut(xs, where, call, angles):
            done = native.rotate(xs, outs, short, band, inverse, apart=apart)
            if done is not None:
                return done
        rows = self._rows(where, xs, call, angles)
        if outs is not None:
            check_no_gradient(rows, name)
        return self._turn(xs, rows, band, inverse, outs)

    def _quickly(
        self, xs: tuple[Tensor, ...], call: RotationCall, outs: tuple[Tensor, ...] | None
    ) -> list[Tensor] | None:
        """Straight to the kernel, where nothing is asked for but an offset; None: declined."""
        positions, key_positions, offset, context_length, inverse, _, _ = call
        if self._simple is None or type(offset) is not int or inverse:
            return None
        if positions is not None or key_positions is not None or context_length is not None:
            return None
        return direct.rotate(xs, outs, self._simple, offset, self._band, self.config.head_dim)

    def _turn(
        self,
        xs: Sequence[Tensor],
        rows: Sequence[Tensor],
        band: RotatedChannels,
        inverse: bool,
        outs: Sequence[Tensor] | None,
    ) -> list[Tensor]:
        """Rotate each of ``xs`` by its rows of cos and sin."""
        if rows[0].dim() == 5:
            return rotate_by_head(xs, rows, band, inverse, self._impl, outs)
        return ops.rotate(xs, rows, band, inverse, self._impl, outs)

    def _where(self, xs: tuple[Tensor, ...], call: RotationCall) -> list[ResolvedPositions]:
        """Check inputs and resolve the positions of each."""
        x, config, name, axes = xs[0], self.config, type(self).__name__, self.position_axes
        batch, length = check_input(x, config.head_dim, name, "x" if len(xs) == 1 else "q")
        where = [resolve(call.positions, call.offset, batch, length, x.device, name, axes)]
        if len(xs) == 2:
            k = xs[1]
            keys = check_input(k, config.head_dim, name, "k")
            if keys != (batch, length) or k.device != x.device or k.dtype != x.dtype:
                check_pair(x, k, call.key_positions, name)
            if call.key_positions is None:
                where.append(where[0])
            else:
                where.append(resolve(call.key_positions, 0, *keys, k.device, name, axes))
        if config.table == "precomputed":
            for (values, first), tensor in zip(where, xs, strict=True):
                check_table(values, first, tensor.shape[2], config.table_length, name)
        return where

    def _angles_for(
        self, where: list[ResolvedPositions], xs: Sequence[Tensor], call: RotationCall
    ) -> tuple[FixedRows, FixedRows] | None:
        """Angles with a table, for queries and keys, where these serve the whole call."""
        device, staged = xs[0].device, self._staged
        if self._angles is not None:
            return self._angles_on(device)
        if staged is None or device.type != "cpu" or torch.compiler.is_compiling():
            return None
        now = call.context_length
        if now is None:
            now = self._longest(where, [x.shape[2] for x in xs])
        if isinstance(now, Tensor) and (not now.numel() or not has_values(now)):
            return None
        least, most = (now, now) if isinstance(now, int) else map(int, now.aminmax())
        if most <= staged.limit:
            return staged.short, staged.short
        if staged.long is not None and least > staged.limit:
            return staged.long, staged.long
        return None

    def _longest(self, where: list[ResolvedPositions], lengths: list[int]) -> int | Tensor:
        """The current length where the caller does not say: of each row, or of the batch."""
        now = find_context_length(where, lengths, self.position_axes)
        batch = getattr(self.config, "lengths", "rows") == "batch"
        if not batch or not isinstance(now, Tensor):
            return now
        if torch.compiler.is_compiling() or now.numel():
            return now.amax()
        return 1  # of no rows

    def _shortcut(
        self,
        xs: tuple[Tensor, ...],
        where: list[ResolvedPositions],
        call: RotationCall,
        both: tuple[FixedRows, FixedRows] | None,
    ) -> list[TableRows] | None:
        """Table rows to rotate by without tracing, gradients or copies, where that is possible."""
        if both is None or self._impl != "native" or not ops.is_plain(xs, gradless=True):
            return None
        if xs[0].dtype == torch.float64 or call.reference is not None:
            return None
        if call.inverse and (self._growth is not None or both[0].turns.scale != 1.0):
            return None
        rows = both[call.role].shortcut(where[0], xs[0].shape[2])
        if rows is None or len(xs) == 1:
            return None if rows is None else [rows]
        if call.key_positions is None and both[1] is both[0]:
            return [rows, rows]
        key_rows = both[KEY].shortcut(where[1], xs[1].shape[2])
        return None if key_rows is None else [rows, key_rows]

    def _rows(
        self,
        where: list[ResolvedPositions],
        xs: Sequence[Tensor],
        call: RotationCall,
        both: tuple[FixedRows, FixedRows] | None,
    ) -> list[Tensor]:
        """cos and sin for each of ``xs``."""
        device, dtype = xs[0].device, choose_table_dtype(xs[0])
        power = -1 if call.inverse else 1
        lengths = [x.shape[2] for x in xs]
        plain = self._growth is None and call.reference is None
        undone = power == -1 and not (plain and both is not None and both[0].turns.scale == 1.0)
        if both is not None and call.reference is None and not undone:
            rows = both[call.role].rows(where[0], lengths[0], dtype)
            if len(xs) == 1:
                return [rows]
            if call.key_positions is None and plain:
                return [rows, rows]
            return [rows, both[KEY].rows(where[1], lengths[1], dtype)]
        context_length = call.context_length
        if context_length is None and self._follows_length:
            context_length = self._longest(where, lengths)
        made: list[Tensor] = []
        for n, (place, length) in enumerate(zip(where, lengths, strict=True)):
            if n and plain and call.key_positions is None:
                return [made[0], made[0]]
            role = call.role if len(xs) == 1 else n
            turns = self._turns(context_length, type(self).__name__, role, power).on(device)
            made.append(
                turns.entries(
                    place, length, dtype, _compute_reference_factor(call, role, power, device)
                )
            )
        return made

    def _tables(self, call: RotationCall) -> tuple[Tensor, Tensor]:
        label, positions = f"{type(self).__name__}.tables", call.positions
        axes = self.position_axes
        batch, length = check_positions(positions, label, axes)
        assert positions is not None
        where = resolve(positions, 0, batch, length, positions.device, label, axes)
        if self.config.table == "precomputed":
            check_table(*where, length, self.config.table_length, label)
        check_context(call.context_length, label)
        like = torch.empty(batch, 0, length, 0, device=positions.device, dtype=torch.float32)
        angles = self._angles_for([where], [like], call)
        rows = self._rows([where], [like], call, angles)[0]
        if rows.dim() == 3:  # a single row of positions keeps its axis
            several = axes > 1 and positions.dim() > 1
            rows = rows.expand(*positions.shape[several:], *rows.shape[-2:])
        return rows[..., 0, :], rows[..., 1, :]

    def _angles_on(self, device: torch.device) -> tuple[FixedRows, FixedRows]:
        assert self._angles is not None
        if device.type == "cpu":
            return self._angles
        if self._moved is None or self._moved[0].turns.inv_freq.device != device:
            query, key = self._angles
            first = query.on(device)
            moved = first, (first if key is query else key.on(device))
            if not torch.compiler.is_compiling():
                self._moved = moved
            return moved
        return self._moved

    def _turn_rotated(self, k: Tensor, rows: Tensor) -> Tensor:
        """Turn what is rotated already: it is in the layout that the rotation wrote."""
        length, band = k.shape[2], self._band
        rows = rows.expand(*rows.shape[:-3], length, *rows.shape[-2:])
        written = RotatedChannels(band.out_layout, band.out_layout, band.start)
        return self._turn([k], [rows], written, False, None)[0]


def _compute_reference_factor(
    call: RotationCall, role: int, power: int, device: torch.device
) -> Tensor | None:
    """log2 of the constant factor that the reference puts on queries or on keys."""
    if call.reference is None:
        return None
    return call.reference.to(device) * (power if role == KEY else -power)


def _use_short_frequencies(
    scaled: Frequencies, scaling: Scaling, ladder: Ladder, context_length: Tensor
) -> Frequencies:
    """The frequencies of a short context, to the last bit, in rows that have one."""
    if scaling.short_up_to is None:
        return scaled
    short = scaling.frequencies(ladder, None)
    within = context_length <= scaling.short_up_to
    near = short.inv_freq.to(within.device)
    inv_freq = torch.where(within.unsqueeze(-1), near, scaled.inv_freq)
    scale = scaled.attention_scale
    if isinstance(scale, Tensor):
        scale = torch.where(within, torch.full_like(scale, float(short.attention_scale)), scale)
    return Frequencies(inv_freq, scale)
