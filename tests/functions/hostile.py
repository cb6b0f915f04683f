"""Rotary functions that are wrong in one place only, and right ones in unusual forms."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import whorl

from .mistakes import (
    D,
    Function,
    angles_of,
    frequencies,
    repeated,
    rotate_every_two,
    rotate_half,
    sound,
    sound_interleaved,
    tiled,
    turn,
)

Two = tuple[Any, Any]


def swapped(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(k, positions), sound(q, positions)


def keys_made_of_queries(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(q) * sin


def keys_interleaved(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound_interleaved(k, positions)


def keys_of_another_base(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), whorl.RoPE(D, base=1e5).rotate(k, positions)


def keys_backwards(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k, -positions)


def keys_one_ahead(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k, positions + 1)


def queries_scaled(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return 1.44 * sound(q, positions), sound(k, positions)


def keys_far_wrong(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k, positions.clamp(max=2000))


def keys_detached(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k.detach(), positions)


def keys_overwritten(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), k.copy_(sound(k, positions))


def keys_float32(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k.float(), positions)


def keys_by_head(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    scale = torch.ones(k.shape[1]).double()
    scale[3:] = 0.5
    return sound(q, positions), turn(
        k, tiled(angles_of(positions, frequencies())) * scale.view(-1, 1, 1)
    )


def keys_with_heads_of_queries(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k, positions).repeat(1, q.shape[1] // k.shape[1], 1, 1)


def keys_of_fewer_heads_scaled(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    return sound(q, positions), sound(k, positions) * (k.shape[1] / q.shape[1])


def positions_counted_on(x: Tensor, positions: Tensor) -> Tensor:
    out = sound(x, positions)
    positions += x.shape[2]
    return out


def tables_negated_in_place(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    turned = [x * cos[:, None] + rotate_half(x) * sin[:, None] for x in (q, k)]
    sin.neg_()
    return turned[0], turned[1]


def positions_of_the_first_row(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions if positions.dim() == 1 else positions[0])


def second_row_late(x: Tensor, positions: Tensor) -> Tensor:
    late = torch.arange(len(x))[:, None].clamp(max=1)
    return sound(x, positions + late)


def off_by_one_far_away(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, torch.where(positions > 8191, positions - 1, positions))


def positions_in_int8(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions.to(torch.int8).long())


def positions_in_int16(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions.to(torch.int16).long())


def backwards_in_bfloat16(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, -positions if x.dtype == torch.bfloat16 else positions)


def unscaled_in_float32(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions) * (1.1 if x.dtype == torch.float32 else 1.0)


def single_token_at_zero(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions * (x.shape[2] > 1))


def wrong_in_calls_of_a_thousand_tokens(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions + (x.shape[2] > 1000))


def base_by_tokens(x: Tensor, positions: Tensor) -> Tensor:
    """Stateless: the base grows with the number of tokens in the call."""
    return turn(x, tiled(angles_of(positions, frequencies(1e4 * (1 + x.shape[2] / 512)))))


def base_by_tokens_from_a_hundred_on(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, frequencies(1e4 * max(1.0, x.shape[2] / 100)))))


def base_by_context(x: Tensor, positions: Tensor) -> Tensor:
    """Stateless: the base grows with each row's largest position, from the first one on."""
    longest = positions.amax(-1, keepdim=positions.dim() == 2).double()
    inv_freq = (1e4 * (1 + longest / 512))[..., None] ** -(torch.arange(0, D, 2).double() / D)
    angles = positions[..., None].double() * inv_freq
    return turn(x, tiled(angles if positions.dim() == 1 else angles[:, None]))


def taylor_sine(x: Tensor, positions: Tensor) -> Tensor:
    """sin as its Taylor polynomial of degree 7 within half a turn: 0.0752 off at half a turn."""
    angle = tiled(angles_of(positions, frequencies()))
    angle = angle - 2 * math.pi * torch.round(angle / (2 * math.pi))
    sine = angle - angle**3 / 6 + angle**5 / 120 - angle**7 / 5040
    return (x.double() * angle.cos() + rotate_half(x.double()) * sine).to(x.dtype)


