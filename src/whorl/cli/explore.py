"""``whorl explore``: a local page on a model's positions, or the same as one file to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._options import check_chart, name_options
from ._output import open_progress_bar

__all__ = ["explore"]

Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, a GGUF file, a preset to start with, or a model in the local"
    " Hugging Face cache.",
)
Other = typer.Argument(
    metavar="OTHER", help="A second one: both side by side, in the browser or in a file."
)
Port = typer.Option(min=1, max=65_535, metavar="N", help="Where to listen; a free port by default.")
Open = typer.Option("--no-open", help="Print the address only; open no browser.")
Runs = typer.Option(metavar="FOLDER", help="Results of whorl compare, to show beside encodings.")
Export = typer.Option(
    metavar="FILE.html",
    help="Write one file that stands alone, with every method in steps of its factor, and stop.",
)
Picture = typer.Option(
    metavar="FILE", help="Draw the charts: .png, .svg, .html or .json, without a browser; and stop."
)
Method = typer.Option(metavar="NAME", help="Of --picture: the extension to draw (yarn).")
Factor = typer.Option(metavar="F", help="Of --picture: its factor [4].")

_NAMES = {"factor": "--factor", "unknown extension": "--method: unknown extension"}


def explore(
    config: Annotated[str | None, Config] = None,
    other: Annotated[str | None, Other] = None,
    port: Annotated[int | None, Port] = None,
    no_open: Annotated[bool, Open] = False,
    runs: Annotated[Path | None, Runs] = None,
    export: Annotated[Path | None, Export] = None,
    picture: Annotated[Path | None, Picture] = None,
    method: Annotated[str | None, Method] = None,
    factor: Annotated[float | None, Factor] = None,
) -> None:
    """Look at a model's positions in the browser: charts, sliders, what inspect and doctor say.

    The page is served to this machine only, and nothing is loaded from elsewhere. Ctrl-C ends it.
    Two configs are shown side by side. With --export the page is one file that can be sent.
    """
    if picture is None and (method is not None or factor is not None):
        raise ValueError("--method and --factor are about --picture; add it, or leave them out.")
    if export is not None or picture is not None:
        _write(config, other, export, picture, method, factor)
        return
    from whorl.explore.compare import read_runs
    from whorl.explore.server import serve
    from whorl.explore.state import load_state

    comparison = None if runs is None else read_runs(runs)
    page = "" if other is None else "models"
    state = load_state(config, other, comparison)
    serve(state, port=port, browser=not no_open, page=page)


def _write(
    config: str | None,
    other: str | None,
    export: Path | None,
    picture: Path | None,
    method: str | None,
    factor: float | None,
) -> None:
    """Write the page, the picture or both, and print their names."""
    import whorl
    from whorl._support.files import write_file_atomically
    from whorl.explore import export as exporting
    from whorl.explore.picture import draw_picture
    from whorl.explore.state import load_models

    if config is None:
        raise ValueError("--export and --picture need a config; name one.")
    if export is not None and export.suffix != ".html":
        raise ValueError(
            f"--export writes HTML; name a file that ends in .html, not {str(export)!r}."
        )
    check_chart(picture, "--picture")
    models = load_models([each for each in (config, other) if each is not None])
    if export is not None:
        with open_progress_bar() as show:
            document = exporting.build_document(models, progress=show)
        write_file_atomically(export, exporting.render_page(document))
        print(export)
    if picture is not None:
        with name_options(
            {"unknown extension": "--method: unknown extension", "factor": "--factor"}
        ):
            chart = draw_picture(models, method, factor)
        whorl.plots.save(chart, picture)
        print(picture)
