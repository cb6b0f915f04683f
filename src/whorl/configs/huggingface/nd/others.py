"""Families with coordinates that are neither tokens of a text nor patches of a grid.

    dinov3_vit, sapiens2, eomt_dinov3   centres of patches in [-1, 1], times 2 pi
    llama4_vision_model                 columns and rows, counted from 1
    efficientloftr                      rows and columns, counted from 1, over all heads at once
    lightglue                           key points, with trained frequencies
    musicflamingo                       times of audio, applied to hidden states
    esmfold2                            coordinates of atoms, and the number of their residue
    vjepa2                              not a rotation: refused

Source: transformers 5.22.2.
"""

import math
from collections.abc import Callable
from typing import Any

from whorl.configs._values import MOST_CHANNELS, Keys
from whorl.configs.model import LayerGroup, Note

from ._sizes import (
    build_axial,
    compute_power,
    divide_hidden_size,
    list_layers,
    read_head_dim,
    read_rope_parameters,
    read_size,
)

__all__ = ["OTHERS"]

_CROSS = Note("cross-attention-unrotated", "Cross-attention between two images is not rotated.")


def _read_continuous(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = read_rope_parameters(keys, 100.0, only="default")
    head = divide_hidden_size(keys)
    notes = (
        Note(
            "coordinates",
            "Positions are (row, column) of the centre of a patch in an image that spans [-1, 1]:"
            " whorl.positions.grid(height, width, coordinates='centers').",
        ),
        Note(
            "first-tokens-unrotated",
            "Tokens before the patches (class, registers) are not rotated.",
        ),
        Note(
            "augmented-in-training",
            "Training shifts, jitters and rescales the coordinates (pos_embed_shift,"
            " pos_embed_jitter, pos_embed_rescale).",
        ),
    )
    rotation = build_axial(head_dim=head, base=rope["rope_theta"], fastest=2 * math.pi)
    return (LayerGroup(None, list_layers(keys), rotation, notes=notes, parameters=rope),)


def _read_llama4_vision(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = read_rope_parameters(keys, 10_000.0, only="default")
    head = divide_hidden_size(keys)
    note = Note(
        "coordinates",
        "Positions are (column, row) of a patch, counted from 1; the class token, which comes last,"
        " has (0, 0), so it is not rotated.",
    )
    rotation = build_axial(head_dim=head, base=rope["rope_theta"], layout="interleaved")
    return (LayerGroup(None, list_layers(keys), rotation, notes=(note,), parameters=rope),)


def _read_efficientloftr(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = read_rope_parameters(keys, 10_000.0, only="default")
    width = read_size(keys, "hidden_size", most=MOST_CHANNELS)
    heads = read_size(keys, "num_attention_heads")
    given = Keys(rope, "rope_parameters").read_number("partial_rotary_factor", above=0)
    share = given or keys.read_number("partial_rotary_factor", above=0) or 4.0
    ladder = int(read_head_dim(keys, "hidden_size") * min(share, MOST_CHANNELS))
    if 2 * ladder != width:
        raise keys.wrong_value(
            "hidden_size",
            f"{2 * ladder}, because rows and columns rotate {ladder} channels each over all heads"
            f" ({heads} heads, partial_rotary_factor {share:g})",
        )
    notes = (
        Note(
            "coordinates", "Positions are (row, column) of an aggregated feature, counted from 1."
        ),
        Note(
            "all-heads-at-once",
            "Queries and keys are rotated before they are split into heads: head_dim here is the"
            " whole width, and heads rotate by different frequencies.",
        ),
        _CROSS,
    )
    rotation = build_axial(
        head_dim=width, base=rope["rope_theta"], order="alternating", layout="interleaved"
    )
    layers = list_layers(keys, "num_attention_layers")
    return (LayerGroup(None, layers, rotation, notes=notes, parameters=rope),)


def _read_lightglue(keys: Keys) -> tuple[LayerGroup, ...]:
    head = divide_hidden_size(keys, "descriptor_dim")
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
    rotation = build_axial(head_dim=head, frequencies="mixed", num_kv_heads=1, layout="interleaved")
    return (LayerGroup(None, list_layers(keys), rotation, notes=notes),)


def _read_musicflamingo(keys: Keys) -> tuple[LayerGroup, ...]:
    rope = read_rope_parameters(keys, 1200.0, only="default")
    given = Keys(rope, "rope_parameters")
    audio = keys.read_object("audio_config") or Keys({})
    head = keys.read_int("head_dim", most=MOST_CHANNELS)
    head = head or audio.read_int("hidden_size", most=MOST_CHANNELS) or 1280
    share = given.read_number("partial_rotary_factor", above=0)
    share = share or keys.read_number("partial_rotary_factor", above=0) or 0.2
    width = int(head * min(share, 1.0))  # of each axis
    if width % 2 or 2 * width > head:
        raise given.wrong_value(
            "partial_rotary_factor",
            f"a share that two axes can take of {head} channels, in whole pairs",
        )
    theta = rope["rope_theta"]
    notes = (
        Note(
            "hidden-states-rotated",
            "The output of the audio encoder is rotated, once; queries and keys are not.",
        ),
        Note(
            "coordinates",
            f"With t the time of a frame in seconds, positions are (-t w, -2 pi t n) 2 pi /"
            f" {theta:g}; w is the number of its window, n that of the frame in the window.",
        ),
    )
    rotation = build_axial(head_dim=head, rotary_dim=2 * width, base=theta, layout="interleaved")
    return (LayerGroup(None, (), rotation, notes=notes, parameters=rope),)


def _read_esmfold2(keys: Keys) -> tuple[LayerGroup, ...]:
    given = keys.read_object("atom_encoder") or Keys({}, keys.path("atom_encoder"))
    usual = {
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_spatial_rope_pairs_per_axis": 2,
        "num_uid_rope_pairs": 10,
    }
    atoms = Keys({**usual, **given.data}, given.where)
    head = read_head_dim(atoms, "hidden_size")
    spatial = atoms.read_int("num_spatial_rope_pairs_per_axis", least=0, most=MOST_CHANNELS) or 0
    number = atoms.read_int("num_uid_rope_pairs", least=0, most=MOST_CHANNELS) or 0
    near = atoms.read_number("spatial_rope_base_frequency", above=0) or 20.0
    far = atoms.read_number("uid_rope_base_frequency", above=0) or 10_000.0
    still = head // 2 - 3 * spatial - number
    if still < 0:
        raise atoms.wrong_value(
            "num_uid_rope_pairs", f"at most {head // 2 - 3 * spatial}, because heads have {head}"
        )
    notes = (
        Note(
            "coordinates",
            "Positions are (x, y, z, uid): coordinates of an atom in its reference conformer, and"
            " the number of its space (ref_pos, ref_space_uid).",
        ),
    )
    options: dict[str, Any] = {"head_dim": head, "axes": 4, "base": (near, near, near, far)}
    options["widths"] = (*[2 * spatial] * 3, 2 * (number + still))
    if still:  # pairs that do not rotate
        spatial_frequencies = [compute_power(near, -j / spatial) for j in range(spatial)]
        own = [compute_power(far, -j / number) for j in range(number)]
        options["inv_freq"] = (*spatial_frequencies * 3, *own, *[0.0] * still)
    return (LayerGroup(None, list_layers(atoms), build_axial(**options), notes=notes),)


def _refuse_vjepa2(keys: Keys) -> tuple[LayerGroup, ...]:
    why = (
        "vjepa2 uses different angles for the channels 2 i and 2 i + 1 of a pair, because its cos"
        " and sin repeat as in the half layout, but its channels are paired as in the interleaved"
        " one. That is not a rotation: the length of a vector changes by up to 20 % within 16"
        " positions, and scores depend on more than differences of positions"
    )
    notes = (
        Note("not-a-rotation", f"{why}."),
        Note("coordinates", "Positions are (frame, row, column) of a patch, counted from 0."),
    )
    refusal = f"{why}."
    return (LayerGroup(None, list_layers(keys), None, notes=notes, refusal=refusal),)


OTHERS: dict[str, Callable[[Keys], tuple[LayerGroup, ...]]] = {
    "dinov3_vit": _read_continuous,
    "efficientloftr": _read_efficientloftr,
    "eomt_dinov3": _read_continuous,
    "esmfold2": _read_esmfold2,
    "lightglue": _read_lightglue,
    "llama4_vision_model": _read_llama4_vision,
    "musicflamingo": _read_musicflamingo,
    "sapiens2": _read_continuous,
    "vjepa2": _refuse_vjepa2,
}