def scaled_bfloat16_tables(x: Tensor, positions: Tensor) -> Tensor:
    angles = tiled(angles_of(positions, frequencies()))
    cos, sin = (1.1 * table.bfloat16().double() for table in (angles.cos(), angles.sin()))
    return (x.double() * cos + rotate_half(x.double()) * sin).to(x.dtype)


def size_waves(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions) * (1 + 0.01 * positions.double().sin())[..., None].to(x.dtype)


def table_of_257_rows(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions.clamp(max=256))


def table_of_2049_rows(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions.clamp(max=2048))


def twelve_tokens_at_most(x: Tensor, positions: Tensor) -> Tensor:
    if x.shape[2] > 12:
        raise ValueError("twelve tokens at most")
    return sound(x, positions)


def strides_ignored(x: Tensor, positions: Tensor) -> Tensor:
    flat = torch.as_strided(x, x.shape, torch.empty(x.shape).stride())
    return sound(flat, positions)


def heads_from_the_fifth_on(x: Tensor, positions: Tensor) -> Tensor:
    out = sound(x, positions).clone()
    out[:, 4:] = x[:, 4:]
    return out


def read_from_16_written_to_0(x: Tensor, positions: Tensor) -> Tensor:
    turned = whorl.RoPE(32).rotate(x[..., 16:48], positions)
    return torch.cat((turned, x[..., :16], x[..., 48:]), dim=-1)


def detached(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x.detach(), positions)


