"""The most memory that a process held, as the system saw it.

Linux keeps a high-water mark that can be reset; elsewhere ``getrusage`` has one that cannot, which
sees what goes beyond everything before it.
"""

import os
import sys
from pathlib import Path

__all__ = ["read_available", "read_peak", "reset_peak"]


def reset_peak() -> int:
    """Bring the mark down to what is resident; returns that, in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return read_peak()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def read_peak() -> int:
    """The high-water mark of this process. That of ``getrusage`` may be inherited on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    try:
        import resource  # not on every system
    except ModuleNotFoundError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def read_available() -> int | None:
    """Bytes that a new process may use, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith("MemAvailable:")]
    return int(found[0].split()[1]) * 1024 if found else None
