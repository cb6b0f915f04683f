"""The result of ``identify``: the parts of a rotation, and configs that reproduce it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whorl.scaling import Scaling
from whorl.types import Layout

if TYPE_CHECKING:
    from whorl.encodings import Encoding

__all__ = ["Identification"]


@dataclass(frozen=True)
class Identification:
    """What a rotary function computes; ``print`` shows it as text.

    encoding: "rope", "xpos", "nope" if nothing rotates, None if it is no rotation of pairs.
    layout, out_layout: "half" or "interleaved", read and written; None for another pairing.
    rotary_dim, rotary_start: R and the first rotated channel.
    base, scaling: of the simplest rule that gives the frequencies; base None for a list.
    inv_freq: the frequencies as measured, for a short context; signed.
    attention_scale: the factor on rotated channels. sign: -1 if it rotates backwards.
    offset: added to every position. config: options of ``whorl.make(encoding, **config)``.
    hf: ``rope_parameters`` for transformers, None if no rope type is like it.
    role: "query" or "key" for an XPos.
    precision: the dtype whose rounding explains the measured angles; "unknown" if none does.
    error: the largest difference between the function and ``config``, on unit vectors.
    exact: whether that is within the precision of the function. departs: what is different.
    reach: tokens of the longest context that was answered. asked: the form of the calls.
    keys: the identification of keys if it differs; all other fields are about x or queries.
    """

    name: str
    encoding: str | None
    layout: Layout | None = None
    out_layout: Layout | None = None
    rotary_dim: int = 0
    rotary_start: int = 0
    base: float | None = None
    scaling: Scaling | None = None
    inv_freq: tuple[float, ...] = ()
    attention_scale: float = 1.0
    sign: int = 1
    offset: float = 0
    role: str | None = None
    error: float = float("inf")
    config: Mapping[str, Any] | None = None
    hf: Mapping[str, Any] | None = None
    precision: str = "float64"
    exact: bool = False
    reach: int = 0
    asked: str = ""
    departs: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    keys: "Identification | None" = None

    def build(self, **more: Any) -> "Encoding":
        """The encoding that ``config`` describes; ``more`` adds options such as precision=."""
        from whorl.encodings import make

        if self.encoding is None or self.config is None:
            raise ValueError(
                f"{self.name} is no rotation of pairs, so there is no encoding to build:"
                f" {'; '.join(self.departs)}."
            )
        return make(self.encoding, **{**self.config, **more})

    def describe_parts(self) -> dict[str, str]:
        """Layout, channels, frequencies, direction, scale and positions of a rotation in words."""
        names = (self.layout, self.out_layout)
        read, written = (name or "another pairing than half and interleaved" for name in names)
        rule = "a list of its own" if self.base is None else f"base {self.base:.12g}"
        if self.scaling is not None:
            rule += f", {self.scaling.name}"
        if self.inv_freq:
            first, last = self.inv_freq[0], self.inv_freq[-1]
            rule += f", {len(self.inv_freq)} from {first:.6g} to {last:.6g} radians per position"
        end = self.rotary_start + self.rotary_dim - 1
        return {
            "layout": read if read == written else f"{read} read, {written} written",
            "rotated": f"channels {self.rotary_start} to {end}",
            "frequencies": rule,
            "direction": "forwards" if self.sign > 0 else "backwards",
            "scale": f"{self.attention_scale:.9g}",
            "positions": f"as given {self.offset:+g}" if self.offset else "as given",
        }

    def to_dict(self) -> dict[str, Any]:
        """The identification as numbers, strings, lists and dicts."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["scaling"] = None if self.scaling is None else self.scaling.to_dict()
        for name in ("inv_freq", "departs", "notes"):
            plain[name] = list(plain[name])
        for name in ("config", "hf"):
            plain[name] = None if plain[name] is None else dict(plain[name])
        plain["keys"] = None if self.keys is None else self.keys.to_dict()
        plain["error"] = None if self.error == float("inf") else self.error
        return plain

    def __str__(self) -> str:
        from .text import render_identification

        return render_identification(self)
