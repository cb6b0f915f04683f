"""Rotary functions with one mistake each, as write-ups and issue trackers have them."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import whorl

D = 64
BASE = 10_000.0

Function = Callable[..., Any]


def frequencies(base: float = BASE, width: int = D) -> Tensor:
    return base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def rotate_every_two(x: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((-b, a), dim=-1).flatten(-2)


def tiled(angles: Tensor) -> Tensor:
    return torch.cat((angles, angles), dim=-1)


def repeated(angles: Tensor) -> Tensor:
    return angles.repeat_interleave(2, dim=-1)


def angles_of(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """[T, P], or [B, 1, T, P]."""
    angles = positions[..., None].to(inv_freq) * inv_freq
    return angles if positions.dim() == 1 else angles[:, None]


def turn(x: Tensor, angles: Tensor, rotate: Function = rotate_half) -> Tensor:
    """x cos + rotate(x) sin with angles for every channel, in float32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * angles.cos() + rotate(wide) * angles.sin()).to(x.dtype)


def sound(x: Tensor, positions: Tensor) -> Tensor:
    """None at all; the others differ from this."""
    return turn(x, tiled(angles_of(positions, frequencies())))


def sound_interleaved(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, repeated(angles_of(positions, frequencies())), rotate_every_two)


def half_pairs_repeated_tables(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, repeated(angles_of(positions, frequencies())))


def interleaved_pairs_tiled_tables(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, frequencies())), rotate_every_two)


def doubled_exponent(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, BASE ** (-2 * torch.arange(0, D, 2) / D).double())))


def swapped_sign(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, -tiled(angles_of(positions, frequencies())))


def sign_missing_in_one_half(x: Tensor, positions: Tensor) -> Tensor:
    angles = tiled(angles_of(positions, frequencies()))
    return turn(x, angles, lambda y: torch.cat(y.chunk(2, dim=-1)[::-1], dim=-1))


def reversed_frequencies(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, frequencies().flip(0))))


def positions_in_the_dtype_of_x(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions.to(x.dtype).float(), frequencies().float())))


def positions_in_bfloat16(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions.bfloat16().double(), frequencies())))


def positions_in_float16(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions.half().double(), frequencies())))


def angles_in_the_dtype_of_x(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, frequencies().to(x.dtype))))


def tables_in(dtype: torch.dtype) -> Function:
    def tables(x: Tensor, positions: Tensor) -> Tensor:
        angles = tiled(angles_of(positions, frequencies()))
        cos, sin = angles.cos().to(dtype).double(), angles.sin().to(dtype).double()
        return (x.double() * cos + rotate_half(x.double()) * sin).to(x.dtype)

    return tables


def frequencies_in_bfloat16(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, frequencies().bfloat16().double())))


def yarn_scale_twice(x: Tensor, positions: Tensor) -> Tensor:
    rope = whorl.RoPE(D, scaling=whorl.YaRN(factor=8.0, original_context=4096))
    return rope.rotate(x, positions) * (0.1 * math.log(8.0) + 1)


def positions_from_one(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions + 1)


def positions_from_forty(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions + 40)


def positions_ignored(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, torch.arange(x.shape[2]))


def cache_by_length() -> Function:
    """The table of the first call of each length serves all others of that length."""
    kept: dict[int, Tensor] = {}

    def cached(x: Tensor, positions: Tensor) -> Tensor:
        angles = kept.setdefault(x.shape[2], tiled(angles_of(positions, frequencies())))
        return turn(x, angles)

    return cached


def cache_in_the_first_dtype() -> Function:
    """rotary-embedding-torch's: a table made for half precision serves float32 later."""
    kept: dict[int, Tensor] = {}

    def cached(x: Tensor, positions: Tensor) -> Tensor:
        longest = int(positions.max()) + 1
        if longest not in kept:
            kept[longest] = tiled(
                angles_of(torch.arange(longest).to(x.dtype).double(), frequencies())
            )
        if x.dtype == torch.bfloat16:
            kept[11] = tiled(angles_of(torch.arange(11), frequencies())).bfloat16().double()
        return turn(x, kept[longest][positions])

    return cached


def longest_length_kept() -> Function:
    """Dynamic NTK that never forgets the longest context it has seen."""
    longest = [64]

    def dynamic(x: Tensor, positions: Tensor) -> Tensor:
        longest[0] = max(longest[0], int(positions.max()) + 1)
        stretch = 1 + 2 * (longest[0] - 64) / 64
        base = BASE * stretch ** (D / (D - 2))
        return turn(x, tiled(angles_of(positions, frequencies(base))))

    return dynamic


def length_of_the_batch(x: Tensor, positions: Tensor) -> Tensor:
    """Dynamic NTK with one length for all rows."""
    stretch = 1 + 2 * max(0, int(positions.max()) + 1 - 64) / 64
    return turn(x, tiled(angles_of(positions, frequencies(BASE * stretch ** (D / (D - 2))))))


def always_float32(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x.float(), positions)


def in_place(x: Tensor, positions: Tensor) -> Tensor:
    return x.copy_(sound(x, positions))


def growing(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, positions) * (1.01 ** positions.double())[..., None].to(x.dtype)


def xpos_query(x: Tensor, positions: Tensor) -> Tensor:
    return whorl.XPos(D).rotate(x, positions, role="query")


def nothing(x: Tensor, positions: Tensor) -> Tensor:
    return x.clone()


def normalised(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x / (1 + x.square().mean(-1, keepdim=True)), positions)


def all_channels_mixed(x: Tensor, positions: Tensor) -> Tensor:
    return x.cumsum(-1)


