"""Rotations that are neither along a text nor on a grid of whole numbers, one reader each.

    dinov3_vit, sapiens2, eomt_dinov3   centres of patches in [-1, 1], turned by 2 pi
    llama4_vision_model                 columns and rows from 1 on
    efficientloftr                      rows and columns from 1 on, over all heads at once
    lightglue                           key points, by trained frequencies
    musicflamingo                       times of audio, on hidden states
    esmfold2                            places of atoms, and the number of their residue
    vjepa2                              not a rotation: refused

Facts: transformers 5.22.2.
"""

import math
from collections.abc import Callable
from typing import Any

from whorl.configs._values import MOST_CHANNELS, Keys
from whorl.configs.model import LayerGroup, Note

from ._sizes import axial, head_of, layers_of, power, rope_of, shared, size

__all__ = ["OTHERS"]

_CROSS = Note("cross-attention-unrotated", "Cross-attention between two images is not rotated.")


def _continuous(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = rope_of(keys, 100.0, only="default")
    head = shared(size(keys, "hidden_size"), size(keys, "num_attention_heads"))
    notes = (
        Note(
            "coordinates",
            "Positions are (row, column) of the centre of a patch in an image that spans [-1, 1]:"
            " whorl.positions.grid(height, width, coordinates='centers').",
        ),
        Note("first-tokens-unrotated", "Tokens before the patches (class, registers) stay as is."),
        Note(
            "augmented-in-training",
            "Training shifts, jitters and rescales the coordinates (pos_embed_shift,"
            " pos_embed_jitter, pos_embed_rescale).",
        ),
    )
    rotation = axial(head_dim=head, base=rope["rope_theta"], fastest=2 * math.pi)
    return (LayerGroup(None, layers_of(keys), rotation, notes=notes, parameters=rope),)


def _llama4_vision(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = rope_of(keys, 10_000.0, only="default")
    head = shared(size(keys, "hidden_size"), size(keys, "num_attention_heads"))
    note = Note(
        "coordinates",
        "Positions are (column, row) of a patch, from 1 on; the class token, which comes last, is"
        " at (0, 0), that is, not rotated.",
    )
    rotation = axial(head_dim=head, base=rope["rope_theta"], layout="interleaved")
    return (LayerGroup(None, layers_of(keys), rotation, notes=(note,), parameters=rope),)


def _efficientloftr(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = rope_of(keys, 10_000.0, only="default")
    width = size(keys, "hidden_size", most=MOST_CHANNELS)
    heads = size(keys, "num_attention_heads")
    given = Keys(rope, "rope_parameters").number("partial_rotary_factor", above=0)
    share = given or keys.number("partial_rotary_factor", above=0) or 4.0
    ladder = int(head_of(keys, "hidden_size") * min(share, MOST_CHANNELS))
    if 2 * ladder != width:
        raise keys.refused(
            "hidden_size",
            f"twice the ladder's {ladder} channels, because rows and columns share all heads"
            f" ({heads} heads, partial_rotary_factor {share:g})",
        )
    notes = (
        Note("coordinates", "Positions are (row, column) of an aggregated feature, from 1 on."),
        Note(
            "all-heads-at-once",
            "Queries and keys are rotated before they are split into heads: head_dim here is the"
            " whole width, and heads turn by different frequencies.",
        ),
        _CROSS,
    )
    rotation = axial(
        head_dim=width, base=rope["rope_theta"], order="alternating", layout="interleaved"
    )
    layers = layers_of(keys, "num_attention_layers")
    return (LayerGroup(None, layers, rotation, notes=notes, parameters=rope),)


def _lightglue(keys: Keys) -> tuple[LayerGroup, ...]:
    head = shared(size(keys, "descriptor_dim", "hidden_size"), size(keys, "num_attention_heads"))
    notes = (
        Note(
            "coordinates",
            "Positions are (x, y) of a key point, minus the middle of the image and divided by half"
            " of its longer side.",
        ),
        Note(
            "learned-frequencies",
            "The frequencies are trained and the same in every head: copy"
            " positional_encoder.projector.weight.T into `freqs`.",
        ),
        _CROSS,
    )
    rotation = axial(head_dim=head, frequencies="mixed", num_kv_heads=1, layout="interleaved")
    return (LayerGroup(None, layers_of(keys), rotation, notes=notes),)


def _musicflamingo(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = rope_of(keys, 1200.0, only="default")
    given = Keys(rope, "rope_parameters")
    audio = keys.under("audio_config") or Keys({})
    head = keys.whole("head_dim", most=MOST_CHANNELS)
    head = head or audio.whole("hidden_size", most=MOST_CHANNELS) or 1280
    share = given.number("partial_rotary_factor", above=0)
    share = share or keys.number("partial_rotary_factor", above=0) or 0.2
    width = int(head * min(share, 1.0))  # of each axis
    if width % 2 or 2 * width > head:
        raise given.refused(
            "partial_rotary_factor",
            f"a share that two axes can take of {head} channels, in whole pairs",
        )
    theta = rope["rope_theta"]
    notes = (
        Note(
            "hidden-states-rotated",
            "It rotates what the audio encoder gives, once, and neither queries nor keys.",
        ),
        Note(
            "coordinates",
            f"With t the time of a frame in seconds, positions are (-t w, -2 pi t n) 2 pi /"
            f" {theta:g}: w the number of its window, n of the frame within the window.",
        ),
    )
    rotation = axial(head_dim=head, rotary_dim=2 * width, base=theta, layout="interleaved")
    return (LayerGroup(None, (), rotation, notes=notes, parameters=rope),)


def _esmfold2(keys: Keys) -> tuple[LayerGroup, ...]:
    given = keys.under("atom_encoder") or Keys({}, keys.path("atom_encoder"))
    usual = {
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_spatial_rope_pairs_per_axis": 2,
        "num_uid_rope_pairs": 10,
    }
    atoms = Keys({**usual, **given.data}, given.where)
    head = head_of(atoms, "hidden_size")
    spatial = atoms.whole("num_spatial_rope_pairs_per_axis", least=0, most=MOST_CHANNELS) or 0
    number = atoms.whole("num_uid_rope_pairs", least=0, most=MOST_CHANNELS) or 0
    near = atoms.number("spatial_rope_base_frequency", above=0) or 20.0
    far = atoms.number("uid_rope_base_frequency", above=0) or 10_000.0
    still = head // 2 - 3 * spatial - number
    if still < 0:
        raise atoms.refused(
            "num_uid_rope_pairs", f"at most {head // 2 - 3 * spatial}, because heads have {head}"
        )
    notes = (
        Note(
            "coordinates",
            "Positions are (x, y, z, uid): the place of an atom in its reference conformer and the"
            " number of its space (ref_pos, ref_space_uid).",
        ),
    )
    options: dict[str, Any] = {"head_dim": head, "axes": 4, "base": (near, near, near, far)}
    options["widths"] = (*[2 * spatial] * 3, 2 * (number + still))
    if still:  # pairs that do not turn
        place = [power(near, -j / spatial) for j in range(spatial)]
        own = [power(far, -j / number) for j in range(number)]
        options["inv_freq"] = (*place * 3, *own, *[0.0] * still)
    return (LayerGroup(None, layers_of(atoms), axial(**options), notes=notes),)


def _vjepa2(keys: Keys) -> tuple[LayerGroup, ...]:
    why = (
        "vjepa2 turns the channels 2 i and 2 i + 1 of a pair by different angles, because its cos"
        " and sin repeat as for the half layout and its channels are paired as for the interleaved"
        " one. That is not a rotation: the length of a vector changes, by 20 % either way within 16"
        " positions, and scores depend on more than differences of positions"
    )
    notes = (
        Note("not-a-rotation", f"{why}."),
        Note("coordinates", "Positions are (frame, row, column) of a patch, from 0 on."),
    )
    refusal = f"read_config: {why}."
    return (LayerGroup(None, layers_of(keys), None, notes=notes, refusal=refusal),)


OTHERS: dict[str, Callable[[Keys], tuple[LayerGroup, ...]]] = {
    "dinov3_vit": _continuous,
    "efficientloftr": _efficientloftr,
    "eomt_dinov3": _continuous,
    "esmfold2": _esmfold2,
    "lightglue": _lightglue,
    "llama4_vision_model": _llama4_vision,
    "musicflamingo": _musicflamingo,
    "sapiens2": _continuous,
    "vjepa2": _vjepa2,
}
