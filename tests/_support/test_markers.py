"""Environment markers of package metadata."""

from importlib import metadata

import pytest

from whorl._support.markers import check_marker, read_environment

OLD = {"python_version": "3.9", "sys_platform": "linux", "os_name": "posix", "extra": "lab"}


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("", True),
        ("python_version < '3.11' and extra == 'lab'", True),
        ('python_version < "3.11" and extra == "web"', False),
        ("python_version >= '3.10'", False),  # as text, 3.9 comes after 3.10
        ("'3.10' > python_version", True),
        ("python_version == '3.9' or sys_platform == 'win32'", True),
        ("(sys_platform == 'win32' or os_name == 'posix') and extra == 'lab'", True),
        ("sys_platform == 'win32' or os_name == 'posix' and extra == 'web'", False),
        ("sys_platform != 'linux'", False),
        ("sys_platform in 'linux darwin'", True),
        ("sys_platform not  in 'linux darwin'", False),
        ("python_version not in '3.7, 3.8'", True),
    ],
)
def test_what_holds(marker: str, holds: bool) -> None:
    assert check_marker(marker, OLD) is holds


@pytest.mark.parametrize(
    "marker",
    [
        "extra",
        "extra ==",
        "extra = 'a'",
        "(extra == 'a'",
        "extra == 'a' extra",
        "other == 'a'",
        "?",
    ],
)
def test_what_cannot_be_read(marker: str) -> None:
    with pytest.raises(ValueError, match="cannot read the environment marker") as caught:
        check_marker(marker, OLD)
    assert repr(marker) in str(caught.value)


def test_all_of_whorls_own_markers_are_read_as_packaging_reads_them() -> None:
    packaging = pytest.importorskip("packaging.markers")
    environments = [
        {**read_environment(), "python_version": version, "sys_platform": system, "extra": extra}
        for version in ("3.10", "3.11", "3.13")
        for system in ("linux", "darwin")
        for extra in ("lab", "bench", "dev")
    ]
    lines = metadata.requires("whorl") or []
    assert any("python_version" in line for line in lines)
    for line in lines:
        marker = line.partition(";")[2].strip()
        for here in environments if marker else []:
            assert check_marker(marker, here) == packaging.Marker(marker).evaluate(here), line