def cos_alone(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    return q * cos[:, None], k * cos[:, None]


def cos_and_sin_exchanged(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    cos, sin = sin[:, None], cos[:, None]
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def negated(x: Tensor, positions: Tensor) -> Tensor:
    return -sound(x, positions)


def halves_exchanged(x: Tensor, positions: Tensor) -> Tensor:
    return torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)


def tokens_before_heads(x: Tensor, positions: Tensor) -> Tensor:
    assert x.shape[1] == len(positions)
    return sound(x.transpose(1, 2), positions).transpose(1, 2)


def numpy_positions_in_float16(x: Any, positions: Any) -> Any:
    return numpy_rows(x, positions.astype(np.float16).astype(np.float64))


def one_buffer() -> Function:
    """The result of every call is the same memory."""
    buffer = torch.empty(2**22, dtype=torch.float64)

    def buffered(x: Tensor, positions: Tensor) -> Tensor:
        out = buffer[: x.numel()].to(x.dtype).view(x.shape)
        return sound(x, positions) if x.requires_grad else out.copy_(sound(x, positions))

    return buffered


def keys_by_length() -> Function:
    """The angles of keys are kept by length, those of queries are not."""
    kept: dict[int, Tensor] = {}

    def cached(q: Tensor, k: Tensor, positions: Tensor) -> Two:
        angles = tiled(angles_of(positions, frequencies()))
        return turn(q, angles), turn(k, kept.setdefault(k.shape[2], angles))

    return cached


#: (id, words of the sentence, function, kind)
WRONG: list[tuple[str, str, Function, str]] = [
    ("outputs-swapped", "first is made of k alone and the second of q", swapped, "qk"),
    ("roles-mixed", "the second of q and k", keys_made_of_queries, "cos_sin"),
    ("keys-differ", "layout: queries half, keys interleaved", keys_interleaved, "qk"),
    ("keys-differ", "queries base 10000,", keys_of_another_base, "qk"),
    ("keys-differ", "queries forwards, keys backwards", keys_backwards, "qk"),
    ("keys-differ", "keys as given +1. Scores still depend on", keys_one_ahead, "qk"),
    ("keys-differ", "queries 1.44, keys 1. Scores still depend on", queries_scaled, "qk"),
    ("far-positions", "Keys only. Wrong from position 2,001 on", keys_far_wrong, "qk"),
    ("no-gradient", "Keys only. The input asks for gradients", keys_detached, "qk"),
    ("input-modified", "overwrites its arguments (k,", keys_overwritten, "qk"),
    ("offset-ignored", "Keys only. A cache ignores the offset", keys_by_length(), "qk"),
    ("result-overwritten", "A later call overwrites the result", one_buffer(), "x"),
    ("dtype-changed", "Keys only. The result has another dtype", keys_float32, "qk"),
    ("heads-differ", "Keys only. Heads with the same vector", keys_by_head, "qk"),
    ("grouped-keys", "it gave a result of shape [1, 4,", keys_with_heads_of_queries, "qk"),
    ("grouped-keys", "results differ by", keys_of_fewer_heads_scaled, "qk"),
    ("input-modified", "(positions, by up to", positions_counted_on, "x"),
    ("input-modified", "(sin, by up to", tables_negated_in_place, "cos_sin"),
    ("batch-mates", "in a batch with a row at positions 0", positions_of_the_first_row, "x"),
    ("batch-mates", "A row changes by", second_row_late, "x"),
    (
        "far-positions",
        "position 8,192 on: it gets the angles of position 8,191",
        off_by_one_far_away,
        "x",
    ),
    (
        "far-positions",
        "from position 128 on: it gets the angles of position -128; positions are kept in 8-bit",
        positions_in_int8,
        "x",
    ),
    (
        "far-positions",
        "position 32,768 on: it gets the angles of position -32,768; positions are kept in 16",
        positions_in_int16,
        "x",
    ),
    ("dtype-differs", "Inputs in bfloat16 give other results", backwards_in_bfloat16, "x"),
    ("dtype-differs", "Inputs in float32 give other results", unscaled_in_float32, "x"),
    ("call-length", "tokens position 0 is wrong", wrong_in_calls_of_a_thousand_tokens, "x"),
    ("call-length", "between a call of 11 tokens and one of", base_by_tokens, "x"),
    ("call-length", "In a call of 1,138 tokens", base_by_tokens_from_a_hundred_on, "x"),
    ("call-length", "a context of 11 tokens and one of 16", base_by_context, "x"),
    ("uneven-angles", "differ from a rotation by up to 0.075.", taylor_sine, "x"),
    ("half-tables", "cos and sin are bfloat16 numbers", scaled_bfloat16_tables, "x"),
    ("norm", "angles are right, so it is multiplied by", size_waves, "x"),
    (
        "far-positions",
        "position 257 on: it gets the angles of position 256",
        table_of_257_rows,
        "x",
    ),
    ("far-positions", "2,049 on: it gets the angles of position 2,048", table_of_2049_rows, "x"),
    ("no-answer", "refuses one of 18: it raised ValueError: twelve", twelve_tokens_at_most, "x"),
    ("single-token", "A single token at position 7", single_token_at_zero, "x"),
    ("strides-ignored", "A transposed tensor [B, T, H, D] gives another", strides_ignored, "x"),
    ("heads-differ", "Heads with the same vector", heads_from_the_fifth_on, "x"),
    (
        "channels-moved",
        "channels 16 to 47 are read and 0 to 31 written",
        read_from_16_written_to_0,
        "x",
    ),
    ("no-gradient", "the result has none: it is detached", detached, "x"),
    ("no-mixing", "Is the term with sin missing?", cos_alone, "cos_sin"),
    ("cos-sin-swapped", "cos and sin are exchanged", cos_and_sin_exchanged, "cos_sin"),
    ("constant-angle", "rotated by 3.14159 radians at position 0", negated, "x"),
    ("no-rotation", "is not the input either", halves_exchanged, "x"),
    ("no-answer", "It answers tensors [B, T, H, D]", tokens_before_heads, "x"),
    ("fp16-positions", "Wrong from position 2049 on", numpy_positions_in_float16, "x"),
]


def numpy_rows(x: Any, positions: Any) -> Any:
    """Element by element, channels 2i and 2i + 1, for NumPy alone."""
    if not isinstance(x, np.ndarray):
        raise TypeError("arrays only")
    angles = np.multiply.outer(positions, 10_000.0 ** -(np.arange(0, D, 2) / D))
    numbers = (x[..., ::2] + 1j * x[..., 1::2].astype(np.float64)) * np.exp(1j * angles)
    return np.stack((numbers.real, numbers.imag), axis=-1).reshape(x.shape).astype(x.dtype)


def matrix_form(x: Tensor, positions: Tensor) -> Tensor:
    """The block-diagonal matrix itself."""
    angles = angles_of(positions, frequencies())
    cos, sin = torch.diag_embed(angles.cos()), torch.diag_embed(angles.sin())
    whole = torch.cat((torch.cat((cos, -sin), -1), torch.cat((sin, cos), -1)), -2)
    return (whole @ x.double().unsqueeze(-1)).squeeze(-1).to(x.dtype)


def half_width_tables(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    """One entry for each pair, [B, T, D/2], as gpt-oss has it."""

    def apply(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat((a * c - b * s, b * c + a * s), dim=-1)

    return apply(q), apply(k)


def half_width_interleaved(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    """One entry for each pair, [T, D/2], by complex numbers."""

    def apply(x: Tensor) -> Tensor:
        numbers = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        factors = torch.complex(cos.double(), sin.double())
        return torch.view_as_real(numbers * factors).flatten(-2).to(x.dtype)

    return apply(q), apply(k)


def tables_of_48_columns(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Two:
    """The first 48 channels rotate."""

    def apply(x: Tensor) -> Tensor:
        part = x[..., :48]
        turned = part * cos[:, None] + rotate_half(part) * sin[:, None]
        return torch.cat((turned, x[..., 48:]), dim=-1)

    return apply(q), apply(k)


def both_at_once(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    """Stacked, so heads of q and k must be as many."""
    out = sound(
        torch.stack((q, k)).flatten(0, 1),
        positions if positions.dim() == 1 else positions.repeat(2, 1),
    )
    return out[: len(q)], out[len(q) :]


def concatenated_heads(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    """Joined along heads and cut again."""
    out = sound(torch.cat((q, k), dim=1), positions)
    return out[:, : q.shape[1]], out[:, q.shape[1] :]


def views_only(x: Tensor, positions: Tensor) -> Tensor:
    """Refuses tensors that are not contiguous."""
    return sound(x.view(-1, 1, x.shape[2], D), positions).view(x.shape)


class Growing:
    """A table that grows by doubling, indexed by the positions."""

    def __init__(self) -> None:
        self.angles = tiled(angles_of(torch.arange(8), frequencies()))

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        while len(self.angles) <= int(positions.max()):
            self.angles = tiled(angles_of(torch.arange(2 * len(self.angles)), frequencies()))
        return turn(x, self.angles[positions])


def list_of_two(q: Tensor, k: Tensor, positions: Tensor) -> list[Tensor]:
    return [sound_interleaved(q, positions), sound_interleaved(k, positions)]


def in_float32_angles(x: Tensor, positions: Tensor) -> Tensor:
    inv_freq = 1.0 / (10_000.0 ** (torch.arange(0, D, 2).float() / D))
    return turn(x, repeated(angles_of(positions.float(), inv_freq)), rotate_every_two)


def tail_of_the_head(q: Tensor, k: Tensor, positions: Tensor) -> Two:
    rope = whorl.RoPE(16, layout="interleaved")
    return tuple(  # type: ignore[return-value]
        torch.cat((x[..., :48], rope.rotate(x[..., 48:], positions)), dim=-1) for x in (q, k)
    )


#: (function, kind)
RIGHT: list[tuple[Any, str]] = [
    (numpy_rows, "x"),
    (matrix_form, "x"),
    (half_width_tables, "cos_sin"),
    (half_width_interleaved, "cos_sin"),
    (tables_of_48_columns, "cos_sin"),
    (both_at_once, "qk"),
    (concatenated_heads, "qk"),
    (views_only, "x"),
    (Growing(), "x"),
    (list_of_two, "qk"),
    (in_float32_angles, "x"),
    (tail_of_the_head, "qk"),
]
