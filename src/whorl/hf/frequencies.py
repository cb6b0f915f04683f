"""Frequencies of a loaded rotary module, and tables of sin and cos, against those of the config."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from whorl._support.words import quote
from whorl.configs import LayerGroup, ModelPositions

from .findings import LOAD_AGAIN, LiveFinding

__all__ = ["compare_frequencies", "compare_table", "find_buffers"]

# Frequencies in float32 are within 1e-6 of float64; a wrong scaling moves some by a tenth or more.
_NEAR = 1e-4
# Of sin and cos in a table for thousands of positions, made from angles in float32.
_NEAR_ROW = 1e-2
_PRECISE = (torch.float32, torch.float64)


def find_buffers(module: nn.Module, found: ModelPositions) -> Iterator[tuple[str, LayerGroup]]:
    """Names of the frequencies of a rotary module, and the layers that use them.

    Scalings that follow the length replace ``inv_freq`` in a call and keep the first ones apart.
    """
    for group in found.groups:
        if group.rotation is None:
            continue
        for prefix in (f"{group.name}_", ""):
            name = f"{prefix}inv_freq"
            if isinstance(getattr(module, name, None), Tensor):
                scaling = group.rotation.options.get("scaling")
                first = f"{prefix}original_inv_freq"
                follows = scaling is not None and scaling.follows_length
                is_there = isinstance(getattr(module, first, None), Tensor)
                yield (first if follows and is_there else name), group
                break


def compare_frequencies(
    module: nn.Module, name: str, group: LayerGroup, where: str
) -> Iterator[LiveFinding]:
    """Differences of the frequencies and of the attention scale from those of the config."""
    assert group.rotation is not None
    right = group.rotation.frequencies()
    expected, scale = right.inv_freq, float(right.attention_scale)
    buffer: Tensor = getattr(module, name)
    if buffer.device.type == "meta":
        yield _report_meta(where)
        return
    found = buffer.detach().double().cpu()
    if found.shape != expected.shape:
        yield LiveFinding(
            "error",
            where,
            f"there are {found.numel()} frequencies, and the config gives {expected.numel()}.",
            LOAD_AGAIN,
        )
    elif not bool(found.isfinite().all()) or not bool((found > 0).all()):
        yield LiveFinding(
            "error",
            where,
            "some frequencies are zero, negative or not finite, as in a buffer that was allocated"
            " on the meta device and never filled.",
            "Load the model without device_map and low_cpu_mem_usage, or fill the buffer from the"
            " config.",
        )
    elif float((found / expected - 1).abs().max()) > _NEAR:
        yield _explain_frequencies(found, group, where, getattr(module, name).dtype)
    factor = name.replace("original_", "").replace("inv_freq", "attention_scaling")
    actual = getattr(module, factor, None)
    if isinstance(actual, float | int) and abs(actual / scale - 1) > _NEAR:
        yield LiveFinding(
            "error",
            where.removesuffix(name) + factor,
            f"cos and sin are multiplied by {actual:.6g}, and the config gives {scale:.6g}.",
            LOAD_AGAIN,
        )


def compare_table(table: Tensor, group: LayerGroup, where: str) -> Iterator[LiveFinding]:
    """Differences of a table [tokens, channels] of sin and then cos, as GPT-J has one."""
    assert group.rotation is not None
    if table.device.type == "meta":
        yield _report_meta(where)
        return
    rope = group.rotation.build_without_tables()
    cos, sin = rope.tables(torch.arange(table.shape[0]), context_length=table.shape[0])
    expected, found = torch.cat((sin, cos), -1).double(), table.detach().double().cpu()
    if found.shape != expected.shape:
        yield LiveFinding(
            "error",
            where,
            f"the table has {found.shape[-1]} channels, and the config gives {expected.shape[-1]}.",
            LOAD_AGAIN,
        )
        return
    wrong = ~((found - expected).abs() <= _NEAR_ROW).all(-1)  # NaN too
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        yield LiveFinding(
            "error",
            where,
            f"sin and cos differ from those of the config in {int(wrong.sum())} of {len(wrong)}"
            f" positions, first in {first}, as in a buffer that was allocated on the meta device"
            " and never filled.",
            LOAD_AGAIN,
        )


def _report_meta(where: str) -> LiveFinding:
    return LiveFinding(
        "error",
        where,
        "it is on the meta device and has no numbers: the model was built there, and nothing filled"
        " it.",
        "Load the model with from_pretrained, without a meta device of your own.",
    )


def _explain_frequencies(
    found: Tensor, group: LayerGroup, where: str, dtype: torch.dtype
) -> LiveFinding:
    """A finding about frequencies that differ, with the cause if it can be told."""
    assert group.rotation is not None
    expected = group.rotation.frequencies().inv_freq
    if dtype not in _PRECISE and torch.equal(found, expected.to(dtype).double()):
        worst = float((found - expected).abs().max())
        return LiveFinding(
            "warning",
            where,
            f"the frequencies are rounded to {str(dtype).removeprefix('torch.')}, so that angles"
            f" are off by one radian at position {1 / worst:,.0f}.",
            "Convert the model with from_pretrained(dtype=...), which leaves them in float32, not"
            " with .half() or .to().",
        )
    plain = group.rotation.build_without_tables(scaling=None).frequencies().inv_freq
    ratio = expected / found
    remedy = "Load the model again, with the config as it is to be used."
    if group.rotation.options.get("scaling") is not None and _is_near(found, plain):
        message = "the frequencies are those without the scaling of the config."
    elif _is_near(ratio, ratio[:1].expand_as(ratio)):
        factor = f"{float(ratio[0]):.6g}"
        message = (
            f"the frequencies are 1/{factor} of those that the config gives, as after linear"
            f" scaling by {factor}."
        )
    elif _is_near(plain / found, (plain / found)[:1].expand_as(plain)):
        factor = f"{float((plain / found)[0]):.6g}"
        message = (
            f"the frequencies are those of linear scaling by {factor}, and the config has"
            f" {quote(group.rotation.options.get('scaling'))}."
        )
    else:
        pair = int((found / expected).log().abs().argmax())
        message = (
            f"the frequencies differ from the config: that of pair {pair} is"
            f" {float(found[pair]):.6g} instead of {float(expected[pair]):.6g}."
        )
    return LiveFinding("error", where, message, remedy)


def _is_near(one: Tensor, other: Tensor) -> bool:
    return bool(((one / other - 1).abs() <= _NEAR).all())
