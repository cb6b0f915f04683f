"""A cache of Hugging Face with models whose only file is a config."""

import json
from pathlib import Path

from whorl.configs import presets

__all__ = ["CONFIG", "add"]

CONFIG = {**presets.load("qwen3-8b"), "rope_theta": 123456.0}


def add(cache: Path, repository: str, commit: str, *, main: bool = False) -> Path:
    """Add a commit to the cache as huggingface_hub does: a link to a blob."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    blob = folder / "blobs" / f"blob-{commit}"
    blob.parent.mkdir(exist_ok=True)
    blob.write_text(json.dumps(CONFIG))
    (snapshot / "config.json").symlink_to(Path("../../blobs") / blob.name)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return snapshot
