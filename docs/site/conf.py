"""Settings of the documentation site: `scripts/docs` builds it.

The source is the whole repository, so that links such as ../README.md and ../benchmarks/x.json lead
to the same files on GitHub and here: pages become pages, other files become downloads. The pages
are plain Markdown; what only the site needs (the contents, the API reference) is put in while they
are read, see navigation.py and reference.py beside this file.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import whorl  # noqa: E402

project = "whorl"
author = "the whorl contributors"
copyright = author  # a name that Sphinx reads
version = release = whorl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "navigation",
    "reference",
    "bilingual",
]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "benchmarks/README.md"]
exclude_patterns = [".*", "build", "csrc", "dist", "examples", "runs", "scripts", "src", "tests"]
exclude_patterns += ["*.egg-info", "docs/site"]

# GitHub's names of headings; every link within the site must lead somewhere.
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
nitpicky = False
smartquotes = False  # values such as 'half' are copied

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # a hook is described once, in Encoding
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "whorl"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
templates_path = [str(HERE / "templates")]
html_additional_pages = {"index": "redirect.html"}
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7db2f0", "color-brand-content": "#7db2f0"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
