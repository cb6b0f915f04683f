"""What a method does to angles: at the target, and in texts of the trained length.

    effective context       the longest text without out-of-distribution angles
    out of distribution     pairs whose largest angle at the target exceeds that of training, and
                            whose wavelength exceeds the trained length: the other pairs took every
                            angle in training
    angle change            the largest change of an angle within the trained length, in radians,
                            compared with the published rotation: what short texts notice
    attention scale         the factor on rotated queries and keys within the trained length; scores
                            carry its square

Training took the unscaled frequencies for the trained length. All of this is arithmetic on a
config: that no angle is new is necessary for good results, not sufficient. In layers with a window
no distance exceeds it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from whorl.configs import LayerGroup
from whorl.configs.inspection.extension import ModelExtension
from whorl.configs.inspection.lengths import limit_by_window, list_out_of_distribution

__all__ = ["AngleReport", "combine_worst", "measure_angles"]

_ROUNDING = 1e-12


@dataclass(frozen=True)
class AngleReport:
    """The angles of one method.

    effective_context: tokens, by angles; None if no length has out-of-distribution angles.
    out_of_distribution, pairs: how many of all pairs.
    angle_change: radians. attention_scale: within the trained length; published_scale: there,
        before; target_scale: at the target.
    """

    effective_context: int | None
    out_of_distribution: int
    pairs: int
    angle_change: float
    attention_scale: float
    published_scale: float
    target_scale: float

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "basis": "by angles"}


def measure_angles(group: LayerGroup, extension: ModelExtension, target: int) -> AngleReport:
    """The angles of a group of layers with an extension, in texts of ``target`` tokens."""
    assert group.rotation is not None
    assert extension.start is not None
    trained, window, after = extension.start, group.window, extension.after
    seen, distance = limit_by_window(trained, window), limit_by_window(target, window)
    assert seen is not None
    assert distance is not None
    new = list_out_of_distribution(after, seen, distance)
    effective = after.effective_context
    if effective is not None and window is not None and window <= effective:
        effective = None  # no distance exceeds the window
    published = group.rotation.build_without_tables().frequencies(trained)
    short = group.rotation.build_without_tables(scaling=extension.scaling).frequencies(trained)
    change = (short.inv_freq - published.inv_freq).abs()
    change[change <= _ROUNDING * published.inv_freq.abs()] = 0.0
    return AngleReport(
        effective_context=effective,
        out_of_distribution=len(new),
        pairs=len(after.pairs),
        angle_change=float(change.max()) * seen,
        attention_scale=float(short.attention_scale),
        published_scale=float(published.attention_scale),
        target_scale=float(after.attention_scale),
    )


def combine_worst(reports: Iterable[AngleReport]) -> AngleReport:
    """The worst of several groups of layers in each number."""
    found = list(reports)
    limits = [each.effective_context for each in found if each.effective_context is not None]
    scaled = max(found, key=lambda each: abs(math.log(each.target_scale)))
    worst = max(found, key=lambda each: each.out_of_distribution)
    return AngleReport(
        effective_context=min(limits, default=None),
        out_of_distribution=worst.out_of_distribution,
        pairs=worst.pairs,
        angle_change=max(each.angle_change for each in found),
        attention_scale=scaled.attention_scale,
        published_scale=scaled.published_scale,
        target_scale=scaled.target_scale,
    )
