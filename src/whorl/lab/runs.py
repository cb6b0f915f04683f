"""A run's folder: what it was made from, and what came of it.

config.toml              the run's config
environment.json         machine, versions, threads, corpus, command
metrics.jsonl            one line per step
checkpoint.safetensors   weights and optimizer at some step
evaluation.json          results by length, once training is done; evaluation-NAME.json with
                         the scaling NAME put in for the evaluation
"""

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import torch

import whorl
from whorl._extras import need
from whorl._support.bounded_json import RESULTS, parse_json
from whorl._words import shown
from whorl.info import cpu
from whorl.kernels import native

from . import files
from .checkpoint import step_of
from .config import RunConfig
from .encodings import title_of

__all__ = ["Run", "environment", "results"]


_OURS = re.compile(
    r"config\.toml|environment\.json|metrics\.jsonl|checkpoint\.safetensors|evaluation.*\.json"
)
_PART = re.compile(rf"\.({_OURS.pattern})\.\d+\.part")


class Run:
    """One folder. ``prepare`` makes it fit for a config, or says why it is not."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def config_path(self) -> Path:
        return self.folder / "config.toml"

    @property
    def checkpoint_path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    def evaluation_path(self, scaling: str | None = None) -> Path:
        return self.folder / ("evaluation.json" if not scaling else f"evaluation-{scaling}.json")

    def config(self) -> RunConfig:
        """The config that the folder holds."""
        if not self.config_path.is_file():
            raise ValueError(
                f"{str(self.folder)!r} is no run folder: it has no config.toml; name one that"
                " whorl train or whorl compare made."
            )
        return RunConfig.from_toml(self.config_path)

    def prepare(
        self,
        config: RunConfig,
        about: Mapping[str, Any],
        *,
        force: bool = False,
        command: str = "",
    ) -> None:
        """Make the folder for ``config`` and the corpus ``about``, or check that it is for them.

        force: what was there for another config is deleted; only files that a run makes. The
        folder must be ours alone (``held``).
        """
        if self.config_path.exists():
            problem = self._problem(config, about)
            if problem is None:
                self._sweep()
                return
            if not force:
                raise ValueError(
                    f"{str(self.folder)!r} {problem}. Name another folder with --out, or pass"
                    " --force to delete that run and start anew."
                )
            self.clear()
        elif stray := self._strange():
            raise ValueError(
                f"{str(self.folder)!r} is not empty and no run folder (it has {stray[0]!r}); name"
                " another with --out."
            )
        self._sweep()
        files.write_json(self.folder / "environment.json", environment(about, command))
        files.write(self.config_path, config.to_toml().encode())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder if it is not there, and keep other processes out of it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"the folder {str(self.folder)!r} cannot be made: {error.strerror or error}."
            ) from None
        with files.locked(self.folder):
            yield

    def _strange(self) -> list[str]:
        """Files that no run makes. Without config.toml, others may be left of a killed process."""
        names = [path.name for path in self.folder.iterdir()]
        return [n for n in names if not n.startswith(".") and not _OURS.fullmatch(n)]

    def _sweep(self) -> None:
        """Delete what a process left that was killed while it wrote."""
        for part in self.folder.glob(".*.part"):
            if _PART.fullmatch(part.name):
                part.unlink()

    def _problem(self, config: RunConfig, about: Mapping[str, Any]) -> str | None:
        """Why this folder's run is not the one that is asked for, or cannot go on."""
        try:
            other = self.config()
        except ValueError as error:  # somebody else's config.toml: not ours to delete
            raise ValueError(
                f"{str(self.folder)!r} is no run folder: {str(error).rstrip('.')}. Name another"
                " with --out."
            ) from None
        if differing := _differences(other.to_dict(), config.to_dict()):
            return f"holds another run: {differing}"
        try:
            saved = files.read_json(self.folder / "environment.json")
            if saved["corpus"].get("sha256") != about.get("sha256"):
                return "holds another run: its text was another (files have changed since)"
            self._check_sound()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return f"is damaged: {str(error).rstrip('.') or type(error).__name__}"
        return None

    def _check_sound(self) -> None:
        """Raise unless the files fit together."""
        if not self.checkpoint_path.exists():
            if any(self.folder.glob("evaluation*.json")):
                raise ValueError("it has results and no checkpoint")
            return
        step, lines = step_of(self.checkpoint_path), self.metrics()
        if [line["step"] for line in lines[:step]] != list(range(1, step + 1)):
            raise ValueError(f"metrics.jsonl does not hold the {step} steps of the checkpoint")
        for path in self.folder.glob("evaluation*.json"):
            found = files.read_json(path)
            missing = {"by_length", "parameters", "seconds", "frequencies_loss"} - set(found)
            if missing:
                raise ValueError(f"{path.name} lacks {min(missing)}")

    def finished(
        self, config: RunConfig, about: Mapping[str, Any], scalings: Sequence[str] = ()
    ) -> bool:
        """Whether the folder holds all results of ``config`` on the corpus ``about``."""
        if not self.config_path.exists() or self._problem(config, about) is not None:
            return False
        return all(self.evaluation_path(name).exists() for name in (None, *scalings))

    def clear(self) -> None:
        """Delete what a run makes; config.toml, by which a run is known, at the end."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path == self.config_path):
            if _OURS.fullmatch(path.name):
                path.unlink()

    def vocab(self) -> int:
        """How many tokens the run's model knows: the rows of its embedding."""
        safe = need("safetensors", by="whorl.lab", extra="lab")
        if not self.checkpoint_path.exists():
            raise ValueError(f"{str(self.folder)!r} has no checkpoint yet; train it first.")
        with safe.safe_open(self.checkpoint_path, framework="pt") as file:
            return int(file.get_slice("model.embedding.weight").get_shape()[0])

    def metrics(self) -> list[dict[str, Any]]:
        """The lines so far; one that was cut off by a crash is left out."""
        if not self.metrics_path.exists():
            return []
        lines = []
        for text in self.metrics_path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(parse_json(text, RESULTS))
            except ValueError:
                break
        return lines

    def open_metrics(self, step: int) -> IO[str]:
        """The file of metrics, cut back to ``step``, ready for the lines after it."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        files.write(self.metrics_path, "".join(json.dumps(x) + "\n" for x in kept).encode())
        return open(self.metrics_path, "a", encoding="utf-8")

    def evaluation(self, scaling: str | None = None) -> dict[str, Any] | None:
        """Results at every length, or None if they are not there yet."""
        path = self.evaluation_path(scaling)
        return files.read_json(path) if path.exists() else None


def environment(about: Mapping[str, Any], command: str = "") -> dict[str, Any]:
    """Machine, versions, corpus and the command that asked, as plain values."""
    problem = native.problem()
    return {
        "cpu": cpu().model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "whorl": whorl.__version__,
        "kernel": f"PyTorch reference: {problem}" if problem else f"native, {native.best_isa()}",
        "corpus": dict(about),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
    }


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between two configs, such as "model.width is 64 there, 96 here"."""
    words = []
    for table in old.keys() | new.keys():
        was, now = old.get(table, {}), new.get(table, {})
        words += [
            f"{table}.{name} is {shown(was.get(name))} there, {shown(now.get(name))} here"
            for name in sorted(was.keys() | now.keys())
            if was.get(name) != now.get(name)
        ]
    return "; ".join(sorted(words)[:3])


def results(run: Run, scalings: Sequence[str] = ()) -> dict[str, Any]:
    """What a finished run shows, as one plain document."""
    config, title = run.config(), title_of(run.config().model.encoding)
    found = {name: run.evaluation(name) for name in (None, *scalings)}
    plain = found[None]
    if plain is None:
        raise ValueError(f"{str(run.folder)!r} is not finished; train it first.")
    training = config.training
    return {
        "folder": str(run.folder),
        "measure": "loss" if config.data.task == "text" else "accuracy",
        "length": training.length,
        "learning_rate": training.learning_rate,
        "parameters": plain["parameters"],
        "encoding_parameters": plain["encoding_parameters"],
        "seconds": plain["seconds"],
        "tokens_per_second": training.steps * training.batch * training.length / plain["seconds"],
        "memory_mb": plain["memory_mb"],
        "results": [
            {"name": title if name is None else f"{title}+{name}", **one}
            for name, one in found.items()
            if one is not None
        ],
    }
