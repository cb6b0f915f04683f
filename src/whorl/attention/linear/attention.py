"""Linear attention with positions: RoFormer's two forms, in O(n), causal or not.

    elu, relu   out_i = sum_j [R_i phi(q_i)] [R_j phi(k_j)] v_j / sum_j phi(q_i) phi(k_j)
    cosine      out_i = sum_j s_ij v_j / sum_j s_ij,  s_ij = 1 + cosine of R_i q_i and R_j k_j
    random      the same with s_ij = phi(R_i q_i) phi(R_j k_j), which estimates exp(q k / sqrt(D))

Form one rotates the numerator only: a rotated denominator could be 0 or negative. Form two and
random features (``random_features.py``) are never negative by themselves. Su et al. 2021, RoFormer,
section 3.3, https://arxiv.org/abs/2104.09864; the sums over keys that make it O(n): Katharopoulos
et al. 2020, https://arxiv.org/abs/2006.16236.

Sums are float32, or float64 for float64 inputs. Beyond the paper: a state for decoding, chunks for
the causal case, ALiBi (s_ij is multiplied by exp(-m (i - j))) and XPos. The attention scale of a
scaling such as YaRN is left out, because it would make 1 + cosine negative. XPos is a rotation
with a decay: its decay acts, as the rotation does, on the numerator of form one and on the cosine
of form two.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, overload

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.words import quote
from whorl.attention._checks import check_coordinates, check_encoding, check_rows
from whorl.attention._precision import disable_autocast
from whorl.encodings.base import Encoding

from .checks import check_arguments, check_features, find_parts, read_mask
from .compute import LinearCall, Past, attend_both_ways, attend_causally
from .features import FeatureMap
from .positions import find_causal_positions, find_positions
from .sums import KeySums

__all__ = ["LinearState", "linear_attention"]


@dataclass(frozen=True, eq=False)
class LinearState:
    """Sums over the tokens that causal linear attention has seen; their size never grows.

    numerator [B, G, F, Dv] and denominator [B, G, F] are sums over keys, float32 or float64; F is
    D, D + 1 for "cosine", or the number of random features; G is the number of key heads, or of
    query heads with ALiBi.
    next_position: of the next token, unless positions are given; an int, or one per row.
    reference: position that rotated keys are relative to, for XPos. encoding: the one that rotated
    the keys; another cannot continue. Never changed in place: a state may be kept and continued
    twice.
    """

    numerator: Tensor
    denominator: Tensor
    next_position: int | Tensor
    feature_map: FeatureMap
    reference: int | Tensor | None = None
    encoding: Encoding | None = None

    @property
    def empty(self) -> Tensor:
        """Which rows [B] have seen no key at all."""
        return (self.denominator == 0).all(-1).all(-1)

    def reorder(self, index: Tensor | list[int]) -> "LinearState":
        """A state whose row n is row ``index[n]`` of this one, for beams."""
        batch, device = self.numerator.shape[0], self.numerator.device
        rows = check_rows(index, batch, device, "LinearState.reorder")
        return self._apply(lambda t: t.index_select(0, rows))

    def detach(self) -> "LinearState":
        """The same state without gradients of the past: for training on one piece after another."""
        return self._apply(Tensor.detach)

    def _build_past(self, needs_position: bool) -> Past:
        """What the next call starts from, with the last position if a decay needs it."""
        sums, last = KeySums(self.numerator, self.denominator), None
        if needs_position:
            following = torch.as_tensor(self.next_position, device=self.numerator.device)
            last = following.reshape(-1).double() - 1  # [1] or [B]
        return Past(sums, last, self.reference)

    def _apply(self, change: Callable[[Tensor], Tensor]) -> "LinearState":
        following, reference = self.next_position, self.reference
        return replace(
            self,
            numerator=change(self.numerator),
            denominator=change(self.denominator),
            next_position=change(following) if isinstance(following, Tensor) else following,
            reference=change(reference) if isinstance(reference, Tensor) else reference,
        )


@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    offset: int | Tensor | None = None,
    context_length: int | Tensor | None = None,
    mask: Tensor | None = None,
    state: LinearState | None = None,
    return_state: Literal[False] = False,
    eps: float = 1e-6,
    chunk: int = 64,
) -> Tensor: ...


@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    offset: int | Tensor | None = None,
    context_length: int | Tensor | None = None,
    mask: Tensor | None = None,
    state: LinearState | None = None,
    return_state: Literal[True],
    eps: float = 1e-6,
    chunk: int = 64,
) -> tuple[Tensor, LinearState]: ...


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    offset: int | Tensor | None = None,
    context_length: int | Tensor | None = None,
    mask: Tensor | None = None,
    state: LinearState | None = None,
    return_state: bool = False,
    eps: float = 1e-6,
    chunk: int = 64,
) -> Tensor | tuple[Tensor, LinearState]:
    """Attention [B, H, T, Dv] in time and memory linear in the number of tokens.

    q [B, H, T, D], k [B, G, S, D], v [B, G, S, Dv]; G divides H. Takes every rotation, ALiBi under
    causal=True, and encodings of the input, which do nothing here.

    Args:
        feature_map: "elu" or "relu", form one of the module's docstring; "cosine", form two; or a
            ``RandomFeatures``, which estimates softmax attention.
        causal: a query sees the keys up to itself, in the order of the tokens; if T < S the
            queries are the last T. Positions must not decrease.
        positions, key_positions, offset: as for ``RoPE``. Without them positions continue after
            the state, or start at 0.
        context_length: for scalings that depend on it; with a state it must be given.
        mask: [B, S], 1 for visible keys, 0 for padding.
        state: of the tokens before these, from ``return_state=True``; causal only. One token at a
            time, this is decoding at a constant cost.
        eps: for "relu" and "cosine", whose denominator may vanish: where it is not above eps the
            result is 0. Others are above 0 (but for underflow, which gives 0 as well).
        chunk: tokens scored against each other at a time in the causal case; any gives the same
            result up to rounding.

    >>> import torch, whorl
    >>> from whorl.attention.linear.attention import linear_attention
    >>> q, k, v = torch.randn(3, 1, 8, 100, 64).unbind()
    >>> rope = whorl.RoPE(64)
    >>> whole = linear_attention(q, k, v, rope, causal=True)
    >>> prompt = (x[:, :, :99] for x in (q, k, v))
    >>> _, state = linear_attention(*prompt, rope, causal=True, return_state=True)
    >>> step = linear_attention(*(x[:, :, 99:] for x in (q, k, v)), rope, causal=True, state=state)
    >>> torch.allclose(step, whole[:, :, 99:], atol=1e-5)
    True
    """
    check_arguments(q, k, v, causal, eps, chunk)
    check_encoding(encoding, "linear_attention")
    for given in (positions, key_positions):
        check_coordinates(encoding, given, "linear_attention")
    rotation, decay = find_parts(encoding, causal, q.shape[1])
    check_features(feature_map, rotation, q.shape[3])
    call = LinearCall(
        q,
        k,
        v,
        rotation,
        decay,
        read_mask(mask, k),
        positions,
        key_positions,
        offset,
        axes=1 if encoding is None else encoding.position_axes,
        context_length=context_length,
        feature_map=feature_map,
        floor=float(eps) if feature_map in ("relu", "cosine") else 0.0,
    )
    if (state is not None or return_state) and not causal:
        raise ValueError(
            "linear_attention: causal must be True with a state, which holds earlier tokens; got"
            " False. Pass all keys in one call, without a state."
        )
    with disable_autocast(q):
        past = Past(call.build_empty_sums())
        if state is not None:
            _check_state(state, feature_map, past.sums.numerator)
            _check_same_encoding(state.encoding, encoding)
            past = state._build_past(needs_position=call.decay is not None)
        if not causal:
            return attend_both_ways(call, *find_positions(call))
        found = find_causal_positions(call, state)
        out = attend_causally(call, found, past, chunk, return_state or state is not None)
    if not return_state:
        return out
    following, reference = found.next_position, past.reference
    return out, LinearState(*past.sums, following, feature_map, reference, encoding)


def _check_state(state: LinearState, feature_map: FeatureMap, like: Tensor) -> None:
    """Refuse a state that these tokens cannot continue; like: a numerator as it must be."""
    if not isinstance(state, LinearState):
        raise TypeError(
            "linear_attention: state must be a LinearState, from return_state=True; got"
            f" {type(state).__name__}."
        )
    if state.feature_map != feature_map:
        raise ValueError(
            f"linear_attention: feature_map must be that of the state, {quote(state.feature_map)};"
            f" got {quote(feature_map)}. Use one for the whole sequence."
        )
    held = state.numerator
    for name in ("numerator", "denominator"):
        check_storage(getattr(state, name), "linear_attention", f"state.{name}")
    if held.dtype != like.dtype or held.device != like.device:
        raise TypeError(
            f"linear_attention: state must be {like.dtype} on {like.device} for these tokens; got"
            f" {held.dtype} on {held.device}. Start without a state."
        )
    if held.shape != like.shape:
        raise ValueError(
            "linear_attention: state must have the batch, heads and widths of the call, a numerator"
            f" {list(like.shape)}; got {list(held.shape)}. Start without a state, or use"
            " state.reorder for other rows."
        )


def _check_same_encoding(old: Encoding | None, encoding: Encoding | None) -> None:
    """Refuse to continue a state whose keys another encoding has rotated or decayed."""
    if old is encoding or torch.compiler.is_compiling():
        return
    before, now = (
        [] if each is None else [part for part in each.parts if part.hooks - {"input", "scale"}]
        for each in (old, encoding)
    )
    same = len(before) == len(now) and all(
        a is b or (type(a) is type(b) and a.to_dict() == b.to_dict())
        for a, b in zip(before, now, strict=True)
    )
    if not same:
        raise ValueError(
            f"linear_attention: encoding must be that of the state, {quote(old)}, because its sums"
            f" hold rotated keys; got {quote(encoding)}. Use one for the whole sequence."
        )
