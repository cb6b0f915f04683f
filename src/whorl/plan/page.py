"""A plan as text."""

from collections.abc import Iterator

from whorl._support.documentation import build_page_address

from .calibration import CALIBRATION
from .plan import ModelPlan

__all__ = ["render_lines"]

_KINDS = {"softmax": "softmax attention", "linear": "linear attention"}


def render_lines(plan: ModelPlan) -> Iterator[str]:
    """The lines of a plan; what was assumed and how it was computed come last."""
    size, attention, device = plan.size, plan.attention, plan.device
    yield "Computed from sizes, not measured."
    yield ""
    yield (
        f"model     {_shorten(size.parameters)} parameters: {size.layers} layers of width"
        f" {size.width:,}, {size.heads} heads of {size.head_dim},"
    )
    yield (
        f"          {size.kv_heads} key heads, MLP {size.inner:,}, vocabulary {size.vocabulary:,}"
    )
    windows = {w for w in size.windows if w is not None}
    within = f", windows of {', '.join(f'{w:,}' for w in sorted(windows))}" if windows else ""
    own = f", {_shorten(attention.parameters)} parameters" if attention.parameters else ""
    yield f"encoding  {attention.encoding}{own}; {_KINDS[attention.kind]}{within}"
    yield f"call      {plan.length:,} tokens, batch {plan.batch}, {plan.precision}"
    yield (
        f"device    {device.name}: {_format_bytes(device.memory)},"
        f" {device.flops * device.efficiency / 1e12:,.4g} Tflop/s"
        f" ({device.efficiency:.0%} of {device.flops / 1e12:,.4g}),"
        f" {_format_bytes(device.bandwidth)}/s, link {_format_bytes(device.link)}/s"
    )
    yield from _render_training(plan)
    yield from _render_serving(plan)
    for why in plan.refused:
        yield ""
        yield f"not possible: {why}"
    if size.assumed:
        yield ""
        yield f"assumed, because nothing says it: {', '.join(size.assumed)}"
    yield ""
    page = build_page_address("docs/plan.md")
    yield from CALIBRATION.list_sentences()
    yield f"Formulas, devices and assumptions: {page}."


def _render_training(plan: ModelPlan) -> Iterator[str]:
    found = plan.training
    if found is None:
        return
    yield ""
    again = "computed again" if found.recompute else "kept"
    yield f"training  {found.devices} x {plan.device.name}, activations of layers {again}"
    yield f"  sharding                    {found.sharding}"
    yield f"  weights, gradients, AdamW   {_format_bytes(found.states)} on each device"
    yield f"  activations                 {_format_bytes(found.activations)}"
    yield f"  gathered weights and keys   {_format_bytes(found.gathered)}"
    yield (
        f"  a step                      {_format_time(found.seconds)}, limited by"
        f" {found.limited_by}: {found.tokens_per_second:,.0f} tokens/s"
    )


def _render_serving(plan: ModelPlan) -> Iterator[str]:
    found = plan.serving
    if found is None:
        return
    yield ""
    yield f"serving   {found.devices} x {plan.device.name}"
    yield f"  sharding                    {found.sharding}"
    yield f"  weights                     {_format_bytes(found.weights)}"
    grown = found.cache_per_token
    more = "constant" if grown is None else f"{_format_bytes(grown)} for each further token"
    yield f"  cache                       {_format_bytes(found.cache)}, {more}"
    yield f"  the prompt                  {_format_time(found.prompt_seconds)}"
    yield (
        f"  a token                     {_format_time(found.token_seconds)}, limited by"
        f" {found.limited_by}: {found.tokens_per_second:,.0f} tokens/s"
    )


def _shorten(count: float) -> str:
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:,.0f}"


def _format_bytes(count: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:,.0f} bytes"


def _format_time(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:,.3g} min"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
