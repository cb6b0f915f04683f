"""Which version of transformers tests compare with."""

from importlib import metadata

import pytest

__all__ = ["TRANSFORMERS", "needs_transformers_5", "require_transformers"]


def _find_major_version() -> int | None:
    try:
        return int(metadata.version("transformers").partition(".")[0])
    except metadata.PackageNotFoundError:
        return None


#: The major version of transformers that is installed, if any is.
TRANSFORMERS = _find_major_version()
_REASONS = {
    5: "compares with the classes of transformers 5; tests/configs/test_transformers_4.py with 4",
    4: "compares with transformers 4, as scripts/matrix oldest does",
}
#: Of tests, or as pytestmark of a module.
needs_transformers_5 = pytest.mark.skipif(TRANSFORMERS == 4, reason=_REASONS[5])


def require_transformers(major: int) -> None:
    """Skip the rest of a module if transformers is missing, or of another major version."""
    pytest.importorskip("transformers")
    if major != TRANSFORMERS:
        pytest.skip(_REASONS[major], allow_module_level=True)
