"""Build the rotation of a group of layers from rope parameters and sizes."""

from dataclasses import dataclass, field
from typing import Any

from whorl.configs._values import MOST_CHANNELS, Keys, check_rotation
from whorl.configs.model import ConfigError, Parity, Rotation
from whorl.scaling.yarn import compute_mscale

from .families import Family
from .layers import FULL
from .parity import make_refusal
from .scalings import ScalingInputs, build_scaling
from .schema import require_base
from .sizes import compute_rotated_width, read_full_head_width, read_head_width

__all__ = ["RotationBuilder", "compute_softmax_scale"]


@dataclass(frozen=True)
class RotationBuilder:
    """Builds rotations for the layers of one config."""

    keys: Keys
    family: Family
    parity: Parity | None
    _sound: set[str] = field(default_factory=set)  # rotations that were checked already

    def build(self, rope: Keys, label: str | None, kind: str | None, notes: list[str]) -> Rotation:
        """The rotation of layers of a type by rope parameters; appends ids to ``notes``."""
        head = self._read_head_dim(kind)
        width = self._count_rotated(rope, head, notes)
        base = require_base(rope)
        options: dict[str, Any] = {"head_dim": head, "base": base, **self._choose_layout()}
        scaling = build_scaling(rope, self._read_inputs(label))
        if width % 2 and width != head:
            notes.append("odd-rotary-width")
            self._check_odd(rope, width)
            options["inv_freq"] = _compute_odd_frequencies(width, rope)
            width += 1
        if width != head:
            options["rotary_dim"] = width
            if self.family.position == "tail":
                options["rotary_start"] = head - width
        if scaling is not None:
            options["scaling"] = scaling
            if getattr(scaling, "ramp", None) == "backward":
                notes.append("backward-ramp")
            if scaling.follows_length and self.parity == "transformers":
                options["lengths"] = "batch"
        return self._check(Rotation("rope", options), rope)

    def _check_odd(self, rope: Keys, width: int) -> None:
        """Refuse scalings whose formula in transformers depends on an odd number of channels."""
        if self.parity is None:
            return
        if rope.read_text("rope_type") == "yarn":
            raise make_refusal(f"its ramp has {width // 2} entries for {(width + 1) // 2} pairs")
        if rope.read_text("rope_type") == "dynamic":
            raise ConfigError(
                f"{rope.where or 'rope_parameters'}: dynamic scaling of an odd number"
                f" of rotated channels ({width}) has another formula in transformers, not in whorl;"
                " choose a partial_rotary_factor that makes the number even."
            )

    def _check(self, rotation: Rotation, rope: Keys) -> Rotation:
        """The same rotation, after a check that it can be built."""
        key = repr(rotation)
        if key not in self._sound:
            try:
                check_rotation(rotation)
            except ConfigError as error:
                why = str(error)
                where = rope.where or "rope_parameters"
                raise ConfigError(f"{where}: {why}") from None
            self._sound.add(key)
        return rotation

    def _read_head_dim(self, kind: str | None) -> int:
        usual = self.family.full_head
        if kind == FULL and usual is not None:
            return read_full_head_width(self.keys, usual)
        return read_head_width(self.keys, self.family.head)

    def _choose_layout(self) -> dict[str, Any]:
        """Options for layout and direction that differ from the defaults of RoPE."""
        family = self.family
        options: dict[str, Any] = {}
        layout, out_layout = family.layout, family.out_layout
        if out_layout is not None and not self.keys.read_flag("rope_interleave", default=True):
            layout, out_layout = out_layout, None  # a key of the DeepSeek-V3 family
        if family.interleaved and self.parity is None and self.keys.read_flag(family.interleaved):
            layout = "interleaved"
        if layout != "half":
            options["layout"] = layout
        if out_layout is not None:
            options["out_layout"] = out_layout
        if family.direction == "backward":
            options["direction"] = "backward"
        return options

    def _count_rotated(self, rope: Keys, head: int, notes: list[str]) -> int:
        """Number of rotated channels; odd if the share in the config makes it odd."""
        if self.family.absolute is not None:
            return self._read_rotated_channels(head)
        share = rope.read_number("partial_rotary_factor")
        kind = rope.read_text("rope_type")
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
        return head if share is None else compute_rotated_width(head, share, rope)

    def _read_rotated_channels(self, head: int) -> int:
        if self.family.absolute == "clvp":
            wide = self.keys.read_int("projection_dim", most=MOST_CHANNELS) or head
            heads = self.keys.read_int("num_attention_heads") or 1
            return max(wide // (2 * heads), 32)
        width = self.keys.read_int(self.family.absolute or "", most=MOST_CHANNELS)
        return head if width is None else width

    def _read_inputs(self, label: str | None) -> ScalingInputs:
        truncate = None
        if self.parity == "transformers" and label is not None:
            # transformers reads the key beside the dictionaries of the layer types, not inside.
            given = self.keys.read_object("rope_parameters")
            truncate = True if given is None else given.read_flag("truncate", default=True)
        return ScalingInputs(self.keys.read_int("max_position_embeddings"), truncate, self.parity)


def compute_softmax_scale(rope: Keys) -> float:
    """Factor g(s, mscale_all_dim)^2 on the softmax scale of latent attention; see YaRN for g."""
    weight, factor = rope.read_number("mscale_all_dim"), rope.read_number("factor", above=0)
    if rope.read_text("rope_type") == "default" or not weight or factor is None or factor <= 1:
        return 1.0
    scale = compute_mscale(factor, weight)
    if not 0 < scale <= 1e100:
        raise rope.wrong_value("mscale_all_dim", "a weight for which the softmax scale is finite")
    return scale * scale


def _compute_odd_frequencies(width: int, rope: Keys) -> tuple[float, ...]:
    """Frequencies base^(-2 i / R) for an odd R; the number of pairs is rounded up."""
    try:
        return tuple(require_base(rope) ** (-2 * i / width) for i in range((width + 1) // 2))
    except OverflowError:
        raise rope.wrong_value("rope_theta", "a base whose powers are finite") from None
