"""The folder of a run.

config.toml              the run's config
environment.json         machine, versions, threads, corpus and command, also of every resumption
metrics.jsonl            a line for each step
checkpoint.safetensors   weights and optimizer after some step
start.json               which weights were kept, dropped and new, if the run started from others
evaluation.json          results by length, after the training; those with the scaling NAME are in
                         evaluation-NAME.json
stream.json              losses along long texts, if ``whorl stream`` measured them

All files have checksums (``integrity``). If one was changed, the run is refused with its name.
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
from whorl.processes import ProcessGroup

from . import files
from .architectures import build_model, count_vocab
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
from .model import LanguageModel

__all__ = ["Run", "collect_results", "describe_differences"]


_RUN_FILES = re.compile(
    r"config\.toml|environment\.json|metrics\.jsonl|checkpoint\.safetensors|start\.json"
    r"|evaluation.*\.json|stream\.json"
)


class Run:
    """The folder of one run, its files, and the checks that they belong together."""

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

    @property
    def start_path(self) -> Path:
        return self.folder / "start.json"

    @property
    def stream_path(self) -> Path:
        return self.folder / "stream.json"

    def evaluation_path(self, scaling: str | None = None) -> Path:
        return self.folder / ("evaluation.json" if not scaling else f"evaluation-{scaling}.json")

    def load_config(self) -> RunConfig:
        """The config in the folder; ValueError if it is not the folder of a run."""
        if not self.config_path.is_file():
            raise ValueError(
                f"{str(self.folder)!r} is not the folder of a run: it has no config.toml; choose"
                " one that whorl train or whorl compare wrote."
            )
        try:
            return RunConfig.from_toml(self.config_path)
        except ValueError as error:
            raise ValueError(
                f"{str(self.folder)!r} is not the folder of a run, or its config.toml was changed:"
                f" {error}"
            ) from None

    def prepare(
        self,
        config: RunConfig,
        about: Mapping[str, Any],
        *,
        force: bool = False,
        command: str = "",
        start: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write config and environment to the folder, or check that it holds the same run.

        Returns True if the folder holds this run already, which is then resumed. The caller must
        hold the lock of the folder (``lock``).

        about: the corpus. force: delete the run that is in the folder if it is another one; other
        files stay. start: what the run takes from the weights that it starts from.
        """
        if self.config_path.exists():
            problem = self._find_problem(config, about)
            if problem is None:  # ``take_checkpoint`` returns the checkpoint that was read
                remove_parts(self.folder, _RUN_FILES.pattern)
                return True
            if not force:
                raise ValueError(
                    f"{str(self.folder)!r} {problem}. Choose another folder, or pass force=True to"
                    " delete that run and start again."
                )
            self.take_checkpoint()
            self.clear()
        elif stray := self._list_foreign_files():
            raise ValueError(
                f"{str(self.folder)!r} is neither empty nor the folder of a run (it has"
                f" {quote(stray[0])}); choose another folder."
            )
        remove_parts(self.folder, _RUN_FILES.pattern)
        text = config.to_toml()
        more = {"corpus": dict(about), "config": compute_checksum(text), "resumes": []}
        write_checked(
            self.environment_path, {"format": FORMAT, **describe_environment(command), **more}
        )
        self.start_path.unlink(missing_ok=True)  # a killed process may have left one
        if start is not None:
            write_checked(self.start_path, start)
        write_file_atomically(self.config_path, text.encode())
        return False

    def record_resume(self, command: str = "") -> str:
        """Add a resumption to environment.json, after ``prepare``.

        Returns a sentence about what changed in the environment, or an empty text.
        """
        found = read_checked(self.environment_path)
        step = self._saved.info.step if self._saved is not None else 0
        known = len(describe_changes(found))
        found["resumes"].append({"step": step, **describe_environment(command)})
        write_checked(self.environment_path, found)
        return "".join(describe_changes(found)[known:])

    def describe_environment_changes(self) -> list[str]:
        """A sentence for each resumption in another environment than before."""
        return describe_changes(read_checked(self.environment_path))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder if necessary, and hold its lock in a with block."""
        with files.lock_together(ProcessGroup(), self.folder):
            yield

    def _list_foreign_files(self) -> list[str]:
        """Names of files that are not files of a run; a killed process may have left those."""
        names = [path.name for path in self.folder.iterdir()]
        return [n for n in names if not n.startswith(".") and not _RUN_FILES.fullmatch(n)]

    def _find_problem(self, config: RunConfig, about: Mapping[str, Any]) -> str | None:
        """Why the run in this folder is another one or cannot be resumed; None if it can."""
        try:
            other = self.load_config()
        except ValueError as error:  # a config.toml of another program must not be deleted
            raise ValueError(f"{str(error).rstrip('.')}. Choose another folder.") from None
        if differing := describe_differences(other.to_dict(), config.to_dict()):
            return f"holds another run: {differing}"
        if damage := self._find_damage():
            return damage
        if read_checked(self.environment_path)["corpus"].get("sha256") != about.get("sha256"):
            return "holds another run: its text differs (the files have changed since)"
        return None

    def verify(self) -> SavedCheckpoint | None:
        """Raise ValueError unless all files are unchanged and belong together.

        Returns the checkpoint, or None if there is none yet.
        """
        self.load_config()
        if damage := self._find_damage():
            raise ValueError(
                f"{str(self.folder)!r} {damage}. Delete that folder, and train the run again."
            )
        return self.take_checkpoint()

    def take_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint that ``prepare`` read, or None; a second call returns None."""
        saved, self._saved = self._saved, None
        return saved

    def _find_damage(self) -> str | None:
        """What is wrong with the files, as words to follow the name of the folder; or None."""
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
        """Raise ValueError unless the files belong together; config: checksum of config.toml."""
        self._saved = None
        if compute_checksum(self.config_path.read_text(encoding="utf-8")) != config:
            raise ValueError("config.toml has been changed since the run began")
        self._check_start()
        results = sorted(self.folder.glob("evaluation*.json"))
        if not self.checkpoint_path.exists():
            if results:
                raise ValueError("it has results but no checkpoint")
            return
        saved, lines = read_checkpoint(self.checkpoint_path), self.read_metrics()
        info = saved.info
        if info.config != config:
            raise ValueError(f"{self.checkpoint_path.name} belongs to another config")
        check_lines(lines, info.step, info.metrics, self.metrics_path.name)
        if results and len(lines) > info.step:
            raise ValueError(
                f"{self.metrics_path.name} has lines after step {info.step}, the last one"
            )
        for path in results:
            found = files.read_json(path)
            if not isinstance(found, dict):
                raise ValueError(f"{path.name} must hold an object")
            missing = {"by_length", "parameters", "seconds", "frequencies_loss"} - set(found)
            if missing:
                raise ValueError(f"{path.name} lacks {min(missing)}")
            check_document(found, path.name)
            if self.evaluation_path(found["scaling"]) != path:
                raise ValueError(f"{path.name} belongs to another scaling: {found['scaling']}")
            if found["checkpoint"] != info.checksum:
                raise ValueError(f"{path.name} belongs to other weights than the checkpoint")
        if self.stream_path.exists():
            read_checked(self.stream_path)
        self._saved = saved

    def _check_start(self) -> None:
        """Raise ValueError unless start.json belongs to the config, or neither has a start."""
        start, found = self.load_config().start, self.read_start_report()
        if (found or {}).get("weights") != start.weights:
            raise ValueError(f"{self.start_path.name} does not belong to config.toml")

    def is_finished(
        self, config: RunConfig, about: Mapping[str, Any], scalings: Sequence[str] = ()
    ) -> bool:
        """Whether the folder has all results of ``config`` on the corpus ``about``."""
        problem = (
            self._find_problem(config, about) if self.config_path.exists() else "does not exist"
        )
        self.take_checkpoint()
        if problem is not None:
            return False
        return all(self.evaluation_path(name).exists() for name in (None, *scalings))

    def clear(self) -> None:
        """Delete the files of the run; config.toml last, because it marks the folder of a run."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path == self.config_path):
            if _RUN_FILES.fullmatch(path.name):
                path.unlink()

    def load_model(self) -> LanguageModel:
        """The model of the last checkpoint, after ``verify``."""
        return self.load_checkpoint()[0]

    def load_checkpoint(self) -> tuple[LanguageModel, CheckpointInfo]:
        """The model of the last checkpoint, and what the checkpoint says, after ``verify``."""
        saved, config = self.verify(), self.load_config()
        if saved is None:
            raise ValueError(f"{str(self.folder)!r} has no checkpoint yet; train it first.")
        vocab = count_vocab(config.model, saved.weights)
        model = build_model(config.model, vocab=vocab, longest=config.longest)
        saved.load_weights(model)
        return model, saved.info

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, up to one that a crash cut off."""
        if not self.metrics_path.exists():
            return []
        lines = []
        try:
            texts = self.metrics_path.read_bytes().splitlines()
        except OSError as error:
            raise ValueError(
                f"{str(self.metrics_path)!r} cannot be read: {error.strerror or error}."
            ) from None
        for text in texts:
            try:
                lines.append(parse_json(text, RESULTS))
            except ValueError:
                break
        return lines

    def open_metrics(self, step: int) -> IO[str]:
        """metrics.jsonl without the lines after ``step``, open for writing more."""
        lines = self.read_metrics()[:step]
        write_file_atomically(
            self.metrics_path, "".join(json.dumps(x) + "\n" for x in lines).encode()
        )
        return open(self.metrics_path, "a", encoding="utf-8")

    def read_evaluation(self, scaling: str | None = None) -> dict[str, Any] | None:
        """Results at every length, or None if there are none yet."""
        path = self.evaluation_path(scaling)
        if not path.exists():
            return None
        found = read_checked(path)
        return {key: one for key, one in found.items() if key not in ("checksum", "checkpoint")}

    def read_start_report(self) -> dict[str, Any] | None:
        """What was kept, dropped and new; None if the run did not start from other weights."""
        if not self.start_path.exists():
            return None
        found = read_checked(self.start_path)
        del found["checksum"]
        return found

    def write_evaluation(self, found: Mapping[str, Any], info: CheckpointInfo) -> None:
        """Write results, with the checksum of the checkpoint that they belong to."""
        path = self.evaluation_path(found["scaling"])
        write_checked(path, {**found, "checkpoint": info.checksum})

    def read_stream(self) -> dict[str, Any] | None:
        """Losses along a stream; None if there are none, or only those of other weights."""
        if not self.stream_path.exists():
            return None
        found, saved = read_checked(self.stream_path), self.verify()
        if saved is None or found.pop("checkpoint") != saved.info.checksum:
            return None
        return {key: one for key, one in found.items() if key != "checksum"}

    def write_stream(self, found: Mapping[str, Any], info: CheckpointInfo) -> None:
        """Write losses along a stream, with the checksum of the checkpoint they belong to."""
        write_checked(self.stream_path, {**found, "checkpoint": info.checksum})


def describe_differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Up to three differences of two configs: "model.width is 64 there, 96 here"."""
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
    """Results of a finished run and its cost, as plain values."""
    config, title = run.load_config(), format_title(run.load_config().model.encoding)
    found = {name: run.read_evaluation(name) for name in (None, *scalings)}
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
        "tokens_per_second": training.count_tokens(training.steps) / plain["seconds"],
        "memory_mb": plain["memory_mb"],
        "start": run.read_start_report(),
        "stages": plain.get("stages", []),
        "results": [
            {"name": title if name is None else f"{title}+{name}", **one}
            for name, one in found.items()
            if one is not None
        ],
    }
