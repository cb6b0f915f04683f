"""What is installed and in use on this machine: the facts of ``whorl info``.

>>> from whorl.info import describe
>>> describe().auto in ("native", "reference")
True
"""

import dataclasses
import os
import platform
import re
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from . import encodings, scaling
from .kernels import native, ops

__all__ = ["Cpu", "Extra", "Info", "Native", "describe", "describe_environment", "read_cpu"]

# CPU features that csrc/rotate.c looks for.
_FEATURES = ("avx2", "f16c")
_COMPARISON = re.compile(r"(python_version|sys_platform|extra) ?(<|>=|==) ?['\"]([\w.]+)['\"]")
_OPENMP = re.compile(r"lib(?:g|i)?omp\d*[-.\w]*\.(?:so|dylib)")


@dataclass(frozen=True)
class Cpu:
    """The processor; ``features`` is None if the system does not list them."""

    model: str
    cores: int
    features: list[str] | None


@dataclass(frozen=True)
class Native:
    """The C library: whether it is in use, and the problem if it is not."""

    in_use: bool
    problem: str | None
    library: str | None
    instructions: str | None
    threads: int
    openmp: str


@dataclass(frozen=True)
class Extra:
    """An optional part: versions of its packages (None: missing) and how to install them."""

    packages: dict[str, str | None]
    install: str | None


@dataclass(frozen=True)
class Info:
    """Everything ``whorl info`` shows."""

    versions: dict[str, str]
    cpu: Cpu
    native: Native
    threads: int
    auto: str
    encodings: list[str]
    scalings: list[str]
    extras: dict[str, Extra]

    def to_dict(self) -> dict[str, Any]:
        """All fields as values that JSON can hold."""
        return dataclasses.asdict(self)


def describe() -> Info:
    """Facts about this installation, this CPU and this process."""
    import whorl  # not above: whorl/__init__.py may import this file

    return Info(
        versions={
            "whorl": whorl.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        cpu=read_cpu(),
        native=_describe_library(),
        threads=torch.get_num_threads(),
        auto=ops.choose_impl("auto", "whorl.info"),
        encodings=encodings.names(),
        scalings=scaling.names(),
        extras=_find_extras(_read_requirements()),
    )


def describe_environment(command: str = "") -> dict[str, Any]:
    """Machine, versions, threads, date and command that results were measured with."""
    import whorl  # not above: whorl/__init__.py may import this file

    problem = native.find_problem()
    isa = None if problem else native.get_best_isa()
    return {
        "cpu": read_cpu().model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "whorl": whorl.__version__,
        "kernel": f"PyTorch reference: {problem}" if problem else f"native, {isa}",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
    }


def read_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Cpu:
    """The processor of this machine, as Linux lists it, or else as Python names it."""
    fallback = platform.processor() or platform.machine() or "unknown"
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return Cpu(fallback, os.cpu_count() or 1, None)
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    flags = fields.get("flags", fields.get("Features", "")).split()
    found = [feature for feature in _FEATURES if feature in flags]
    return Cpu(fields.get("model name", fallback), os.cpu_count() or 1, found)


def _describe_library() -> Native:
    path = native.find_library()
    in_use = native.find_problem() is None
    return Native(
        in_use=in_use,
        problem=native.find_problem(),
        library=None if path is None else str(path),
        instructions=native.get_best_isa() if in_use else None,
        threads=native.get_max_threads(),
        openmp=_describe_openmp(path) if in_use else "not used",
    )


def _describe_openmp(library: Path | None, maps: Path = Path("/proc/self/maps")) -> str:
    """Whether torch and the library share one OpenMP runtime, and so one set of threads."""
    if library is None or not _OPENMP.search(library.read_bytes().decode("latin-1")):
        return "not used: the library was built without OpenMP"
    if not maps.exists():
        return "not checked: only Linux lists the libraries a process has loaded"
    paths = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "omp" in line}
    loaded = sorted(path for path in paths if _OPENMP.match(Path(path).name))
    if len(loaded) > 1:
        return f"{len(loaded)} runtimes, whose threads compete: {', '.join(loaded)}"
    if not torch.backends.openmp.is_available():  # type: ignore[no-untyped-call]
        return "its own: this torch was built without OpenMP"
    return "shared with torch"


def _read_requirements() -> list[str]:
    try:
        return metadata.requires("whorl") or []
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return []


def _find_extras(requirements: list[str]) -> dict[str, Extra]:
    """The optional parts in the package's metadata, without "dev", which is no feature."""
    wanted: dict[str, list[str]] = {}
    for line in requirements:
        what, _, marker = line.partition(";")
        compared = _COMPARISON.findall(marker)
        extras = [value for name, _, value in compared if name == "extra" and value != "dev"]
        if extras and all(_holds_here(*comparison) for comparison in compared):
            wanted.setdefault(extras[0], []).append(what.strip())
    return {extra: _check_extra(extra, _list_packages(extra, wanted)) for extra in sorted(wanted)}


def _holds_here(name: str, sign: str, value: str) -> bool:
    """Whether a comparison of a marker holds; whorl's own markers join such ones by "and"."""
    if name != "python_version":
        return name == "extra" or value == sys.platform
    wanted = tuple(map(int, value.split(".")))
    return sys.version_info[:2] < wanted if sign == "<" else sys.version_info[:2] >= wanted


def _list_packages(extra: str, wanted: dict[str, list[str]]) -> list[str]:
    """Package names of an extra, with those of extras that it includes, as ``whorl[cli,plots]``."""
    found: list[str] = []
    for what in wanted.get(extra, []):
        if included := re.fullmatch(r"whorl\[([\w,\s]+)\]", what):
            for other in included[1].split(","):
                found += _list_packages(other.strip(), wanted)
        else:
            found.append(re.split(r"[^\w.-]", what, maxsplit=1)[0])
    return list(dict.fromkeys(found))


def _check_extra(extra: str, packages: list[str]) -> Extra:
    versions = {name: _find_version(name) for name in packages}
    complete = None not in versions.values()
    return Extra(versions, None if complete else f"pip install 'whorl[{extra}]'")


def _find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
