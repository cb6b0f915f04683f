"""A run's folder: what it was made from, and what came of it.

config.toml              the run's config
environment.json         machine, versions, threads, corpus, command; the same of every resumption
metrics.jsonl            one line per step
checkpoint.safetensors   weights and optimizer at some step
evaluation.json          results by length, once training is done; evaluation-NAME.json with
                         the scaling NAME put in for the evaluation

All of it has checksums (``integrity``): a run that was changed is refused, by the name of the file.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from whorl._support.bounded_json import RESULTS, parse_json
from whorl._support.files import remove_parts, write_file_atomically
from whorl._support.words import quote

from . import files
from .checkpoint import CheckpointInfo, SavedCheckpoint, read_checkpoint
from .config import RunConfig
from .encodings import format_title
from .environment import describe_changes, describe_environment
from .integrity import (
    FORMAT,
    add_checksum,
    check_document,
    check_format,
    check_lines,
    compute_checksum,
    read_checked,
    write_checked,
)
from .model import Model

__all__ = ["Run", "collect_results"]


_RUN_FILES = re.compile(
    r"config\.toml|environment\.json|metrics\.jsonl|checkpoint\.safetensors|evaluation.*\.json"
)


class Run:
    """One folder. ``prepare`` makes it fit for a config, or says why it is not."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._saved: SavedCheckpoint | None = None

    @property
    def config_path(self) -> Path:
        return self.folder / "config.toml"

    @property
    def checkpoint_path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def environment_path(self) -> Path:
        return self.folder / "environment.json"

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
    ) -> bool:
        """Make the folder for ``config`` and the corpus ``about``, or check that it is for them.

        True if it holds such a run already, to be gone on with.

        force: what was there for another config is deleted; only files that a run makes. The
        folder must be ours alone (``held``).
        """
        if self.config_path.exists():
            problem = self._problem(config, about)
            if problem is None:  # the checkpoint stays in memory for ``take_saved_state``
                remove_parts(self.folder, _RUN_FILES.pattern)
                return True
            if not force:
                raise ValueError(
                    f"{str(self.folder)!r} {problem}. Name another folder with --out, or pass"
                    " --force to delete that run and start anew."
                )
            self.take_saved_state()
            self.clear()
        elif stray := self._strange():
            raise ValueError(
                f"{str(self.folder)!r} is not empty and no run folder (it has {stray[0]!r}); name"
                " another with --out."
            )
        remove_parts(self.folder, _RUN_FILES.pattern)
        text = config.to_toml()
        start = {"corpus": dict(about), "config": compute_checksum(text), "resumes": []}
        write_checked(
            self.environment_path, {"format": FORMAT, **describe_environment(command), **start}
        )
        write_file_atomically(self.config_path, text.encode())
        return False

    def record_resume(self, command: str = "") -> str:
        """Note in environment.json where the run goes on, after ``prepare``.

        What has changed in the environment since, or nothing.
        """
        found = read_checked(self.environment_path)
        step = self._saved.at.step if self._saved is not None else 0
        known = len(describe_changes(found))
        found["resumes"].append({"step": step, **describe_environment(command)})
        write_checked(self.environment_path, found)
        return "".join(describe_changes(found)[known:])

    def environment_changes(self) -> list[str]:
        """A sentence for each time that the run went on in another environment than before."""
        return describe_changes(read_checked(self.environment_path))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder if it is not there, and keep other processes out of it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"the folder {str(self.folder)!r} cannot be made: {error.strerror or error}."
            ) from None
        with files.lock_folder(self.folder):
            yield

    def _strange(self) -> list[str]:
        """Files that no run makes. Without config.toml, others may be left of a killed process."""
        names = [path.name for path in self.folder.iterdir()]
        return [n for n in names if not n.startswith(".") and not _RUN_FILES.fullmatch(n)]

    def _problem(self, config: RunConfig, about: Mapping[str, Any]) -> str | None:
        """Why this folder's run is not the one that is asked for, or cannot go on."""
        try:
            other = self.config()
        except ValueError as error:  # somebody else's config.toml: not ours to delete
            raise ValueError(
                f"{str(self.folder)!r} is no run folder: {str(error).rstrip('.')}. Name another"
                " with --out."
            ) from None
        if differing := _describe_differences(other.to_dict(), config.to_dict()):
            return f"holds another run: {differing}"
        if damage := self._damage():
            return damage
        if read_checked(self.environment_path)["corpus"].get("sha256") != about.get("sha256"):
            return "holds another run: its text was another (files have changed since)"
        return None

    def verify(self) -> SavedCheckpoint | None:
        """Raise ValueError unless all files are as the run wrote them, and belong together.

        Returns the checkpoint, if there is one, so that nobody must read it again.
        """
        self.config()
        if damage := self._damage():
            raise ValueError(
                f"{str(self.folder)!r} {damage}. Delete that folder, and train the run anew."
            )
        return self.take_saved_state()

    def take_saved_state(self) -> SavedCheckpoint | None:
        """The checkpoint that ``prepare`` has read, if there was one; the run forgets it."""
        saved, self._saved = self._saved, None
        return saved

    def _damage(self) -> str | None:
        """What is wrong with the files, to be read after the name of the folder."""
        try:
            found = files.read_json(self.environment_path)
            if not isinstance(found, dict):
                return f"is damaged: {self.environment_path.name} must hold an object"
            try:
                check_format(found.get("format"), self.environment_path.name)
            except ValueError as error:
                if "checksum" not in found or found == add_checksum(found):
                    return f"is a run of another version: {error}"
            check_document(found, self.environment_path.name)
            self._check_files(found["config"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return f"is damaged: {str(error).rstrip('.') or type(error).__name__}"
        return None

    def _check_files(self, config: str) -> None:
        """Raise unless the files fit together; ``config``: the checksum of config.toml."""
        self._saved = None
        if compute_checksum(self.config_path.read_text(encoding="utf-8")) != config:
            raise ValueError("config.toml has been changed since the run began")
        results = sorted(self.folder.glob("evaluation*.json"))
        if not self.checkpoint_path.exists():
            if results:
                raise ValueError("it has results and no checkpoint")
            return
        saved, lines = read_checkpoint(self.checkpoint_path), self.metrics()
        at = saved.at
        if at.config != config:
            raise ValueError(f"{self.checkpoint_path.name} is that of another config")
        check_lines(lines, at.step, at.metrics, self.metrics_path.name)
        if results and len(lines) > at.step:
            raise ValueError(f"{self.metrics_path.name} goes on after step {at.step}, the last")
        for path in results:
            found = files.read_json(path)
            missing = {"by_length", "parameters", "seconds", "frequencies_loss"} - set(found)
            if missing:
                raise ValueError(f"{path.name} lacks {min(missing)}")
            check_document(found, path.name)
            if self.evaluation_path(found["scaling"]) != path:
                raise ValueError(f"{path.name} is that of another scaling: {found['scaling']}")
            if found["checkpoint"] != at.checksum:
                raise ValueError(f"{path.name} is that of other weights than the checkpoint's")
        self._saved = saved

    def finished(
        self, config: RunConfig, about: Mapping[str, Any], scalings: Sequence[str] = ()
    ) -> bool:
        """Whether the folder holds all results of ``config`` on the corpus ``about``."""
        problem = self._problem(config, about) if self.config_path.exists() else "is not there"
        self.take_saved_state()
        if problem is not None:
            return False
        return all(self.evaluation_path(name).exists() for name in (None, *scalings))

    def clear(self) -> None:
        """Delete what a run makes; config.toml, by which a run is known, at the end."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path == self.config_path):
            if _RUN_FILES.fullmatch(path.name):
                path.unlink()

    def load_model(self) -> Model:
        """The model as far as it is trained, from files that ``verify`` accepts."""
        saved, config = self.verify(), self.config()
        if saved is None:
            raise ValueError(f"{str(self.folder)!r} has no checkpoint yet; train it first.")
        vocab = saved.tensors["model.embedding.weight"].shape[0]
        model = Model(config.model, vocab=vocab, longest=config.longest)
        saved.load_weights(model)
        return model

    def metrics(self) -> list[dict[str, Any]]:
        """The lines so far; one that was cut off by a crash is left out."""
        if not self.metrics_path.exists():
            return []
        lines = []
        for text in self.metrics_path.read_bytes().splitlines():
            try:
                lines.append(parse_json(text, RESULTS))
            except ValueError:
                break
        return lines

    def open_metrics(self, step: int) -> IO[str]:
        """The file of metrics, cut back to ``step``, ready for the lines after it."""
        kept = self.metrics()[:step]
        write_file_atomically(
            self.metrics_path, "".join(json.dumps(x) + "\n" for x in kept).encode()
        )
        return open(self.metrics_path, "a", encoding="utf-8")

    def evaluation(self, scaling: str | None = None) -> dict[str, Any] | None:
        """Results at every length, or None if they are not there yet."""
        path = self.evaluation_path(scaling)
        if not path.exists():
            return None
        found = read_checked(path)
        return {key: one for key, one in found.items() if key not in ("checksum", "checkpoint")}

    def write_evaluation(self, found: Mapping[str, Any], at: CheckpointInfo) -> None:
        """Keep results, and of which weights they are: those of the checkpoint ``at``."""
        path = self.evaluation_path(found["scaling"])
        write_checked(path, {**found, "checkpoint": at.checksum})


def _describe_differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between two configs, such as "model.width is 64 there, 96 here"."""
    words = []
    for table in old.keys() | new.keys():
        was, now = old.get(table, {}), new.get(table, {})
        words += [
            f"{table}.{name} is {quote(was.get(name))} there, {quote(now.get(name))} here"
            for name in sorted(was.keys() | now.keys())
            if was.get(name) != now.get(name)
        ]
    return "; ".join(sorted(words)[:3])


def collect_results(run: Run, scalings: Sequence[str] = ()) -> dict[str, Any]:
    """What a finished run shows, as one plain document."""
    config, title = run.config(), format_title(run.config().model.encoding)
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
