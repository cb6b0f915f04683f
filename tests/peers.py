"""Which version of transformers a module of tests compares with."""

import pytest

__all__ = ["require_transformers"]

_INSTEAD = {
    5: "of 4, tests/configs/test_transformers_4.py compares configs and frequencies",
    4: "the other tests compare with 5",
}


def require_transformers(major: int) -> None:
    """Skip the rest of a module if transformers is missing, or of another major version."""
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.partition(".")[0]) != major:
        pytest.skip(
            f"compares with the classes of transformers {major}; {_INSTEAD[major]}",
            allow_module_level=True,
        )
