"""Chart of the loss along a stream, with each way of remembering earlier tokens."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._entry import chart
from ._series import Axes, CurvePoint, Series, choose_axis_end, draw_series, get_finite

_LABELS = {
    "dense": "all keys",
    "window": "window",
    "sinks": "window + sinks",
    "recomputed": "window recomputed",
}


@chart("stream", group="a model", numbers=_numbers.compute_stream)
def stream(found: Mapping[str, Any]) -> Any:
    """Loss along a stream, by what the model remembers."""
    series = []
    for policy in found["policies"]:
        points = [
            CurvePoint((one["start"] + one["end"]) / 2, value)
            for one in policy["by_position"]
            if (value := get_finite(one["loss"])) is not None
        ]
        name = policy["name"]
        # The reference is dashed, because the lines of windows often lie on it.
        dash = 1 if name == "recomputed" else 0
        if points:
            series.append(Series(_LABELS.get(name, name), name, dash, tuple(points)))
    if not series:
        raise ValueError("plots.stream: no policy has losses that can be drawn.")
    trained, length, unit = found["trained_length"], found["length"], found["unit"]
    step = trained * max(1, length // trained // 10)
    values = [point.y for line in series for point in line.points]
    return draw_series(
        series,
        Axes(
            title="Loss along a stream",
            subtitle=f"{found['encoding']}, trained on {trained} {unit}; mean of"
            f" {found['streams']} texts; windows of {found['window']} keys",
            x=f"position ({unit})",
            y=f"loss (nats per {unit.removesuffix('s')})",
            ticks=tuple(range(0, length + 1, step)),
            log=False,
            mark=(trained, f"trained to {trained}"),
            top=choose_axis_end(values, 4.0),
        ),
    )
