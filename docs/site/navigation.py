"""The contents of the site: which page stands where in the sidebar.

The front page gets them as hidden tables of contents while it is read, so that its file stays plain
Markdown. A page that is in none of them is a warning of Sphinx, and so an error of `scripts/docs`.
"""

from typing import Any

FRONT = "docs/README"

#: Sections of the sidebar; a page is a path from the root.
CONTENTS: dict[str, list[str]] = {
    "Start": [
        "docs/choose",
        "docs/extend-a-model",
        "docs/debug-a-port",
        "docs/build-your-own",
    ],
    "中文": [
        "docs/zh/README",
        "docs/zh/choose",
        "docs/zh/extend-a-model",
        "docs/zh/debug-a-port",
        "docs/zh/build-your-own",
        "docs/zh/rope-derivation",
        "README.zh",
    ],
    "Encodings": [
        "docs/encodings/README",
        "docs/scalings",
        "docs/rope-derivation",
        "docs/corrections",
        "docs/glossary",
    ],
    "Models and weights": [
        "docs/configs",
        "docs/inspect",
        "docs/doctor",
        "docs/identify",
        "docs/detect",
        "docs/convert",
        "docs/hf",
        "docs/extend",
        "docs/finetune",
        "docs/explore",
    ],
    "Layers": ["docs/attention", "docs/caches", "docs/linear-attention"],
    "Experiments": [
        "docs/lab",
        "docs/experiments",
        "docs/experiment-results",
        "docs/matching",
        "docs/roformer",
        "docs/analysis",
        "docs/gallery",
        "benchmarks/README",
    ],
    "Beyond one machine": ["docs/scale", "docs/sweeps", "docs/parallel", "docs/plan"],
    "API": ["docs/api/README"],
    "Project": ["README", "CONTRIBUTING", "CHANGELOG", "LOG", "SECURITY", "docs/release"],
}
#: Titles in the sidebar of pages that have the same heading.
TITLES = {
    "README": "whorl in a minute",
    "README.zh": "一分钟了解 whorl",
    "docs/zh/README": "从这里开始",
}
#: Pages below another one, in the order of their names.
BELOW = {"docs/encodings/README": "docs/encodings/", "docs/api/README": "docs/api/"}


def render_contents(name: str, documents: set[str]) -> str:
    """Hidden tables of contents for the end of a page, as directives of MyST."""
    if name == FRONT:
        return "".join(
            render_tree(caption, [f"/{page}" for page in pages])
            for caption, pages in CONTENTS.items()
        )
    if name in BELOW:
        pages = sorted(d for d in documents if d.startswith(BELOW[name]) and d != name)
        return render_tree(None, [f"/{page}" for page in pages])
    return ""


def render_tree(caption: str | None, pages: list[str]) -> str:
    """One hidden toctree."""
    title = "" if caption is None else f":caption: {caption}\n"
    listed = "\n".join(
        f"{TITLES[page[1:]]} <{page}>" if page[1:] in TITLES else page for page in pages
    )
    return f"\n\n```{{toctree}}\n:hidden:\n{title}:titlesonly:\n\n{listed}\n```\n"


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Append the tables of contents to a page that is read."""
    source[0] += render_contents(name, app.env.found_docs)


def list_changed(app: Any, env: Any, *changes: set[str]) -> list[str]:
    """Pages to read again at every build: what is put into them has no file that Sphinx watches."""
    return [
        name for name in env.found_docs if name == FRONT or name.startswith(tuple(BELOW.values()))
    ]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("env-get-outdated", list_changed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
