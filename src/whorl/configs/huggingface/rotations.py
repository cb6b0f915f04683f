"""From rope parameters and sizes to the rotation of a group of layers."""

from dataclasses import dataclass, field
from typing import Any

from whorl.configs._values import MOST_CHANNELS, Keys, sound
from whorl.configs.model import ConfigError, Parity, Rotation
from whorl.scaling.yarn import compute_mscale

from .families import Family
from .followed import refused
from .layers import FULL
from .scalings import Lengths, scaling_of
from .schema import need_base
from .sizes import full_head_width, head_width, rotated_width

__all__ = ["Rotating", "softmax_scale"]


@dataclass(frozen=True)
class Rotating:
    """Makes rotations for the layers of one config."""

    keys: Keys
    family: Family
    parity: Parity | None
    _sound: set[str] = field(default_factory=set)  # options that were built already

    def rotation(
        self, rope: Keys, label: str | None, kind: str | None, notes: list[str]
    ) -> Rotation:
        """The rotation by the parameters of a label in layers of a kind; adds ids of notes."""
        head = self._head(kind)
        width = self._width(rope, head, notes)
        base = need_base(rope)
        options: dict[str, Any] = {"head_dim": head, "base": base, **self._layout()}
        scaling = scaling_of(rope, self._lengths(label))
        if width % 2 and width != head:
            notes.append("odd-rotary-width")
            self._check_odd(rope, width)
            options["inv_freq"] = _odd_ladder(width, rope)
            width += 1
        if width != head:
            options["rotary_dim"] = width
            if self.family.place == "tail":
                options["rotary_start"] = head - width
        if scaling is not None:
            options["scaling"] = scaling
            if getattr(scaling, "ramp", None) == "backward":
                notes.append("backward-ramp")
            if scaling.follows_length and self.parity == "transformers":
                options["lengths"] = "batch"
        return self._checked(Rotation("rope", options), rope)

    def _check_odd(self, rope: Keys, width: int) -> None:
        """Scalings whose formula has the width in it, which pairs alone do not tell."""
        if self.parity is None:
            return
        if rope.text("rope_type") == "yarn":
            raise refused(f"its ramp has {width // 2} entries for {(width + 1) // 2} pairs")
        if rope.text("rope_type") == "dynamic":
            raise ConfigError(
                f"read_config: {rope.where or 'rope_parameters'}: dynamic of an odd number of"
                f" rotated channels ({width}) stretches otherwise in transformers, and no scaling"
                " here does; choose a share that makes them even."
            )

    def _checked(self, rotation: Rotation, rope: Keys) -> Rotation:
        """The same; what could not be built later is refused now."""
        key = repr(rotation)
        if key not in self._sound:
            try:
                sound(rotation)
            except ConfigError as error:
                why = str(error).removeprefix("read_config: ")
                where = rope.where or "rope_parameters"
                raise ConfigError(f"read_config: {where}: {why}") from None
            self._sound.add(key)
        return rotation

    def _head(self, kind: str | None) -> int:
        usual = self.family.full_head
        if kind == FULL and usual is not None:
            return full_head_width(self.keys, usual)
        return head_width(self.keys, self.family.head)

    def _layout(self) -> dict[str, Any]:
        """Options that differ from those of RoPE."""
        family = self.family
        options: dict[str, Any] = {}
        layout, out_layout = family.layout, family.out_layout
        if out_layout is not None and not self.keys.flag("rope_interleave", default=True):
            layout, out_layout = out_layout, None  # the switch of the DeepSeek-V3 family
        if family.interleaved and self.parity is None and self.keys.flag(family.interleaved):
            layout = "interleaved"
        if layout != "half":
            options["layout"] = layout
        if out_layout is not None:
            options["out_layout"] = out_layout
        if family.turn == "backward":
            options["direction"] = "backward"
        return options

    def _width(self, rope: Keys, head: int, notes: list[str]) -> int:
        """Rotated channels, odd where a config's share makes them so."""
        if self.family.absolute is not None:
            return self._absolute(head)
        share = rope.number("partial_rotary_factor")
        kind = rope.text("rope_type")
        if kind == "proportional":
            return head
        if (
            share is not None
            and share != 1
            and kind == "default"
            and self.family.partial == "blind"
        ):
            notes.append("partial-ignored")
            share = None if self.parity == "transformers" else share
        return head if share is None else rotated_width(head, share, rope)

    def _absolute(self, head: int) -> int:
        if self.family.absolute == "clvp":
            wide = self.keys.whole("projection_dim", most=MOST_CHANNELS) or head
            heads = self.keys.whole("num_attention_heads") or 1
            return max(wide // (2 * heads), 32)
        width = self.keys.whole(self.family.absolute or "", most=MOST_CHANNELS)
        return head if width is None else width

    def _lengths(self, label: str | None) -> Lengths:
        truncate = None
        if self.parity == "transformers" and label is not None:
            # It looks for the key beside the dictionaries of the layer types, not inside.
            given = self.keys.under("rope_parameters")
            truncate = True if given is None else given.flag("truncate", default=True)
        return Lengths(self.keys.whole("max_position_embeddings"), truncate, self.parity)


def softmax_scale(rope: Keys) -> float:
    """g(s, mscale_all_dim)^2, on the softmax scale of latent attention; see YaRN for g."""
    weight, factor = rope.number("mscale_all_dim"), rope.number("factor", above=0)
    if rope.text("rope_type") == "default" or not weight or factor is None or factor <= 1:
        return 1.0
    scale = compute_mscale(factor, weight)
    if not 0 < scale <= 1e100:
        raise rope.refused("mscale_all_dim", "a weight that leaves the softmax scale a number")
    return scale * scale


def _odd_ladder(width: int, rope: Keys) -> tuple[float, ...]:
    """base^(-2 i / R) for an odd R, pairs rounded up."""
    try:
        return tuple(need_base(rope) ** (-2 * i / width) for i in range((width + 1) // 2))
    except OverflowError:
        raise rope.refused("rope_theta", "a base whose powers are numbers") from None
