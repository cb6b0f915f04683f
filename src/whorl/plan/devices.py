"""Devices by name: what their vendors publish, and one processor as it was measured.

docs/plan.md has the sources of each.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from whorl._support.words import quote, suggest_name

__all__ = ["DEVICES", "Device", "get_device"]


@dataclass(frozen=True)
class Device:
    """Memory in bytes; operations of dense matrices, and bytes of memory and link, per second.

    flops are those of bfloat16, float32_flops of float32 without TF32, as in torch by default.
    efficiency: the share of them that training reaches. link: in one direction.
    """

    name: str
    memory: float
    flops: float
    float32_flops: float
    bandwidth: float
    link: float
    efficiency: float
    source: str


# Data sheets have bfloat16 with sparsity, twice that of dense matrices, and links both ways.
_A100 = "NVIDIA A100 data sheet (SXM4, NVLink)"
_H100 = "NVIDIA H100 data sheet (SXM5, NVLink)"
_H200 = "NVIDIA H200 data sheet (SXM, NVLink)"
_L40S = "NVIDIA L40S data sheet (PCIe 4.0 x16)"
_CPU = "flops: benchmarks/2026-11-18-plan.json; memory, bandwidth and link: assumed"

#: The share of 0.4 is what published trainings of large models report (Chowdhery et al. 2022, PaLM,
#: table 3: 0.21 to 0.46); it is an assumption, not a measurement.
DEVICES: dict[str, Device] = {
    d.name: d
    for d in (
        Device("a100-40", 40e9, 312e12, 19.5e12, 1.555e12, 300e9, 0.4, _A100),
        Device("a100-80", 80e9, 312e12, 19.5e12, 2.039e12, 300e9, 0.4, _A100),
        Device("h100", 80e9, 989e12, 67e12, 3.35e12, 450e9, 0.4, _H100),
        Device("h200", 141e9, 989e12, 67e12, 4.8e12, 450e9, 0.4, _H200),
        Device("l40s", 48e9, 362e12, 91.6e12, 864e9, 32e9, 0.4, _L40S),
        # One thread, float32; flops are those that training reached, so the share is 1.
        Device("cpu", 16e9, 5.8e10, 5.8e10, 1.0e10, 1.0e9, 1.0, _CPU),
    )
}


def get_device(name: str, precision: str, **changes: Any) -> Device:
    """A device by name, with other numbers in place of some of its own; None leaves one.

    With float32 its ``flops`` are those of float32.
    """
    if name not in DEVICES:
        known = ", ".join(DEVICES)
        raise ValueError(
            f"device must be one of {known}; got {quote(name)}{suggest_name(name, DEVICES)} Another"
            " one is described by memory, flops, bandwidth and link, on top of the nearest."
        )
    given = {option: value for option, value in changes.items() if value is not None}
    for option, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        most = 1 if option == "efficiency" else math.inf
        if not number or not 0 < value < math.inf or value > most:
            limit = " and at most 1" if option == "efficiency" else ""
            raise ValueError(f"{option} must be a number above 0{limit}; got {quote(value)}.")
    device = DEVICES[name]
    if precision == "float32":
        device = replace(device, flops=device.float32_flops)
    return replace(device, **given)
