"""Devices by name: what their vendors publish, and one processor as it was measured."""

import math
from dataclasses import dataclass, replace
from typing import Any

from whorl._support.words import quote, suggest_name

__all__ = ["DEVICES", "Device", "get_device"]


@dataclass(frozen=True)
class Device:
    """Memory in bytes; operations of dense matrices, and bytes of memory and link, per second.

    efficiency: the share of ``flops`` that training reaches.
    """

    name: str
    memory: float
    flops: float
    bandwidth: float
    link: float
    efficiency: float
    source: str


_NVIDIA = "NVIDIA's data sheet, dense bfloat16; link in one direction"

#: The share of 0.4 is what published trainings of large models report (Chowdhery et al. 2022, PaLM,
#: table 3: 0.2 to 0.46); it is an assumption, not a measurement.
DEVICES: dict[str, Device] = {
    d.name: d
    for d in (
        Device("a100-40", 40e9, 312e12, 1.555e12, 300e9, 0.4, _NVIDIA),
        Device("a100-80", 80e9, 312e12, 2.039e12, 300e9, 0.4, _NVIDIA),
        Device("h100", 80e9, 989e12, 3.35e12, 450e9, 0.4, _NVIDIA),
        Device("h200", 141e9, 989e12, 4.8e12, 450e9, 0.4, _NVIDIA),
        Device("l40s", 48e9, 362e12, 864e9, 32e9, 0.4, _NVIDIA),
        # One thread, float32; flops are those that training reached, so the share is 1.
        Device("cpu", 16e9, 5.8e10, 1.0e10, 1.0e9, 1.0, "benchmarks/2026-11-18-plan.json"),
    )
}


def get_device(name: str, **changes: Any) -> Device:
    """A device by name, with other numbers in place of some of its own; None leaves one."""
    if name not in DEVICES:
        known = ", ".join(DEVICES)
        raise ValueError(
            f"device must be one of {known}; got {quote(name)}{suggest_name(name, DEVICES)} Another"
            " one is described by memory=, flops= and bandwidth=, on top of the nearest."
        )
    given = {option: value for option, value in changes.items() if value is not None}
    for option, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        most = 1 if option == "efficiency" else math.inf
        if not number or not 0 < value < math.inf or value > most:
            limit = " and at most 1" if option == "efficiency" else ""
            raise ValueError(f"{option} must be a number above 0{limit}; got {quote(value)}.")
    return replace(DEVICES[name], **given)
