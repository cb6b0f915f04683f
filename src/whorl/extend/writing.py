"""Write the chosen method into config.json, and diagnose the result.

The original stays beside it, as config.original.json. Both files are written completely or not at
all, the copy first.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl._support.files import write_file_atomically
from whorl.configs import ConfigError, diagnosis
from whorl.configs.diagnosis.fix import format_config
from whorl.configs.hub_cache import get_repository

from .report import ExtensionPlan

__all__ = ["WrittenExtension", "get_extended_config", "write_extension"]


@dataclass(frozen=True)
class WrittenExtension:
    """The file that was written, the copy of the original if there is one, and what remains.

    remaining: the diagnosis of the written config, for texts of the target length.
    """

    path: Path
    original: Path | None
    method: str
    remaining: diagnosis.ConfigDiagnosis

    def to_dict(self) -> dict[str, Any]:
        left = self.remaining.to_dict()
        return {
            "written": str(self.path),
            "original": None if self.original is None else str(self.original),
            "method": self.method,
            "remaining": {name: left[name] for name in ("counts", "findings")},
        }


def write_extension(plan: ExtensionPlan, out: Path | None = None) -> WrittenExtension:
    """Write the chosen method into the file of the config, in its own dialect, or into ``out``.

    out: a file that does not exist yet; the config itself is not changed then.
    """
    config = get_extended_config(plan)
    assert plan.chosen is not None
    data = format_config(config).encode("utf-8")
    if out is not None:
        if out.exists():
            raise ConfigError(f"out: {str(out)!r} exists already; name another file.")
        _write(out, data)
        return WrittenExtension(out, None, plan.chosen, _diagnose(out, plan))
    if plan.path is None:
        raise ConfigError(
            f"{plan.source} is no file that could be changed; pass out=FILE to write the"
            " extended config there."
        )
    if get_repository(plan.path) is not None:
        raise ConfigError(
            f"{plan.path} is in the cache of Hugging Face, which other programs read too; pass out="
            " (--out FILE) to write the extended config elsewhere."
        )
    original = _choose_original_name(plan.path)
    _write(original, plan.path.read_bytes())
    _write(plan.path, data)
    return WrittenExtension(plan.path, original, plan.chosen, _diagnose(plan.path, plan))


def get_extended_config(plan: ExtensionPlan) -> dict[str, Any]:
    """The config with the chosen method, in its own dialect; errors say why there is none."""
    if plan.chosen is None:
        raise ConfigError(f"there is nothing to write: {plan.reason}")
    if plan.claimed_already and plan.chosen == "none":
        raise ConfigError(
            f"there is nothing to write: the published config claims {plan.claimed:,} tokens; name"
            " a method to replace its scaling nevertheless."
        )
    assert plan.dialect is not None
    if plan.dialect not in plan.configs:
        chosen = plan.find_method(plan.chosen)
        why = None if chosen is None else chosen.why
        why = why or (
            f"this config is written for {plan.dialect}, whose keys cannot express it; the lines"
            " for transformers 5 can be set by hand"
        )
        raise ConfigError(f"{plan.chosen} cannot be written: {why}.")
    return plan.configs[plan.dialect]


def _choose_original_name(path: Path) -> Path:
    """The first free name of config.original.json, config.original.2.json and so on."""
    number = 1
    while True:
        more = "" if number == 1 else f".{number}"
        name = path.with_name(f"{path.stem}.original{more}{path.suffix}")
        if not name.exists():
            return name
        number += 1


def _write(path: Path, data: bytes) -> None:
    try:
        write_file_atomically(path, data)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{str(path)!r} cannot be written: {why}; nothing was changed.") from error


def _diagnose(path: Path, plan: ExtensionPlan) -> diagnosis.ConfigDiagnosis:
    return diagnosis.diagnose(path, length=plan.target)