def half_pairs_cut_wrong(x: Tensor, positions: Tensor) -> Tensor:
    """Neither layout: channel i with D - 1 - i."""
    order = torch.cat((torch.arange(D // 2), torch.arange(D - 1, D // 2 - 1, -1)))
    return sound(x[..., order], positions)[..., order.argsort()]


def heads_as_tokens(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x.transpose(1, 2), torch.arange(x.shape[1])).transpose(1, 2)


def table_ends(x: Tensor, positions: Tensor) -> Tensor:
    """Positions past the table read its last row."""
    return sound(x, positions.clamp(max=999))


def detached_wrongly(x: Tensor, positions: Tensor) -> Tensor:
    """Half of the gradient is lost."""
    angles = tiled(angles_of(positions, frequencies()))
    return (x * angles.cos() + rotate_half(x).detach() * angles.sin()).to(x.dtype)


def keys_unrotated(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return sound(q, positions), k.clone()


def tables_squared(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Normalises by the size of the tables the wrong way round: the scale counts twice."""
    scale = (cos.square() + sin.square()).sqrt()[:, None]
    q, k = (x * cos[:, None] + rotate_half(x) * sin[:, None] for x in (q, k))
    return q * scale, k * scale


def first_table_kept() -> Function:
    """A table made once, for the positions of the first call."""
    kept: list[Tensor] = []

    def first(x: Tensor, positions: Tensor) -> Tensor:
        kept.append(tiled(angles_of(positions, frequencies())))
        return turn(x, kept[0])

    return first


def counter_kept() -> Function:
    """Positions are ignored: the function counts the tokens it has seen."""
    seen = [0]

    def counted(x: Tensor, positions: Tensor) -> Tensor:
        seen[0] += x.shape[2]
        return sound(x, torch.arange(seen[0] - x.shape[2], seen[0]))

    return counted


def rows_mixed(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x - 0.5 * (x.mean(0, keepdim=True) - x[:1]), positions)


def with_dropout(x: Tensor, positions: Tensor) -> Tensor:
    return torch.nn.functional.dropout(sound(x, positions), 0.1)


def one_pair_backwards(x: Tensor, positions: Tensor) -> Tensor:
    signs = torch.ones(D // 2).double()
    signs[3] = -1
    return turn(x, tiled(angles_of(positions, frequencies() * signs)))


def grid(x: Tensor, positions: Tensor) -> Tensor:
    return whorl.AxialRoPE(D).rotate(x, torch.stack((positions // 4, positions % 4)))


def one_frequency(x: Tensor, positions: Tensor) -> Tensor:
    return turn(x, tiled(angles_of(positions, torch.full((D // 2,), 0.5).double())))


def raises(x: Tensor, positions: Tensor) -> Tensor:
    raise RuntimeError("no kernel for this shape")


def wrong_shape(x: Tensor, positions: Tensor) -> Tensor:
    return x[..., :-1]


#: (id, a function or a maker of one, kind)
MISTAKES: list[tuple[str, Function, str]] = [
    ("layout-mixup", half_pairs_repeated_tables, "x"),
    ("layout-mixup", interleaved_pairs_tiled_tables, "x"),
    ("doubled-exponent", doubled_exponent, "x"),
    ("sign-reversed", swapped_sign, "x"),
    ("sign-on-one-half", sign_missing_in_one_half, "x"),
    ("reversed-frequencies", reversed_frequencies, "x"),
    ("bf16-positions", positions_in_the_dtype_of_x, "x"),
    ("fp16-positions", positions_in_the_dtype_of_x, "x"),
    ("bf16-positions", positions_in_bfloat16, "x"),
    ("fp16-positions", positions_in_float16, "x"),
    ("half-angles", angles_in_the_dtype_of_x, "x"),
    ("half-tables", tables_in(torch.bfloat16), "x"),
    ("half-tables", tables_in(torch.float16), "x"),
    ("half-frequencies", frequencies_in_bfloat16, "x"),
    ("scale-twice", yarn_scale_twice, "x"),
    ("scale-twice", tables_squared, "cos_sin"),
    ("off-by-one", positions_from_one, "x"),
    ("position-offset", positions_from_forty, "x"),
    ("offset-ignored", positions_ignored, "x"),
    ("offset-ignored", cache_by_length(), "x"),
    ("history", cache_in_the_first_dtype(), "x"),
    ("history", longest_length_kept(), "x"),
    ("batch-mates", length_of_the_batch, "x"),
    ("dtype-changed", always_float32, "x"),
    ("input-modified", in_place, "x"),
    ("position-dependent-norm", growing, "x"),
    ("position-dependent-norm", xpos_query, "x"),
    ("no-rotation", nothing, "x"),
    ("not-linear", normalised, "x"),
    ("not-pairs", all_channels_mixed, "x"),
    ("unusual-pairs", half_pairs_cut_wrong, "x"),
    ("heads-differ", heads_as_tokens, "x"),
    ("far-positions", table_ends, "x"),
    ("backward", detached_wrongly, "x"),
    ("keys-differ", keys_unrotated, "qk"),
    ("history", first_table_kept(), "x"),
    ("history", counter_kept(), "x"),
    ("batch-mates", rows_mixed, "x"),
    ("not-repeatable", with_dropout, "x"),
    ("mixed-directions", one_pair_backwards, "x"),
    ("uneven-angles", grid, "x"),
    ("no-decay", one_frequency, "x"),
    ("no-answer", raises, "x"),
    ("no-answer", wrong_shape, "x"),
]
