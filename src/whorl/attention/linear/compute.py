"""How a call of linear attention runs: in blocks of tokens, and under a causal mask in chunks.

Features are made for a block of tokens at a time, so that they stay in the cache of the processor
and memory beyond inputs and result does not grow with the length. Tensors are split, never sliced:
the gradient of each slice would be as long as the whole.

Keys of a rotation that has a span, such as XPos, are multiplied by zeta_i^(-(p - r)/s), with a
reference r near the tokens of the block. When r moves, the rows of the sums are multiplied by
powers of two, which rounds nothing; keys so far back that float32 cannot hold them become 0, as
their scores do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.attention._output import Output
from whorl.encodings.base import Encoding
from whorl.encodings.rotary.call import ResolvedPositions
from whorl.kernels.tables import choose_table_dtype
from whorl.positions import resolve

from .features import (
    KEY,
    QUERY,
    FeatureMap,
    FeaturePair,
    Features,
    compute_unscaling,
    count_features,
    take_positions,
)
from .positions import CausalPositions, find_followed_length
from .random_features import RandomFeatures
from .sums import ChunkDecay, DecayFactors, KeySums, add_keys, attend_chunk, divide_sums

__all__ = ["LinearCall", "Past", "attend_both_ways", "attend_causally"]

_BLOCK = 512


class LinearCall(NamedTuple):
    """The arguments of a call.

    rotation: the part of the encoding that rotates. decay: the one whose bias is -m distance.
    key_mask: [B, S], False for hidden keys. Without positions and an offset, tokens continue after
    the state, or from 0. axes: of positions. floor: the result is 0 where the denominator is not
    above it.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    rotation: Encoding | None
    decay: Encoding | None
    key_mask: Tensor | None
    positions: Tensor | None
    key_positions: Tensor | None
    offset: int | Tensor | None
    axes: int
    context_length: int | Tensor | None
    feature_map: FeatureMap
    floor: float

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of features and sums."""
        return choose_table_dtype(self.q)

    @property
    def groups(self) -> int:
        """Query heads for each head of the sums; a decay differs between query heads."""
        return 1 if self.decay is not None else self.q.shape[1] // self.k.shape[1]

    def resolve(
        self, positions: Tensor | None, offset: int | Tensor | None, length: int
    ) -> ResolvedPositions:
        """Positions of ``length`` tokens, checked."""
        first = 0 if offset is None else offset
        batch, device = self.q.shape[0], self.q.device
        return resolve(positions, first, batch, length, device, "linear_attention", self.axes)

    def build_empty_sums(self) -> KeySums:
        """Sums over no keys."""
        B, H, _, D = self.q.shape
        shape = (B, H // self.groups, count_features(self.feature_map, D))
        zeros = self.q.new_zeros((*shape, self.v.shape[3]), dtype=self.dtype)
        return KeySums(zeros, zeros.new_zeros(shape))

    def build_features(
        self, queries: ResolvedPositions, keys: ResolvedPositions, has_state: bool
    ) -> Features:
        """How vectors at these positions become features."""
        length = find_followed_length(self, queries, keys, has_state)
        unscaling = None
        if not isinstance(self.feature_map, RandomFeatures):  # they estimate softmax with its scale
            unscaling = compute_unscaling(self.rotation, length, self.q, self.dtype)
        return Features(self.feature_map, self.dtype, self.rotation, length, unscaling)

    def group_queries(self, features: FeaturePair) -> FeaturePair:
        """Features of queries [B, H, T, F] as [B, G, r, T, F]."""
        return features.apply(lambda x: torch.unflatten(x, 1, (-1, self.groups)))

    def prepare_keys(
        self, features: FeaturePair, v: Tensor, start: int
    ) -> tuple[FeaturePair, Tensor]:
        """Features and values of a block of keys: hidden ones 0, heads repeated for a decay."""
        v = v.to(self.dtype)
        if self.key_mask is not None:
            hidden = ~self.key_mask[:, None, start : start + v.shape[2], None]
            # Values too: padding may hold anything, and 0 times infinity is not 0.
            features = features.apply(lambda x: x.masked_fill(hidden, 0.0))
            v = v.masked_fill(hidden, 0.0)
        repeat = self.q.shape[1] // self.groups // v.shape[1]
        if repeat > 1:
            features = features.apply(lambda x: x.repeat_interleave(repeat, 1))
            v = v.repeat_interleave(repeat, 1)
        return features, v

    def attend_sums(self, sums: KeySums, queries: FeaturePair) -> Tensor:
        """The result of queries [B, G, r, T, F] that see all keys in the sums, and no others."""
        numerator, denominator = queries.apply(lambda x: x.flatten(2, 3))
        divisor = (denominator @ sums.denominator.unsqueeze(-1)).squeeze(-1)
        return self.build_result(numerator @ sums.numerator, divisor)

    def build_result(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """[B, H, T, Dv] in the dtype of the inputs, from [B, G, r T, Dv] and [B, G, r T]."""
        out = divide_sums(numerator, denominator, self.floor).to(self.q.dtype)
        return out if self.groups == 1 else torch.unflatten(out, 2, (self.groups, -1)).flatten(1, 2)


@dataclass
class Past:
    """Sums over the tokens so far, which change as tokens are added.

    last_position: of the last token, [1] or [B], where known. reference: position that the rotation
    is relative to, if it has a span; None before the first token.
    """

    sums: KeySums
    last_position: Tensor | None = None
    reference: int | Tensor | None = None

    def move_reference(
        self, rotation: Encoding, reference: int | Tensor, feature_map: FeatureMap
    ) -> None:
        """Make the sums relative to another reference position."""
        old, self.reference = self.reference, reference
        if old is None or (
            isinstance(old, int) and isinstance(reference, int) and old == reference
        ):
            return
        numerator, denominator = self.sums
        width = numerator.shape[2] - (feature_map == "cosine")
        before, after = (torch.as_tensor(r, device=numerator.device) for r in (old, reference))

        def rescale(rows: Tensor) -> Tensor:  # [B, G, F, Dv]; a last row of ones stays
            rescaled = rotation.rescale(rows[:, :, :width].mT, old=before, new=after).mT
            return torch.cat((rescaled, rows[:, :, width:]), 2)

        if feature_map == "cosine":  # whose denominator is rotated too
            denominator = rescale(denominator.unsqueeze(-1)).squeeze(-1)
        self.sums = KeySums(rescale(numerator), denominator)

    def add(self, keys: FeaturePair, v: Tensor, factors: DecayFactors) -> None:
        """Add the keys of a chunk."""
        self.sums = add_keys(self.sums, keys, v, factors)
        self.last_position = factors.last_position


def attend_both_ways(
    call: LinearCall, queries: ResolvedPositions, keys: ResolvedPositions
) -> Tensor:
    """Attention in which every query sees every key."""
    features, sums = call.build_features(queries, keys, has_state=False), call.build_empty_sums()
    start, out = 0, Output(call.q, call.v, call.k)
    for k, v in zip(torch.split(call.k, _BLOCK, 2), torch.split(call.v, _BLOCK, 2), strict=True):
        pair = features.compute(k, take_positions(keys, start, k.shape[2]), KEY)
        sums = add_keys(sums, *call.prepare_keys(pair, v, start), DecayFactors())
        start += k.shape[2]
    start = 0
    for q in torch.split(call.q, _BLOCK, 2):
        pair = features.compute(q, take_positions(queries, start, q.shape[2]), QUERY)
        out.append(call.attend_sums(sums, call.group_queries(pair)))
        start += q.shape[2]
    return out.join()


def attend_causally(
    call: LinearCall, positions: CausalPositions, past: Past, chunk: int, has_state: bool
) -> Tensor:
    """Attention in which each query sees the keys up to itself; ``past`` takes these in."""
    where, rotation = positions.where, call.rotation
    T, S, block = call.q.shape[2], call.k.shape[2], max(chunk, _BLOCK // chunk * chunk)
    moving = rotation if rotation is not None and rotation.acts("span") else None
    span = None if moving is None else moving.span(torch.float32)
    if span is not None:  # a quarter of it leaves room for sums
        block = max(1, min(block, span // 4))
        where = _clamp_positions(positions, span // 4)
    features = call.build_features(take_positions(where, S - T, T), where, has_state)
    decay = _build_decay(call, positions)
    ks, vs = (_split_blocks(x, S - T, block) for x in (call.k, call.v))
    q_blocks = _split_blocks(call.q, 0, block)
    qs = [*[None] * (len(ks) - len(q_blocks)), *q_blocks]
    start, out = 0, Output(call.q, call.v, call.k)
    for q, k, v in zip(qs, ks, vs, strict=True):
        length = k.shape[2]
        if moving is not None:
            reference = _find_reference(moving, positions, start, k)
            past.move_reference(moving, reference, call.feature_map)
        # Keys without a query are passed in its place: the features of that are not used.
        here = take_positions(where, start, length)
        queries, keys = features.compute_both(k if q is None else q, k, here, past.reference)
        keys, v = call.prepare_keys(keys, v, start)
        if q is None or length == 1:
            past.add(keys, v, decay.compute_factors(start, length, past.last_position))
        if q is not None and length == 1:  # a decode step: the sums are all that it sees
            out.append(call.attend_sums(past.sums, call.group_queries(queries)))
        elif q is not None:
            features_of_block = call.group_queries(queries), keys, v
            for part in _attend_chunks(call, past, features_of_block, decay, (start, chunk)):
                out.append(part)
        start += length
    return out.join()


def _attend_chunks(
    call: LinearCall,
    past: Past,
    block: tuple[FeaturePair, FeaturePair, Tensor],
    decay: ChunkDecay,
    extent: tuple[int, int],
) -> Iterator[Tensor]:
    """Results of one block, chunk by chunk; extent: its first token, and the chunk size."""
    (queries, keys, values), (start, chunk) = block, extent
    chunks = zip(
        queries.split(chunk, 3), keys.split(chunk, 2), torch.split(values, chunk, 2), strict=True
    )
    for q, k, v in chunks:
        q, length = q.apply(lambda x: x.flatten(2, 3)), v.shape[2]
        factors = decay.compute_factors(start, length, past.last_position)
        mask = decay.compute_mask(start, length)
        yield call.build_result(*attend_chunk(past.sums, q, k, v, mask, factors.to_queries))
        past.add(k, v, factors)
        start += length


def _clamp_positions(positions: CausalPositions, span: int) -> ResolvedPositions:
    """Positions, with those of hidden tokens, which may be any, moved near to the others."""
    (values, offset), line, _ = positions
    if values is None or line is None:
        return values, offset
    return torch.clamp(values, line - span, line + span), 0


def _find_reference(
    rotation: Encoding, positions: CausalPositions, start: int, k: Tensor
) -> int | Tensor:
    """The reference position of the keys from token ``start`` on: an int, or one per row."""
    (_, offset), line, _ = positions
    batch, length = k.shape[0], k.shape[2]
    if line is not None:
        near = rotation.reference_near(line[:, start : start + length])  # [1] or [B]
    elif torch.compiler.is_compiling():  # as a tensor: the graph then fits other lengths as well
        first = offset + start
        near = rotation.reference_near(torch.arange(first, first + length, device=k.device))
    else:  # the same for numbers that are known
        return rotation.reference_for(offset + start + (length - 1) // 2)
    return torch.as_tensor(near).expand(batch)


def _build_decay(call: LinearCall, positions: CausalPositions) -> ChunkDecay:
    part, (where, line, _), S = call.decay, positions, call.k.shape[2]
    like = call.q.new_empty(0, dtype=call.dtype)
    if part is None:
        return ChunkDecay(like, call.groups, None, None, is_consecutive=True)
    if line is None:
        line = torch.arange(where[1], where[1] + S, device=like.device).unsqueeze(0)
    return ChunkDecay(like, 1, part.decay_slopes(), line.double(), is_consecutive=where[0] is None)


def _split_blocks(x: Tensor, before: int, size: int) -> list[Tensor]:
    """Blocks of the first ``before`` tokens, then of the others."""
    # By one size, not by a list of them: compiled code then fits other lengths as well.
    parts = torch.split(x, [before, x.shape[2] - before], 2) if before else (x,)
    return [block for part in parts if part.shape[2] for block in torch.split(part, size, 2)]
