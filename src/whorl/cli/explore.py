"""``whorl explore``: a local page on a model's positions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whorl.explore.state import ExplorerState

__all__ = ["explore"]

Config = typer.Argument(
    metavar="CONFIG",
    help="config.json, its folder, a GGUF file, a preset to start with, or a model in the local"
    " Hugging Face cache.",
)
Port = typer.Option(min=1, max=65_535, metavar="N", help="Where to listen; a free port by default.")
Open = typer.Option("--no-open", help="Print the address only; open no browser.")
Runs = typer.Option(metavar="FOLDER", help="Results of whorl compare, for the second page.")


def explore(
    config: Annotated[str | None, Config] = None,
    port: Annotated[int | None, Port] = None,
    no_open: Annotated[bool, Open] = False,
    runs: Annotated[Path | None, Runs] = None,
) -> None:
    """Look at a model's positions in the browser: charts, sliders, what inspect and doctor say.

    The page is served to this machine only, and nothing is loaded from elsewhere. Ctrl-C ends it.
    """
    from whorl.explore.compare import read_runs
    from whorl.explore.server import serve

    comparison = None if runs is None else read_runs(runs)
    serve(_build_state(config, comparison), port=port, browser=not no_open)


def _build_state(config: str | None, comparison: dict[str, object] | None) -> ExplorerState:
    from whorl.configs.names import resolve_config
    from whorl.configs.presets import find
    from whorl.explore.state import ExplorerState, load_given_config

    if config is None or isinstance(resolve_config(config, "explore"), dict):
        return ExplorerState(preset=config and find(config), comparison=comparison)
    return ExplorerState(given=load_given_config(config), comparison=comparison)
