"""Where a page of the documentation is, for messages to people who have no source tree."""

from importlib import metadata

__all__ = ["build_page_address"]


def build_page_address(path: str) -> str:
    """The address of a page such as ``docs/doctor.md#lone-factor``.

    It is below the project URL "Documentation" of the installed package. A package without one,
    as whorl is until it is published, has its pages in the source only, and that is said: wheels do
    not hold them.
    """
    root = _find_site_address()
    return f"{path} in whorl's source" if root is None else f"{root.rstrip('/')}/{path}"


def _find_site_address() -> str | None:
    try:
        listed = metadata.metadata("whorl").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    urls = {
        name.strip().lower(): url.strip() for name, _, url in (u.partition(",") for u in listed)
    }
    return urls.get("documentation")
