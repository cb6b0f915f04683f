"""Refuse before minutes of measuring what could not be read or written after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import whorl

__all__ = ["check_files"]


def check_files(
    out: Path | None, chart: Path | None, resume: bool, load: Callable[[Path], object]
) -> None:
    """Raise unless results can be kept in ``out``, gone on with from it, and drawn to ``chart``.

    load: reads a report of the same benchmark, or raises.
    """
    if out is not None and (out.suffix != ".json" or not out.parent.is_dir()):
        raise ValueError(f"--out: {str(out)!r} must be a .json file in a folder that exists.")
    if chart is not None and whorl.plots.check_path(chart) == out:
        raise ValueError(f"--chart would overwrite the results in {str(out)!r}; name another file.")
    if resume and out is None:
        raise ValueError("--resume goes on with the file of --out; add --out FILE.json.")
    if resume and out is not None and out.exists():
        _check_report(out, load)


def _check_report(path: Path, load: Callable[[Path], object]) -> None:
    try:
        load(path)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"--resume: {str(path)!r} is not a report of whorl bench ({error}); name another file,"
            " or leave out --resume to overwrite it."
        ) from None
