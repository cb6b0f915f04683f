"""What ``diagnose`` finds."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["LOAD_AGAIN", "LiveFinding"]

LOAD_AGAIN = "Load the model again with another version or without a patched loader."


@dataclass(frozen=True)
class LiveFinding:
    """One difference between a loaded model and its config.

    where: the buffer, attribute or config key, as a path in the model.
    """

    severity: Literal["error", "warning"]
    where: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.message} {self.remedy}"
