"""The site that Sphinx makes of the Markdown files in this repository: ``.ci/site`` builds and checks it.

The sources are those of the whole repository, so that the pages of ``docs/``, the examples and the C runtime link to
each other as they do in a checkout.
"""

import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs" / "_site")]

project = "tinycomp"
author = "The tinycomp developers"
version = release = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[0]

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "examples/**README.md",
    "runtime_c/README.md",
    "benchmarks/README.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
]
exclude_patterns = ["build", "**/.*"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "gallery",
    "short_names",
    "source_pages",
]

# Links to headings are checked, down to the fourth level.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Names in docstrings are checked, but for those of other packages, of what is internal, and of aliases of types.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(collections|numpy|os|pathlib|time|torch|onnx|nx|typing)\..*"),
    ("py:.*", r"(.*\.)?_\w+"),
    ("py:.*", r"tinycomp\.(console|export_c|frontend|ir|memory|ops|passes|quanti\w+|rewrite|runtime|targets?)\..*"),
    ("py:attr", r".*"),
    ("py:class", r"Adviser|AnyTarget|Constraints|Devices|Diagram|Faults|Legalizing|Model|Pass|Precision|RunFuture"),
    ("py:class", r"Activations|Method|NDArray|Rounding|Selector|Shapes|TuningLog|View|WeightMethod|Which"),
    ("py:data", r"COMPOSITE|MAX_NESTING|REGION|UNKNOWN"),
]

autodoc_mock_imports = [name for name in ("torch", "pyarrow", "ray") if importlib.util.find_spec(name) is None]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
highlight_language = "none"

html_theme = "furo"
html_title = "tinycomp"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "redirect.html"}
templates_path = ["_site/templates"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
