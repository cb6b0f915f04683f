"""Memory and time of generating: weights and a cache, by heads over the fewest devices.

A token is limited by reading weights and cache once, or by its operations. Each device has as many
heads of queries as the others, and the key heads that these need:

    8 heads, 2 key heads, 4 devices     a key head on each, so that two devices hold the same one
    6 heads, 2 key heads, 3 devices     the second device needs both
"""

from dataclasses import asdict, dataclass
from typing import Any

from .devices import Device
from .encodings import ModelAttention
from .training import USABLE, count_operations

__all__ = ["ServingPlan", "plan_serving"]

#: The share of the published bandwidth that reading large tensors reaches; an assumption.
_READ = 0.8


@dataclass(frozen=True)
class ServingPlan:
    """Generating for ``batch`` sequences that are as long as the plan says.

    weights, cache: bytes in all; memory: bytes on one device. prompt_seconds: of all but one token
    at once; token_seconds: of the last one.
    """

    devices: int
    sharding: str
    weights: float
    cache: float
    cache_per_token: float | None
    memory: float
    prompt_seconds: float
    token_seconds: float
    limited_by: str
    tokens_per_second: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_serving(attention: ModelAttention, batch: int, device: Device, width: int) -> ServingPlan:
    """The plan with the fewest devices that divide the heads."""
    size = attention.size
    weights = float(width * (size.parameters + attention.parameters))
    cache = batch * attention.count_cache(width)
    counts = [n for n in range(1, size.heads + 1) if size.heads % n == 0]
    for count in counts:
        held = cache * _find_largest_share(attention, count)
        memory = weights / count + held
        if memory <= USABLE * device.memory:
            break
    else:
        raise ValueError(
            f"length must be one whose cache and weights, {(weights + cache) / 1e9:,.0f} GB, fit on"
            f" {size.heads} devices, one for each head, with {device.memory / 1e9:,.0f} GB each;"
            f" got {attention.length:,} with batch {batch}. Make the batch smaller, or memory"
            " larger."
        )
    dense = count_operations(attention) - attention.count_operations()
    speed = device.flops * device.efficiency * count
    times = {
        "operations": batch * (dense + attention.count_decoding()) / speed,
        "memory": memory / (_READ * device.bandwidth),
    }
    limit = max(times, key=lambda name: times[name])
    is_growing = attention.kind == "softmax" and not all(size.windows)
    grown = 2.0 * size.kv_heads * size.head_dim * width * sum(w is None for w in size.windows)
    return ServingPlan(
        devices=count,
        sharding="none: one device holds it" if count == 1 else f"heads over {count} devices",
        weights=weights,
        cache=cache,
        cache_per_token=grown if is_growing else None,
        memory=memory,
        prompt_seconds=batch * attention.length * count_operations(attention) / speed,
        token_seconds=times[limit],
        limited_by=limit,
        tokens_per_second=batch / times[limit],
    )


def _find_largest_share(attention: ModelAttention, devices: int) -> float:
    """The share of the cache that the device with the most of it holds."""
    size = attention.size
    if attention.kind == "linear":  # a state for each head of queries
        return 1 / devices
    each, served = size.heads // devices, size.heads // size.kv_heads
    starts = range(0, size.heads, each)
    return max((n + each - 1) // served - n // served + 1 for n in starts) / size.kv_heads
