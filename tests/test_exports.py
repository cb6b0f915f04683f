"""Freeze what users import: a change here is a change of the public surface."""

import whorl

EXPORTS = {
    "Card",
    "Composition",
    "Config",
    "DynamicNTK",
    "Encoding",
    "Frequencies",
    "Impl",
    "Ladder",
}
EXPORTS |= {"Layout", "Linear", "NTK", "NoPE", "Precision", "RoPE", "Scaling", "__version__"}
EXPORTS |= {"from_dict", "make", "names", "positions", "register", "testing"}


def test_exports_are_frozen_and_exist() -> None:
    assert set(whorl.__all__) == EXPORTS
    assert len(whorl.__all__) == len(EXPORTS)
    assert [name for name in whorl.__all__ if not hasattr(whorl, name)] == []
