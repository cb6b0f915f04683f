"""The class that RoPE and its relatives extend: the calls that users make, and how they run.

    positions -> frequencies -> rows of cos and sin -> kernel or operator

``call`` checks the arguments and resolves positions, ``frequencies`` applies the scaling,
``row_builder`` and ``row_tables`` give the rows, ``whorl.kernels`` rotates.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings.base import Encoding, get_classes
from whorl.kernels import direct, native, ops, tables
from whorl.kernels.native import RotatedChannels
from whorl.kernels.row_table import Table
from whorl.kernels.tables import choose_table_dtype
from whorl.positions import resolve
from whorl.scaling import Description, Frequencies, Ladder
from whorl.scaling.describe import describe_scaling, resolve_original_context
from whorl.types import Impl, Precision

from .bound_rotation import BoundRotation
from .call import KEY, QUERY, ResolvedPositions, RotationCall, resolve_positions
from .checks import (
    check_context,
    check_delta,
    check_frequencies,
    check_input,
    check_no_gradient,
    check_outputs,
    check_positions,
    check_table,
)
from .config import RotaryConfig, TableStrategy
from .frequencies import scale_frequencies
from .heads import rotate_by_head
from .rotation_rows import RotationRows
from .row_builder import RowBuilder

if TYPE_CHECKING:
    from whorl.configs.model import Parity

__all__ = ["KEY", "QUERY", "Rotary", "RotationCall"]

R_ = TypeVar("R_", bound="Rotary")


class Rotary(Encoding):
    """A rotation of queries and keys; a subclass has its options and its frequencies.

    A subclass sets ``_ladder``, and ``_axes`` and ``_growth`` if it has them, in ``_prepare``.
    All private fields follow from the config, so none of them is saved or cast.
    """

    config: RotaryConfig

    _ladder: Ladder  # unscaled frequencies
    _axes: Tensor | None = None  # the axis of the positions that each pair rotates by, int64 [P]
    _growth: Tensor | None = None  # log2 of the factor on queries per position, float64 [P]
    _impl: str
    _channels: RotatedChannels
    _rows: RotationRows
    _offset_table: Table | None = None  # what a call with an offset alone reads, if one table does

    _DERIVED: ClassVar[tuple[str, ...]] = (
        *("_ladder", "_axes", "_growth", "_impl", "_channels", "_rows", "_offset_table"),
    )

    @classmethod
    def from_config(
        cls: type[R_],
        x: Any,
        *,
        layer_type: str | None = None,
        layer: int | None = None,
        precision: Precision = "float64",
        parity: "Parity | None" = None,
        table: TableStrategy = "hybrid",
        table_length: int = 4096,
        impl: Impl = "auto",
    ) -> R_:
        """The rotation that the config of a model describes; see ``whorl.read_config``.

        Args:
            x: a file or folder, a dictionary, a config object of transformers, or a name such as
                "Qwen/Qwen3-8B" (see ``whorl.read_config``).
            layer_type, layer: which layers, where a model has several kinds: "full_attention", or
                a layer's number.
            precision: "float32" for bit parity with models that form their angles so.
            parity: "transformers" gives its results also where they differ from the config.
        """
        from whorl.configs import ConfigError, read_config

        found = read_config(x, parity=parity)
        group = found.group(layer_type, layer)
        rotation = group.rotation
        if rotation is None:
            said = group.refusal or " ".join(note.text for note in group.notes)
            raise ConfigError(f"{cls.__name__}.from_config: nothing to build. {said}")
        right = get_classes()[rotation.encoding]
        if not issubclass(cls, right):
            raise ConfigError(
                f"{cls.__name__}.from_config: {found.model_type or 'this model'} rotates by"
                f" {right.__name__}; call {right.__name__}.from_config, or read_config(...).build()"
                " for whatever it is."
            )
        how = {"precision": precision, "table": table, "table_length": table_length, "impl": impl}
        return cls(**{**rotation.options, **how})

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
        call = RotationCall(positions, key_positions, offset, context_length)
        rotated = self._rotate((q, k), call, out)
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
        self._rotate(pair, RotationCall(positions, key_positions, offset, context_length), pair)
        return pair

    def bind(
        self, q: Tensor, k: Tensor, *, out: tuple[Tensor, Tensor] | None = None
    ) -> BoundRotation:
        """Prepare a call for tensors that stay at their addresses, such as buffers of decoding.

        The result rotates q and k in place, or into ``out``, at the offset that it is called with:
        ``step = rope.bind(q, k)``, then ``step(offset)``. Shapes and strides must not change.
        """
        name, outs = type(self).__name__, (q, k) if out is None else out
        self._resolve_positions((q, k), RotationCall())
        check_outputs(outs, (q, k), name)
        return BoundRotation(self, q, k, outs)

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
        call = RotationCall(positions, None, offset, context_length, bool(inverse))
        return self._rotate((x,), call, None if out is None else (out,))[0]

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
        self._rotate(
            single, RotationCall(positions, None, offset, context_length, bool(inverse)), single
        )
        return x

    def shift(
        self, k: Tensor, delta: int | Tensor, *, context_length: int | Tensor | None = None
    ) -> Tensor:
        """Move rotated keys by ``delta`` positions: an int, [B], or [B, S]; fractions are allowed.

        Rotations add up, so keys of position p become those of p + delta; the attention scale that
        they carry stays. In half precision shift once by the sum, not step by step.
        """
        label = f"{type(self).__name__}.shift"
        batch, length = check_input(k, self.config.head_dim, label, "k")
        delta = check_delta(delta, batch, length, k.device, label, self.position_axes)
        moved = resolve(delta, 0, batch, delta.shape[-1], k.device, label, self.position_axes)
        check_context(context_length, label, batch)
        builder = self._make_row_builder(context_length, KEY, 1, label)._replace(scale=1.0)
        rows = builder.move_to(k.device).build_rows(moved, 1, choose_table_dtype(k))
        return self._rotate_again(k, rows)

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

        Rotates pair i by p (new_i - old_i) and multiplies by a_new / a_old; the frequencies are
        those of ``rope.frequencies(...)``. In half precision retune a key once, from ``old`` to the
        last ``new``, not in many steps.
        """
        label = f"{type(self).__name__}.retune"
        batch, length = check_input(k, self.config.head_dim, label, "k")
        for name, f in (("old", old), ("new", new)):
            check_frequencies(f, name, batch, self.config.width // 2, label)
        axes = self.position_axes
        values, first = resolve(positions, offset, batch, length, k.device, label, axes)
        along = None if values is None or self._axes is None else self._axes.to(k.device)
        if values is None:
            values = torch.arange(first, first + length, device=k.device)
        after, before = (
            tables.compute_angles(
                values, f.inv_freq.to(k.device), self.config.precision, along
            ).double()
            for f in (new, old)
        )
        scale = new.attention_scale / old.attention_scale
        return self._rotate_again(
            k, tables.compute_rows(after - before, scale, choose_table_dtype(k))
        )

    def tables(
        self, positions: Tensor, *, context_length: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin, float32 [T, R/2] or [B, T, R/2], with the attention scale multiplied in."""
        return self._build_tables(RotationCall(positions, context_length=context_length))

    def frequencies(self, context_length: int | Tensor | None = None) -> Frequencies:
        """Frequencies in force: inv_freq float64 [R/2] (or [B, R/2]) and the attention scale.

        context_length matters to scalings that follow it; None stands for a short context.
        """
        label = f"{type(self).__name__}.frequencies"
        found = self._compute_frequencies(context_length, label, default_short=True)
        return Frequencies(found.inv_freq.to(torch.float64, copy=True), found.attention_scale)

    def describe(
        self, context_length: int | None = None, *, original_context: int | None = None
    ) -> Description:
        """Which pairs the scaling leaves, blends and interpolates, and up to which length it works.

        ``print`` makes a table of it. context_length: for scalings that follow it;
        original_context: the length of training, where the scaling does not know it.
        """
        label = f"{type(self).__name__}.describe"
        if context_length is not None and type(context_length) is not int:
            raise ValueError(
                f"{label}: context_length must be an int; got {quote(context_length)}."
            )
        scaling = self.config.scaling
        own = getattr(scaling, "original_context", None)
        found = self._compute_frequencies(context_length, label, default_short=True)
        return describe_scaling(
            "no scaling" if scaling is None else repr(scaling),
            before=self._ladder.inv_freq,
            after=Frequencies(found.inv_freq.detach(), found.attention_scale),
            full_factor=None if scaling is None else scaling.full_factor(context_length),
            original_context=resolve_original_context(original_context, own, type(self).__name__),
            context_length=context_length,
        )

    def _prepare(self) -> None:
        """Set ``_ladder``, and ``_axes`` and ``_growth`` if the encoding has them."""
        raise NotImplementedError

    @property
    def _is_trained(self) -> bool:
        """Whether the frequencies are parameters."""
        return False

    @property
    def _reads_tables(self) -> bool:
        """Whether the kernel can rotate all channels of a call by rows of a table."""
        return True

    def _derive(self) -> None:
        """Set all that follows from the config."""
        config, name = self.config, type(self).__name__
        with torch.inference_mode(False):  # constants must serve training later
            self._impl = ops.choose_impl(config.impl, name)
            layout = config.layout
            self._channels = RotatedChannels(
                layout, config.out_layout or layout, config.rotary_start
            )
            self._prepare()
            # A scaling may not fit these frequencies: the error belongs here, not in a call.
            self._compute_frequencies(None, name, default_short=True)
            self._rows = RotationRows(
                self._make_row_builder,
                config,
                self.config.scaling,
                trained=self._is_trained,
                differ_by_role=self._growth is not None,
                axes=self.position_axes,
            )
            shared = self._rows.shared_table if self._axes is None else None
            self._offset_table = shared if self._impl == "native" else None

    def _compute_frequencies(
        self, context_length: int | Tensor | None, where: str, default_short: bool = False
    ) -> Frequencies:
        """Frequencies in the dtype of the ladder, with gradients if they are trained."""
        return scale_frequencies(
            self._ladder, self.config.scaling, context_length, where, default_short
        )

    def _make_row_builder(
        self, context_length: int | Tensor | None, role: int, power: int, where: str | None = None
    ) -> RowBuilder:
        """What builds the rows of queries or keys; -1 as ``power`` undoes every factor."""
        f = self._compute_frequencies(context_length, where or type(self).__name__)
        scale, growth = f.attention_scale**power, self._growth
        if growth is not None:
            growth = growth * (power if role == QUERY else -power)
        native = self._impl == "native"
        return RowBuilder(f.inv_freq, scale, self.config.precision, self._axes, growth, native)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self._DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._derive()

    def _rotate(
        self, xs: tuple[Tensor, ...], call: RotationCall, outs: tuple[Tensor, ...] | None
    ) -> list[Tensor]:
        """Rotated ``xs``, new or in ``outs``.

        Ordinary tensors at an offset go straight to the kernel, which reads the table. Every other
        call is checked, and ``ops.choose_route`` decides once how its tensors are rotated: by the
        kernel, with rows that it reads in a table, or with rows that are tensors.
        """
        positions, key_positions, offset, context_length, inverse, _, _ = call
        table, default = self._offset_table, context_length is None and not inverse
        consecutive = positions is None and key_positions is None and type(offset) is int
        if table is not None and consecutive and default:
            width = self.config.head_dim
            done = direct.rotate(xs, outs, table, offset, self._channels, width)  # type: ignore[arg-type]  # an int
            if done is not None:
                return done
        name = type(self).__name__
        resolved = self._resolve_positions(xs, call)
        if context_length is not None:
            check_context(context_length, name, xs[0].shape[0])
        disjoint = outs is not None and check_outputs(outs, xs, name)
        channels = self._channels.reverse() if inverse else self._channels
        fixed = self._rows.choose_fixed(resolved, xs, call)
        route = ops.choose_route(xs, self._impl)
        if route == "kernel" and self._reads_tables:
            table_rows = self._rows.find_in_tables(resolved, xs, call, fixed)
            if table_rows is not None:
                done = native.rotate(xs, outs, table_rows, channels, inverse, disjoint=disjoint)
                if done is None:  # the rows were there when they were looked for
                    raise RuntimeError(native.CHANGED_POSITIONS)
                return done
        rows = self._rows.build(resolved, xs, call, fixed, self._make_row_builder)
        if outs is not None:
            check_no_gradient(rows, name)
        return self._rotate_by_rows(xs, rows, channels, inverse, outs, route)

    def _resolve_positions(
        self, xs: tuple[Tensor, ...], call: RotationCall
    ) -> list[ResolvedPositions]:
        """Check inputs and resolve the positions of each."""
        return resolve_positions(xs, call, self.config, self.position_axes, type(self).__name__)

    def _rotate_by_rows(
        self,
        xs: Sequence[Tensor],
        rows: Sequence[Tensor],
        channels: RotatedChannels,
        inverse: bool,
        outs: Sequence[Tensor] | None,
        route: ops.Route | None = None,
    ) -> list[Tensor]:
        """Rotate each of ``xs`` by its rows of cos and sin."""
        if rows[0].dim() == 5:
            return rotate_by_head(xs, rows, channels, inverse, self._impl, outs)
        return ops.rotate(xs, rows, channels, inverse, self._impl, outs, route)

    def _rotate_again(self, k: Tensor, rows: Tensor) -> Tensor:
        """Rotate what is rotated already: it is in the layout that the rotation wrote."""
        length, channels = k.shape[2], self._channels
        rows = rows.expand(*rows.shape[:-3], length, *rows.shape[-2:])
        written = RotatedChannels(channels.out_layout, channels.out_layout, channels.start)
        return self._rotate_by_rows([k], [rows], written, False, None)[0]

    def _build_tables(self, call: RotationCall) -> tuple[Tensor, Tensor]:
        """cos and sin of ``call.positions``, which come without a tensor to rotate."""
        label, positions = f"{type(self).__name__}.tables", call.positions
        axes = self.position_axes
        batch, length = check_positions(positions, label, axes)
        assert positions is not None
        where = resolve(positions, 0, batch, length, positions.device, label, axes)
        if self.config.table == "precomputed":
            check_table(*where, length, self.config.table_length, label)
        check_context(call.context_length, label)
        like = torch.empty(batch, 0, length, 0, device=positions.device, dtype=torch.float32)
        fixed = self._rows.choose_fixed([where], [like], call)
        rows = self._rows.build([where], [like], call, fixed, self._make_row_builder)[0]
        if rows.dim() == 3:  # a single row of positions keeps its axis
            several = axes > 1 and positions.dim() > 1
            rows = rows.expand(*positions.shape[several:], *rows.shape[-2:])
        return rows[..., 0, :], rows[..., 1, :]
