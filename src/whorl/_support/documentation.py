"""Where a page of the documentation is, for messages to people who have no source tree."""

from importlib import metadata

__all__ = ["documentation_page"]


def documentation_page(path: str) -> str:
    """The address of a page such as ``docs/doctor.md#lone-factor``.

    It is below the project URL "Documentation" of the installed package. A package without one,
    as whorl is until it is published, has its pages in the source only, and that is said: wheels do
    not hold them.
    """
    root = _documentation_url()
    return f"{path} in whorl's source" if root is None else f"{root.rstrip('/')}/{path}"


def _documentation_url() -> str | None:
    try:
        listed = metadata.metadata("whorl").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    urls = {
        name.strip().lower(): url.strip() for name, _, url in (u.partition(",") for u in listed)
    }
    return urls.get("documentation")
