"""XPos: a rotation whose queries shrink and whose keys grow with position, so that scores decay.

    q' = zeta_i^((p - r)/s) R_p q      k' = zeta_i^(-(p - r)/s) R_p k      s = scale_base
    zeta_i = (2 i / R + gamma) / (1 + gamma)                                i = 0 .. R/2 - 1

The reference position r drops out of every score: pair i contributes zeta_i^((m - n)/s) times its
rotated product, which falls with the distance m - n >= 0 and would grow for a key after its query:
only for causal attention. Sun et al. 2022, A Length-Extrapolatable Transformer,
https://arxiv.org/abs/2212.10554. Kernel: csrc/rotate.c.

Different from the paper's code: the reference is an argument, not half the length of the call, so
a cached key stays right; its factor is a power of two for each pair, so moving a cache to another
reference (``rescale``) rounds nothing but what is about to vanish. The absolute form, r = 0,
overflows float16 after 3,000 positions and float32 after 33,000; that is refused.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from whorl._support.options import PositiveNumber
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.kernels import reference as plain
from whorl.scaling import Ladder
from whorl.scaling.base import compute_frequencies

from .base import Card, register, take_options
from .rotary.call import KEY, QUERY, ResolvedPositions, RotationCall
from .rotary.checks import check_input
from .rotary.config import RotaryConfig
from .rotary.rotary import Rotary

__all__ = ["XPos", "XPosConfig"]

Role = Literal["query", "key"]

_ROLES = {"query": QUERY, "key": KEY}
# log2 of the largest factor on a vector: the exponent range less room for the vector's own size.
_ROOM = {torch.float16: 11, torch.bfloat16: 119, torch.float32: 119, torch.float64: 1000}


@dataclass(frozen=True, kw_only=True)
class XPosConfig(RotaryConfig):
    """Options of XPos, checked on construction; ``XPos`` says what they mean."""

    base: PositiveNumber = 10_000.0
    gamma: PositiveNumber = 0.4
    scale_base: PositiveNumber = 512.0


@register("xpos")
class XPos(Rotary):
    """Rotary embedding with a decay by distance, for causal attention only.

    Args:
        head_dim: channels of one head, D.
        gamma: zeta_i = (2 i / R + gamma) / (1 + gamma); small values make fast pairs decay more.
        scale_base: positions over which pair i falls by zeta_i.
        base, layout, out_layout, rotary_dim, rotary_start, precision, table, table_length, impl:
            as for ``RoPE``; the paper's code has layout "interleaved".

    Queries and keys are treated differently, so ``rotate`` and ``tables`` ask for a role. Up to
    some thousand positions nothing else is needed; past that, pass a ``reference`` near the
    queries and take cached keys there by ``rescale``:

    >>> import torch, whorl
    >>> xpos = whorl.XPos(64)
    >>> q, k = torch.randn(1, 8, 2, 64), torch.randn(1, 8, 2, 64)
    >>> q1, k1 = xpos(q, k, offset=100_000, reference=xpos.reference_for(100_000))
    >>> cached = xpos.rotate(k, offset=99_000, role="key", reference=99_000)
    >>> moved = xpos.rescale(cached, old=99_000, new=xpos.reference_for(100_000))
    """

    causal: ClassVar[bool] = True
    config: XPosConfig

    _DERIVED: ClassVar[tuple[str, ...]] = (*Rotary._DERIVED, "_steepest")

    card: ClassVar[Card] = Card(
        formula="RoPE, times zeta_i^(p/s) on q and zeta_i^(-p/s) on k",
        paper="Sun et al. 2022",
        url="https://arxiv.org/abs/2212.10554",
        relative=True,
        longer="yes",
        linear_attention="causal",
        many_axes=False,
        memory="none in place",
        compute="B (H T + G S) D",
    )

    @take_options(XPosConfig)
    def __init__(self) -> None:
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
        reference: int | Tensor = 0,
    ) -> tuple[Tensor, Tensor]:
        """Rotated and scaled queries and keys; arguments as for ``RoPE``.

        reference: position, an int or one per row, that factors are relative to. Queries and keys
        that meet must have the same.
        """
        factor = self._resolve_reference(reference, "XPos", q)
        call = RotationCall(positions, key_positions, offset, context_length, key_exponent=factor)
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
        reference: int | Tensor = 0,
    ) -> tuple[Tensor, Tensor]:
        """``forward`` in place: q and k are overwritten and returned."""
        pair, factor = (q, k), self._resolve_reference(reference, "XPos", q)
        call = RotationCall(positions, key_positions, offset, context_length, key_exponent=factor)
        self._rotate(pair, call, pair)
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
        role: Role | None = None,
        reference: int | Tensor = 0,
    ) -> Tensor:
        """Rotate and scale one tensor as ``role``, "query" or "key"; ``inverse`` undoes it."""
        number = _check_role(role, "XPos.rotate")
        factor = self._resolve_reference(reference, "XPos.rotate", x)
        call = RotationCall(positions, None, offset, context_length, bool(inverse), number, factor)
        return self._rotate((x,), call, None if out is None else (out,))[0]

    def rotate_(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        context_length: int | Tensor | None = None,
        inverse: bool = False,
        role: Role | None = None,
        reference: int | Tensor = 0,
    ) -> Tensor:
        """``rotate`` in place; refused where a gradient is needed."""
        return self.rotate(
            x,
            positions,
            offset=offset,
            context_length=context_length,
            out=x,
            inverse=inverse,
            role=role,
            reference=reference,
        )

    def tables(
        self,
        positions: Tensor,
        *,
        context_length: int | Tensor | None = None,
        role: Role | None = None,
        reference: int | Tensor = 0,
    ) -> tuple[Tensor, Tensor]:
        """cos and sin of ``role``, float32 [T, R/2] or [B, T, R/2], factors multiplied in."""
        number = _check_role(role, "XPos.tables")
        factor = self._resolve_reference(reference, "XPos.tables", positions)
        return self._build_tables(
            RotationCall(positions, context_length=context_length, role=number, key_exponent=factor)
        )

    def rescale(self, k: Tensor, *, old: int | Tensor, new: int | Tensor) -> Tensor:
        """Rotated keys [B, G, S, D] as with the reference position ``new`` instead of ``old``.

        Both are ints, or have one per row. Each pair is multiplied by a power of two, so nothing
        is rounded as long as values are normal numbers of their dtype. Keys further back fade: they
        lose digits, then become 0, as their scores do.
        """
        batch, _ = check_input(k, self.config.head_dim, "XPos.rescale", "k")
        before, after = (self._exponents(r, "XPos.rescale", batch) for r in (old, new))
        powers = (after - before).to(k.device)
        if powers.numel() and has_values(powers):
            self._check_growth(_get_largest(powers), k.dtype, "XPos.rescale: the new reference is")
        wide = plain.merge_pairs(powers, powers, self._channels.out_layout)  # [R] or [B, R]
        start, width = self.config.rotary_start, self.config.width
        rest = wide.new_zeros(*wide.shape[:-1], k.shape[-1] - start - width)
        whole = torch.cat((wide.new_zeros(*wide.shape[:-1], start), wide, rest), dim=-1)
        factor = whole.exp2() if whole.dim() == 1 else whole.exp2()[:, None, None, :]
        compute = torch.float64 if k.dtype == torch.float64 else torch.float32
        return (k.to(compute) * factor.to(compute)).to(k.dtype)

    def shift(
        self, k: Tensor, delta: int | Tensor, *, context_length: int | Tensor | None = None
    ) -> Tensor:
        """Move rotated keys by ``delta`` positions, as for ``RoPE``; their reference stays."""
        if not isinstance(delta, Tensor) or has_values(delta):
            far = _get_largest(delta) if isinstance(delta, Tensor) and delta.numel() else delta
            if isinstance(far, (int, float)):
                self._check_growth(far * -self._steepest, k.dtype, "XPos.shift: the new place is")
        return super().shift(k, delta, context_length=context_length)

    def reference_for(self, position: int) -> int:
        """The start of the block of ``scale_base`` positions that holds ``position``.

        Factors of queries in that block, and of all keys up to it, are at most 1 / zeta_0 = 3.5.
        """
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"XPos.reference_for: position must be an int; got {quote(position)}.")
        return math.floor(position // self.config.scale_base * self.config.scale_base)

    def reference_near(self, positions: Tensor) -> int | Tensor:
        """The reference position for tokens of one call: that of the middle of their range.

        positions [T]: an int; [B, T]: one per row, [B]. Compiled code and meta tensors give a
        tensor either way. No tokens: 0.
        """
        if not isinstance(positions, Tensor) or positions.dim() not in (1, 2):
            came = list(positions.shape) if isinstance(positions, Tensor) else quote(positions)
            raise TypeError(
                f"XPos.reference_near: positions must be a tensor [T] or [B, T]; got {came}."
            )
        if not positions.shape[-1]:
            return 0 if positions.dim() == 1 else positions.new_zeros(len(positions)).long()
        middle = ((positions.amin(-1).double() + positions.amax(-1)) / 2).floor()
        block = self.config.scale_base
        near = (middle // block * block).floor().to(torch.int64)
        return int(near) if near.dim() == 0 and has_values(near) else near

    def span(self, dtype: torch.dtype) -> int:
        """How far from the reference position tokens of ``dtype`` may be."""
        return int(_ROOM[dtype] / -self._steepest)

    def call_span(self, dtype: torch.dtype) -> int:
        """How far apart tokens of ``dtype`` may be that share one ``reference_near``."""
        return int(2 * (self.span(dtype) - self.config.scale_base))

    def _prepare(self) -> None:
        config = self.config
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        self._ladder = Ladder(compute_frequencies(config.width, config.base, dtype), config.base)
        steps = torch.arange(0, config.width, 2, dtype=torch.float64, device="cpu")
        zeta = (steps / config.width + config.gamma) / (1 + config.gamma)
        self._growth = zeta.log2() / config.scale_base
        # Of pair 0, whose zeta is the smallest; not read from a tensor, which may be a fake one.
        self._steepest = math.log2(config.gamma / (1 + config.gamma)) / config.scale_base

    def _exponents(self, reference: int | Tensor, label: str, batch: int) -> Tensor:
        """log2 of the factor on keys: whole numbers, float64 [P] or [B, P]."""
        assert self._growth is not None
        if isinstance(reference, Tensor):
            if reference.dim() > 1 or reference.is_floating_point() or reference.is_complex():
                raise ValueError(_REFERENCE.format(label, f"{reference.dtype}", reference.shape))
            if reference.dim() and reference.shape[0] not in (1, batch):
                raise ValueError(
                    f"{label}: reference has {reference.shape[0]} rows but the batch has {batch};"
                    " give one for each sequence, or one int for all."
                )
            at = reference.to(torch.float64).unsqueeze(-1)  # [B, 1]
            return (at * self._growth.to(reference.device)).round()
        if isinstance(reference, bool) or not isinstance(reference, (int, torch.SymInt)):
            raise TypeError(_REFERENCE.format(label, type(reference).__name__, quote(reference)))
        return (self._growth * reference).round()

    def _resolve_reference(self, reference: int | Tensor, label: str, x: Tensor) -> Tensor | None:
        """log2 of the factor on keys, as for ``_exponents``; None for reference 0."""
        if type(reference) is int and reference == 0:
            return None
        return self._exponents(reference, label, x.shape[0] if x.dim() > 1 else 1)

    def _resolve_positions(
        self, xs: tuple[Tensor, ...], call: RotationCall
    ) -> list[ResolvedPositions]:
        resolved = super()._resolve_positions(xs, call)
        if not torch.compiler.is_compiling():
            for n, (x, positions) in enumerate(zip(xs, resolved, strict=True)):
                self._check_range(x, positions, call, call.role if len(xs) == 1 else n)
        return resolved

    def _check_growth(self, power: float, dtype: torch.dtype, what: str) -> None:
        """Refuse to make keys larger than their dtype holds."""
        if power > _ROOM.get(dtype, math.inf):
            raise ValueError(
                f"{what} too far away for {dtype}, which holds factors over about"
                f" {self.span(dtype)} positions; rotate the keys afresh from unrotated ones."
            )

    def _check_range(
        self, x: Tensor, where: ResolvedPositions, call: RotationCall, role: int
    ) -> None:
        """Refuse factors that the dtype cannot hold; keys may vanish, as far ones should."""
        values, first = where
        if not x.shape[2] or not x.shape[0] or (values is not None and not has_values(values)):
            return
        low: float | Tensor = first
        high: float | Tensor = first + x.shape[2] - 1
        if values is not None:
            low, high = values.amin(-1), values.amax(-1)  # of each row where rows differ
        factor = 0.0 if call.key_exponent is None else call.key_exponent[..., 0]
        # log2 of the largest factor on keys, at the last position, and on queries, at the first.
        shrunk = _get_largest(factor - high * self._steepest)
        grown = _get_largest(low * self._steepest - factor)
        room = _ROOM[x.dtype]
        one_sided = role == KEY and not call.inverse
        if shrunk > room or (grown > room and not one_sided):
            name, span = "keys" if role == KEY else "queries", self.span(x.dtype)
            ends = f"{_get_least(low):g} to {_get_largest(high):g}"
            raise ValueError(
                f"XPos: {name} at positions {ends} are too far from their reference for {x.dtype},"
                f" which holds factors over about {span} positions; pass"
                " reference=xpos.reference_for(...) near the queries, and work in blocks."
            )


def _get_largest(value: float | Tensor) -> float:
    return float(value.max()) if isinstance(value, Tensor) else float(value)


def _get_least(value: float | Tensor) -> float:
    return float(value.min()) if isinstance(value, Tensor) else float(value)


def _check_role(role: Role | None, label: str) -> int:
    if role not in _ROLES:
        raise ValueError(
            f"{label}: role must be 'query' or 'key', because queries shrink where keys grow;"
            f" got {quote(role)}."
        )
    return _ROLES[role]


_REFERENCE = "{}: reference must be an int, or integers [B] with one per row; got {} {}."
