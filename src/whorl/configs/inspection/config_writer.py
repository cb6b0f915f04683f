"""Write extensions of a model into its config: the lines to set, and the config with them.

Lines are offered only if transformers reads them as the extension that is shown; see ``patches``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from whorl.configs import Document, ModelPositions
from whorl.configs.huggingface.write import Dialect, find_dialect, write_config

from .extension import ModelExtension, write_lines_by_dialect
from .patches import explain_mismatch

__all__ = ["ConfigWriter"]


@dataclass(frozen=True)
class ConfigWriter:
    """Writes into the config that ``model`` was read from."""

    document: Document
    model: ModelPositions

    @property
    def keys(self) -> Mapping[str, Any]:
        """The keys that the layers were read from."""
        return self.document.data if self.model.part is None else self.model.part.keys

    @property
    def path(self) -> list[str]:
        """The path to the part with these keys; empty if they are at the top of the config."""
        where = "" if self.model.part is None else self.model.part.where
        path = where.split(".") if where else []
        inside: Any = self.document.data
        for name in path:
            inside = inside.get(name) if isinstance(inside, Mapping) else None
        return path if isinstance(inside, Mapping) else []

    @property
    def dialect(self) -> Dialect | None:
        """The dialect of the config; None for files of other software."""
        known = self.model.kind in ("transformers", "mlx")
        return find_dialect(self.document.data, self.keys) if known else None

    def write_lines(
        self, found: dict[int, ModelExtension]
    ) -> tuple[dict[Dialect, dict[str, Any] | None], dict[int, ModelExtension]]:
        """The lines for config.json in each dialect; extensions without lines say why.

        found: extensions by the id() of their group.
        """
        lines = write_lines_by_dialect(self.model, self.keys, found)
        why = self._explain_mismatch(lines["transformers 5"], found)
        if why is not None:
            found = {key: replace(each, parameters=None, why=why) for key, each in found.items()}
            lines["transformers 5"] = None
        old = lines["transformers 4"]
        if lines["transformers 5"] is None or self._explain_mismatch(old, found) is not None:
            lines["transformers 4"] = None
        return lines, found

    def write(self, lines: Mapping[str, Any]) -> dict[str, Any]:
        """The whole config with these lines."""
        return write_config(self.document.data, self.path, lines)

    def nest_lines(self, lines: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The lines nested under the path of their part."""
        if lines is not None:
            for name in reversed(self.path):
                lines = {name: lines}
        return lines

    def _explain_mismatch(
        self, lines: Mapping[str, Any] | None, found: Mapping[int, ModelExtension]
    ) -> str | None:
        if lines is None or self.dialect is None:
            return None  # there is no config.json
        return explain_mismatch(self.model, self.write(lines), found)
