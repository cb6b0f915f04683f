"""Charts in one style, and files of them in four formats.

    catalogue     every chart of the analysis by name, as ``whorl plot`` lists them
    frequencies, decay, precision, noise, scalings, maps, encodings, streams, training   draw them
    bench, experiment, extension, inspection, lab   draw the results of those commands
    theme         colours and sizes, light and dark

Chart functions return Altair charts; ``save`` writes them. Altair is imported when a chart is drawn
or saved, so this package can be imported without the ``plots`` extra.
"""

import json
from pathlib import Path
from typing import Any

from whorl._support.extras import import_extra
from whorl._support.files import write_file_atomically

from . import catalogue
from ._draw import import_altair
from .bench import accuracy, bench, speed
from .experiment import (
    experiment,
    experiment_differences,
    experiment_lines,
    list_experiment_lines,
)
from .extension import (
    extension,
    extension_lengths,
    extension_positions,
    extension_retrieval,
)
from .inspection import inspection
from .lab import lab, lab_costs, lab_lengths, lab_positions, lab_training
from .theme import PALETTE, Theme, theme

__all__ = [
    "PALETTE",
    "SUFFIXES",
    "Theme",
    "accuracy",
    "bench",
    "catalogue",
    "check_path",
    "experiment",
    "experiment_differences",
    "experiment_lines",
    "extension",
    "extension_lengths",
    "extension_positions",
    "extension_retrieval",
    "inspection",
    "lab",
    "lab_costs",
    "lab_lengths",
    "lab_positions",
    "lab_training",
    "list_experiment_lines",
    "save",
    "speed",
    "svg",
    "theme",
]

SUFFIXES = (".png", ".svg", ".html", ".json")


def save(chart: Any, path: str | Path, *, scale: float = 2, theme: Theme | None = "light") -> Path:
    """Write an Altair chart as .png, .svg, .html or .json, and return the path.

    The file is complete or does not exist. HTML includes its scripts, so it opens without a
    network. JSON is the Vega-Lite specification with its data and theme.

    Args:
        scale: pixels of a PNG per pixel of the chart.
        theme: "light", "dark", or None for the theme that Altair has enabled. The chart's own
            configuration overrides it, and Altair's global state does not change.
    """
    path = check_path(path)
    content = _render(_build_spec(chart, theme), path.suffix.lower(), scale)
    try:
        write_file_atomically(path, content)
    except OSError as error:
        raise OSError(
            f"plots.save: cannot write {str(path)!r}: {error.strerror or error}; choose a path that"
            " you may write to."
        ) from None
    return path


def svg(chart: Any, *, theme: Theme | None = "light") -> str:
    """An Altair chart as the text of an SVG image, to put into a page."""
    return _render(_build_spec(chart, theme), ".svg", 1).decode()


def check_path(path: str | Path) -> Path:
    """The path, if ``save`` can write there; check it before long work whose result is a chart."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"plots.save: {path.name or str(path)!r} must end in .png, .svg, .html or .json."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"plots.save: the folder {str(path.parent)!r} of {path.name!r} does not exist;"
            " create it first."
        )
    if path.is_dir():
        raise IsADirectoryError(f"plots.save: {str(path)!r} is a folder; name a file in it.")
    import_altair()
    import_extra("vl_convert", by="whorl.plots", extra="plots")
    return path


def _build_spec(chart: Any, name: Theme | None) -> dict[str, Any]:
    alt = import_altair()
    if not hasattr(chart, "to_dict"):
        raise TypeError(f"plots.save: chart must be an Altair chart; got {type(chart).__name__}.")
    spec: dict[str, Any]
    # Altair refuses more than 5000 rows, to keep notebooks small; a file may have more.
    with alt.data_transformers.enable("default", max_rows=None):
        if name is None:
            return dict(chart.to_dict())
        config = theme(name)
        with alt.theme.enable("none"):
            spec = chart.to_dict()
    spec["config"] = _merge(config, spec.get("config", {}))
    return spec


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both dictionaries in one, also nested ones; values of ``above`` replace others."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merge(result[key], value) if both else value
    return result


def _render(spec: dict[str, Any], suffix: str, scale: float) -> bytes:
    if suffix == ".json":
        return (json.dumps(spec, indent=2) + "\n").encode()
    alt = import_altair()
    convert = import_extra("vl_convert", by="whorl.plots", extra="plots")
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    if suffix == ".png":
        return bytes(convert.vegalite_to_png(spec, vl_version=version, scale=scale))
    if suffix == ".svg":
        return str(convert.vegalite_to_svg(spec, vl_version=version)).encode()
    return str(convert.vegalite_to_html(spec, vl_version=version, bundle=True)).encode()
