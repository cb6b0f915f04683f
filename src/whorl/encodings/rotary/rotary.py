"""What rotations share: the calls that users make."""

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings.base import get_classes
from whorl.kernels import tables
from whorl.kernels.tables import choose_table_dtype
from whorl.positions import resolve
from whorl.scaling import Description, Frequencies
from whorl.scaling.describe import describe, known_context
from whorl.types import Impl, Precision

from .bound import BoundRotation
from .checks import check_context, check_delta, check_frequencies, check_input, check_outputs
from .config import TableStrategy
from .rotation import KEY, QUERY, Rotation, RotationCall

if TYPE_CHECKING:
    from whorl.configs.model import Parity

__all__ = ["KEY", "QUERY", "Rotary", "RotationCall"]

R_ = TypeVar("R_", bound="Rotary")


class Rotary(Rotation):
    """A rotation of queries and keys; a subclass has its options and its frequencies."""

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
        """The rotation of a model, from its config; ``whorl.read_config`` says what else it does.

        Args:
            x: a file or folder, a dictionary, or a config object of transformers.
            layer_type, layer: which layers, where a model has several kinds: "full_attention", or
                a layer's number.
            precision: "float32" for bit parity with models that form their angles so.
            parity: "transformers" repeats its mistakes where it has some.
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
        """Prepare a call for tensors that stay where they are, such as a decode loop's buffers.

        The result rotates q and k in place, or into ``out``, at the offset that it is called with:
        ``step = rope.bind(q, k)``, then ``step(offset)``. Shapes and strides must stay as they are.
        """
        name, outs = type(self).__name__, (q, k) if out is None else out
        self._where((q, k), RotationCall())
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
        """Move rotated keys by ``delta`` positions: an int, [B], or [B, S]; fractions are welcome.

        Rotations add up, so keys of position p become those of p + delta; the attention scale that
        they carry stays. In half precision shift once by the sum, not step by step.
        """
        label = f"{type(self).__name__}.shift"
        batch, length = check_input(k, self.config.head_dim, label, "k")
        delta = check_delta(delta, batch, length, k.device, label, self.position_axes)
        where = resolve(delta, 0, batch, delta.shape[-1], k.device, label, self.position_axes)
        check_context(context_length, label, batch)
        turns = self._turns(context_length, label, KEY)._replace(scale=1.0)
        return self._turn_rotated(k, turns.on(k.device).entries(where, 1, choose_table_dtype(k)))

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
        return self._turn_rotated(
            k, tables.compute_rows(after - before, scale, choose_table_dtype(k))
        )

    def tables(
        self, positions: Tensor, *, context_length: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin, float32 [T, R/2] or [B, T, R/2], with the attention scale multiplied in."""
        return self._tables(RotationCall(positions, context_length=context_length))

    def frequencies(self, context_length: int | Tensor | None = None) -> Frequencies:
        """Frequencies in force: inv_freq float64 [R/2] (or [B, R/2]) and the attention scale.

        context_length matters to scalings that follow it; None stands for a short context.
        """
        label = f"{type(self).__name__}.frequencies"
        turns = self._frequencies(context_length, label, default_short=True)
        return Frequencies(turns.inv_freq.to(torch.float64, copy=True), turns.attention_scale)

    def describe(
        self, context_length: int | None = None, *, original_context: int | None = None
    ) -> Description:
        """Which pairs the scaling keeps, blends and interpolates, and how far it reaches.

        ``print`` makes a table of it. context_length: for scalings that follow it;
        original_context: the length of training, where the scaling does not know it.
        """
        label = f"{type(self).__name__}.describe"
        if context_length is not None and type(context_length) is not int:
            raise ValueError(
                f"{label}: context_length must be an int; got {quote(context_length)}."
            )
        scaling = getattr(self.config, "scaling", None)
        own = getattr(scaling, "original_context", None)
        found = self._frequencies(context_length, label, default_short=True)
        return describe(
            "no scaling" if scaling is None else repr(scaling),
            before=self._ladder.inv_freq,
            after=Frequencies(found.inv_freq.detach(), found.attention_scale),
            full_factor=None if scaling is None else scaling.full_factor(context_length),
            original_context=known_context(original_context, own, type(self).__name__),
            context_length=context_length,
        )
