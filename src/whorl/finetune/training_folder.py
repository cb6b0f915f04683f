"""The folder of a fine-tuning under way, beside the one that the model is written to.

model-yarn-4x.training/
  settings.json            what the weights depend on; other settings are refused
  metrics.jsonl            a line for each step, with checksums
  checkpoint.safetensors   trained weights and optimizer, with checksums
model-yarn-4x/             appears whole when the training is done, and the other one goes
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from whorl._support.bounded_json import RESULTS, parse_json
from whorl._support.files import create_folder_atomically, write_file_atomically
from whorl._support.words import quote
from whorl.lab.checkpoint import SavedCheckpoint, read_checkpoint
from whorl.lab.integrity import check_lines, read_checked, write_checked

from .models import TunedModel, WrittenTraining

__all__ = ["REPORT_NAME", "TrainingFolder"]

#: File in the finished folder that says how it was made; it marks folders that may be replaced.
REPORT_NAME = "finetune.json"


class TrainingFolder:
    """The files of a training, and the folder that the trained model is written to."""

    def __init__(self, out: Path, *, force: bool = False) -> None:
        self.out, self.force = out, force
        self.folder = out.with_name(f"{out.name}.training")

    @property
    def settings_path(self) -> Path:
        return self.folder / "settings.json"

    @property
    def metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def checkpoint_path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def find_report(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The report of a finished training with these settings; other folders are refused."""
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return None
        path = self.out / REPORT_NAME
        if not path.is_file():
            raise ValueError(
                f"out must be a new folder, or one that a fine-tuning wrote; {str(self.out)!r}"
                " is another one. Choose another folder."
            )
        if self.force:
            return None
        try:
            report = read_checked(path)
        except ValueError as error:
            raise ValueError(
                f"out {str(self.out)!r} is damaged: {str(error).rstrip('.')}. Choose another"
                " folder, or pass force=True to replace it."
            ) from None
        if difference := _describe_difference(report["settings"], settings):
            raise ValueError(
                f"out {str(self.out)!r} has a model of another fine-tuning: {difference}. Choose"
                " another folder, or pass force=True to replace it."
            )
        return {key: one for key, one in report.items() if key != "checksum"}

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Write the settings, or check that an earlier call had the same ones.

        With force=True too, a training with the same settings goes on.
        """
        plain = json.loads(json.dumps(settings))
        if self.settings_path.exists():
            try:
                self._check_settings(plain)
                return
            except ValueError:
                if not self.force:
                    raise
        for path in (self.checkpoint_path, self.metrics_path):
            path.unlink(missing_ok=True)
        write_checked(self.settings_path, plain)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        before = read_checked(self.settings_path)
        del before["checksum"]
        if difference := _describe_difference(before, settings):
            raise ValueError(
                f"{str(self.folder)!r} has a fine-tuning with other settings: {difference}."
                " Choose another folder, or pass force=True to delete it."
            )

    def read_saved(self) -> SavedCheckpoint | None:
        """The checkpoint of an earlier call, after ``prepare``; None if there is none.

        A damaged one is refused, and with force=True it is as if there were none.
        """
        if not self.checkpoint_path.exists():
            return None
        try:
            saved = read_checkpoint(self.checkpoint_path)
            check_lines(self._read_lines(), saved.info.step, saved.info.metrics, "metrics.jsonl")
        except ValueError as error:
            if self.force:
                return None
            raise ValueError(
                f"{str(self.folder)!r} is damaged: {str(error).rstrip('.')}. Delete that folder, or"
                " pass force=True to start again."
            ) from None
        return saved

    def open_metrics(self, step: int) -> IO[str]:
        """metrics.jsonl without the lines after ``step``, open for writing more."""
        lines = self._read_lines()[:step]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        write_file_atomically(self.metrics_path, data)
        return open(self.metrics_path, "a", encoding="utf-8")

    def write_model(
        self, model: TunedModel, training: WrittenTraining, report: Mapping[str, Any]
    ) -> None:
        """Write the trained model beside ``out`` and rename it; then delete this folder."""
        with create_folder_atomically(self.out) as part:
            model.write(part, training)
            if not (part / "metrics.jsonl").exists():
                write_file_atomically(part / "metrics.jsonl", training.metrics)
            write_checked(part / REPORT_NAME, report)
            if self.out.exists():
                shutil.rmtree(self.out)  # empty, or force=True and a model of a fine-tuning
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read_lines(self) -> list[Any]:
        lines: list[Any] = []
        if self.metrics_path.exists():
            for text in self.metrics_path.read_bytes().splitlines():
                try:
                    lines.append(parse_json(text, RESULTS))
                except ValueError:  # a crash cut the last line off
                    break
        return lines


def _describe_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    names = dict.fromkeys((*now, *before))
    found = [name for name in names if before.get(name) != now.get(name)]
    if not found:
        return ""
    was, here = before.get(found[0]), now.get(found[0])
    return f"{found[0]} is {quote(was)} there, {quote(here)} here"
