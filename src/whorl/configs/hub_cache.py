"""Models in the local cache of Hugging Face: only files on this machine, never the network.

    models--Qwen--Qwen3-8B/refs/main          the commit that "main" was when it was downloaded
    models--Qwen--Qwen3-8B/snapshots/COMMIT   a folder with links to the files of that commit

The folder of the cache is found as huggingface_hub finds it, which is not needed for this.
"""

import os
import re
from itertools import islice, pairwise
from pathlib import Path

from whorl._support.words import suggest_name

__all__ = [
    "describe_search",
    "find_cache",
    "find_snapshot",
    "get_repository",
    "is_repository_name",
    "read_address",
]

#: What sets the folder of the cache, and what is below it; the first that is set counts.
_VARIABLES = (
    ("HF_HUB_CACHE", ""),
    ("HUGGINGFACE_HUB_CACHE", ""),
    ("HF_HOME", "hub"),
    ("XDG_CACHE_HOME", "huggingface/hub"),
)
_DEFAULT = "~/.cache/huggingface/hub"
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_FILES = (".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth", ".toml")
_COMMIT = re.compile(r"[A-Za-z0-9_]{1,64}")
_MOST_SNAPSHOTS = 1000
_MOST_REPOSITORIES = 10_000
_ADDRESS = re.compile(r"(?:https?://)?(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+).*", re.DOTALL)
_CONFIGS = ("config.json", "params.json")


def find_cache() -> tuple[Path, str]:
    """The folder of the cache, whether it exists or not, and what set it."""
    for variable, inner in _VARIABLES:
        if os.environ.get(variable):
            return _expand(os.environ[variable]) / inner, variable
    return _expand(_DEFAULT), "the default"


def is_repository_name(name: str) -> bool:
    """Whether a name could be that of a repository, such as "Qwen/Qwen3-8B" or "gpt2".

    >>> [is_repository_name(name) for name in ("Qwen/Qwen3-8B", "gpt2", "config.json", "../x")]
    [True, True, False, False]
    """
    return bool(_REPOSITORY.fullmatch(name)) and not name.endswith(_FILES)


def read_address(text: str) -> str | None:
    """The repository that the address of a page of Hugging Face is about.

    >>> read_address("https://huggingface.co/Qwen/Qwen3-8B/tree/main")
    'Qwen/Qwen3-8B'
    """
    match = _ADDRESS.fullmatch(text.strip())
    return match[1] if match and is_repository_name(match[1]) else None


def find_snapshot(name: str) -> Path | None:
    """The folder with the files of a repository: the commit of "main", else the newest with any.

    None if the cache has no config and no GGUF file of it.
    """
    if not is_repository_name(name):
        return None
    folder = _get_repository_folder(name)
    try:
        snapshots = list(islice(os.scandir(folder / "snapshots"), _MOST_SNAPSHOTS))
    except OSError:
        return None
    main = _read_main(folder)
    snapshots.sort(key=lambda entry: (entry.name == main, _read_time(entry)), reverse=True)
    return next((Path(each.path) for each in snapshots if _has_config(Path(each.path))), None)


def describe_search(name: str) -> str:
    """Where a repository was looked for without success, as a sentence."""
    cache, origin = find_cache()
    where = f"the cache of Hugging Face, {cache} ({origin})"
    if _get_repository_folder(name).is_dir():
        return f"It is in {where}, but without a config."
    if not cache.is_dir():
        return f"There is no such model in {where}, which does not exist."
    return f"There is no such model in {where}{suggest_name(name, _list_repositories(cache))}"


def get_repository(path: Path) -> str | None:
    """The repository of a path in a snapshot of a cache, which other programs read too."""
    for before, one in pairwise(path.absolute().parts):
        if one == "snapshots" and before.startswith("models--"):
            return before.removeprefix("models--").replace("--", "/")
    return None


def _list_repositories(cache: Path) -> list[str]:
    """Names of the repositories in a cache; none if it cannot be read."""
    try:
        folders = list(islice(os.scandir(cache), _MOST_REPOSITORIES))
    except OSError:
        return []
    names = (each.name for each in folders if each.name.startswith("models--"))
    return [name.removeprefix("models--").replace("--", "/") for name in names]


def _expand(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))


def _get_repository_folder(name: str) -> Path:
    return find_cache()[0] / f"models--{name.replace('/', '--')}"


def _read_main(folder: Path) -> str | None:
    """The commit in refs/main, if there is one."""
    try:
        with open(folder / "refs" / "main", encoding="ascii") as file:
            commit = file.read(100).strip()
    except (OSError, UnicodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _read_time(entry: "os.DirEntry[str]") -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def _has_config(folder: Path) -> bool:
    """Whether a snapshot has a config; a link whose file is gone does not count."""
    if any((folder / name).is_file() for name in _CONFIGS):
        return True
    return folder.is_dir() and any(path.is_file() for path in folder.glob("*.gguf"))
