"""The rows of cos and sin that a call rotates by: read from tables, or built for the call."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from whorl.kernels.row_table import Table, TableRows
from whorl.kernels.tables import choose_table_dtype
from whorl.scaling import Scaling

from .call import KEY, QUERY, ResolvedPositions, RotationCall, find_context_length
from .config import RotaryConfig
from .row_builder import RowBuilder
from .row_tables import FixedRows, RowsByLength

__all__ = ["RotationRows"]

#: Called with a context length, QUERY or KEY, and the power of all factors, 1 or -1.
MakeBuilder = Callable[[int | Tensor | None, int, int], RowBuilder]


class RotationRows:
    """Rows for the calls of one rotation.

    fixed: those of queries and of keys; None if frequencies are trained or follow the context
    length. by_length: if they follow it in stages.
    """

    def __init__(
        self,
        make_builder: MakeBuilder,
        config: RotaryConfig,
        scaling: Scaling | None,
        *,
        trained: bool,
        differ_by_role: bool,
        axes: int,
    ) -> None:
        self._config = config
        self._differ_by_role, self._axes = differ_by_role, axes
        self._follows_length = scaling is not None and bool(scaling.follows_length)
        self.fixed: tuple[FixedRows, FixedRows] | None = None
        self.by_length: RowsByLength | None = None
        self._moved: tuple[FixedRows, FixedRows] | None = None  # on the device of the last call
        if trained:
            return
        if not self._follows_length:
            query = self._tabulate(make_builder(None, QUERY, 1))
            key = self._tabulate(make_builder(None, KEY, 1)) if differ_by_role else query
            self.fixed = query, key
        elif scaling is not None and (limit := scaling.short_context_limit) is not None:
            short = self._tabulate(make_builder(1, QUERY, 1))
            long = None
            if scaling.fixed_past_limit:
                long = self._tabulate(make_builder(limit + 1, QUERY, 1))
            self.by_length = RowsByLength(limit, short, long)

    def _tabulate(self, builder: RowBuilder) -> FixedRows:
        kind, length = self._config.table, self._config.table_length
        return FixedRows(builder, 0 if kind == "on_the_fly" else length, kind != "precomputed")

    @property
    def shared_table(self) -> Table | None:
        """The table of every call, if there is one for queries and keys alike."""
        return None if self.fixed is None or self._differ_by_role else self.fixed[QUERY].table

    def choose_fixed(
        self, positions: Sequence[ResolvedPositions], xs: Sequence[Tensor], call: RotationCall
    ) -> tuple[FixedRows, FixedRows] | None:
        """Rows of queries and keys for the call; None if frequencies are trained or follow it."""
        device = xs[0].device
        if self.fixed is not None:
            return self.fixed if device.type == "cpu" else self._move_fixed(self.fixed, device)
        if self.by_length is None or device.type != "cpu" or torch.compiler.is_compiling():
            return None
        length = call.context_length
        if length is None:
            length = self._find_context_length(positions, xs)
        rows = self.by_length.choose(length)
        return None if rows is None else (rows, rows)

    def _move_fixed(
        self, fixed: tuple[FixedRows, FixedRows], device: torch.device
    ) -> tuple[FixedRows, FixedRows]:
        if self._moved is not None and self._moved[0].builder.inv_freq.device == device:
            return self._moved
        query = fixed[QUERY].move_to(device)
        moved = query, fixed[KEY].move_to(device) if self._differ_by_role else query
        if not torch.compiler.is_compiling():
            self._moved = moved
        return moved

    def _find_context_length(
        self, positions: Sequence[ResolvedPositions], xs: Sequence[Tensor]
    ) -> int | Tensor:
        """The context length of a call that does not state it: of each row, or of the batch."""
        now = find_context_length(positions, [x.shape[2] for x in xs], self._axes)
        batch = getattr(self._config, "lengths", "rows") == "batch"
        if not batch or not isinstance(now, Tensor):
            return now
        if torch.compiler.is_compiling() or now.numel():
            return now.amax()
        return 1  # of no rows

    def find_in_tables(
        self,
        positions: Sequence[ResolvedPositions],
        xs: Sequence[Tensor],
        call: RotationCall,
        fixed: tuple[FixedRows, FixedRows] | None,
    ) -> list[TableRows] | None:
        """Rows that the kernel reads in a table or builds itself, for each of ``xs``; else None."""
        if fixed is None or xs[0].dtype == torch.float64 or not self._serve(fixed, call):
            return None
        rows = fixed[call.role].find_kernel_rows(positions[0], xs[0].shape[2])
        if rows is None or len(xs) == 1:
            return None if rows is None else [rows]
        if call.key_positions is None and not self._differ_by_role:
            return [rows, rows]
        key_rows = fixed[KEY].find_kernel_rows(positions[1], xs[1].shape[2])
        return None if key_rows is None else [rows, key_rows]

    def _serve(self, fixed: tuple[FixedRows, FixedRows], call: RotationCall) -> bool:
        """Whether fixed rows are right for the call: it has no exponent and undoes no factor."""
        if call.key_exponent is not None:
            return False
        return not call.inverse or not (self._differ_by_role or fixed[QUERY].builder.scale != 1.0)

    def build(
        self,
        positions: Sequence[ResolvedPositions],
        xs: Sequence[Tensor],
        call: RotationCall,
        fixed: tuple[FixedRows, FixedRows] | None,
        make_builder: MakeBuilder,
    ) -> list[Tensor]:
        """cos and sin for each of ``xs`` as tensors: from a table if it has them, else built."""
        dtype = choose_table_dtype(xs[0])
        shared = call.key_positions is None and not self._differ_by_role
        served = fixed if fixed is not None and self._serve(fixed, call) else None
        context_length = call.context_length
        if served is None and context_length is None and self._follows_length:
            context_length = self._find_context_length(positions, xs)
        rows: list[Tensor] = []
        for n, (where, x) in enumerate(zip(positions, xs, strict=True)):
            if n and shared:
                return [rows[0], rows[0]]
            role = call.role if len(xs) == 1 else n
            if served is not None:
                rows.append(served[role].look_up_rows(where, x.shape[2], dtype))
                continue
            power = -1 if call.inverse else 1
            builder = make_builder(context_length, role, power)
            exponent = None
            if call.key_exponent is not None:
                exponent = call.key_exponent.to(x.device) * (power if role == KEY else -power)
            moved = builder.move_to(x.device)
            rows.append(moved.build_rows(where, x.shape[2], dtype, exponent))
        return rows
